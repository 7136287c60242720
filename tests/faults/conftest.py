"""Add up what the tests of this folder report, and say it in one line at the end."""

from __future__ import annotations

from typing import Any

COUNTS = ("kills", "resumed", "pairs", "full disks", "inputs", "failures")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the sum of every ``record_property("faults", {...})``; tests of other files may report in the same way."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, [])]
    found = [value for report in reports for name, value in report.user_properties if name == "faults"]
    if found:
        names = [*COUNTS, *sorted({name for counts in found for name in counts} - set(COUNTS))]
        sums = {name: sum(counts.get(name, 0) for counts in found) for name in names}
        shown = ", ".join(f"{total} {name}" for name, total in sums.items() if total or name == "failures")
        terminalreporter.write_line(f"faults: {shown}")
