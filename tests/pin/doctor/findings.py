"""Findings in the short form in which tests compare them."""

from __future__ import annotations

from harness.findings import Finding


def kinds(findings: list[Finding]) -> list[tuple[str, str, str]]:
    return [(finding.kind, finding.severity, finding.subject) for finding in findings]
