"""Patches as git writes them."""

from __future__ import annotations


def diff(path: str, line: str, added: list[str]) -> str:
    """A patch that adds lines after one."""
    head = f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -40,1 +40,{1 + len(added)} @@\n"
    return head + f" {line}\n" + "".join(f"+{text}\n" for text in added)
