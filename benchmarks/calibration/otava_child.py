"""Runs in the environment ``otava``: change points of series by Apache Otava's library, without the harness.

JSON on standard input: {"series": [[...], ...], "pvalues": [...]}. On standard output, for each series and each of
the p-values, the indices of the change points.
"""

from __future__ import annotations

import json
import sys


def main() -> None:
    """Read, compute with Otava's own defaults but for the p-value, write."""
    from otava.analysis import compute_change_points  # type: ignore[import-not-found, import-untyped, unused-ignore]

    asked = json.load(sys.stdin)
    answer = []
    for series in asked["series"]:
        each = [compute_change_points(series, max_pvalue=pvalue)[0] for pvalue in asked["pvalues"]]
        answer.append([[int(point.index) for point in points] for points in each])
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
