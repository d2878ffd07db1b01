"""The sum of all cases, at the end of a run."""

from collections import Counter
from typing import Any


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many cases there were, and what came of them."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.getreports(kind)]
    counts = [Counter(value) for report in reports for name, value in report.user_properties if name == "fortress"]
    if counts:
        total = sum(counts, Counter())
        kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(total.items()))
        terminalreporter.write_line(f"Fortress: {sum(total.values())} cases of {len(counts)} formats: {kinds}.")
