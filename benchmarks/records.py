"""Stored measurements: one file of JSON lines per suite, with version, date and machine, and the tables made from them.

Every stored run is appended, so a file is the history of its suite. The newest run of each case counts.
"""

from __future__ import annotations

import datetime
import json
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.measure import Result

RESULTS = Path(__file__).parent / "results"
# A change of a ratio below 10 % counts as noise, however small the stored spread.
_LEAST_NOISE = 0.1
# What identifies a run. Tables end with the first two.
_ORIGIN = ("version", "date", "machine", "run")
_MARK = re.compile(r"(<!-- records: (.+?) -->\n).*?(<!-- end of records -->)", re.DOTALL)

Record = dict[str, Any]


def describe(results: Sequence[Result]) -> list[Record]:
    """Return the table fields of each contestant, with the seconds of each round. The first of a case is ours."""
    found = []
    for case in dict.fromkeys(result.case for result in results):
        ours, *theirs = (result for result in results if result.case == case)
        for row in (ours, *theirs):
            record: Record = {
                "case": case,
                "contestant": f"{row.contestant} ({row.note})" if row.note else row.contestant,
                "seconds": round(row.seconds, 4),
                "processor": None if row.processor is None else round(row.processor, 4),
                "time, ours ÷ theirs": round(ours.seconds / row.seconds, 2),
                "added MB": round(row.added_mb),
                "error": None if row.error is None else float(f"{row.error:.4g}"),
                "error, ours ÷ theirs": None,
                "rounds": [round(seconds, 4) for seconds in row.times],
            }
            if row.error and ours.error is not None:
                record["error, ours ÷ theirs"] = round(ours.error / row.error, 2)
            found.append(record)
    return found


def store(suite: str, records: Iterable[Record], machine: Record, version: str) -> None:
    """Append the records of a run to the file of the suite."""
    now = datetime.datetime.now()
    origin = {
        "version": version,
        "date": now.date().isoformat(),
        "machine": machine,
        "run": now.isoformat(timespec="microseconds"),
    }
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{suite}.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps({**record, **origin}, ensure_ascii=False) + "\n" for record in records)


def newest(suite: str) -> list[Record]:
    """Return the records of the newest run of each case, in the order in which the cases were first stored."""
    path = RESULTS / f"{suite}.jsonl"
    if not path.exists():
        return []
    runs: dict[Any, tuple[Any, list[Record]]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        case, run = next(iter(record.values())), [record.get(name) for name in _ORIGIN]
        if case not in runs or runs[case][0] != run:
            runs[case] = (run, [])
        runs[case][1].append(record)
    return [record for _, records in runs.values() for record in records]


def check(suite: str, results: Sequence[Result]) -> list[str]:
    """Return a line for each ratio of times that exceeds the stored one by more than the spread of both.

    Stored cases that were not measured do not count: their data may be missing here.
    """
    measured = {result.case for result in results}
    before = _ratios(record for record in newest(suite) if record["case"] in measured)
    now = _ratios(describe(results))
    lines = [f"{suite}, {name}: stored, but not measured now" for name in before if name not in now]
    for name, (ratio, spread) in now.items():
        if name not in before:
            advice = f"run python -m benchmarks {suite} --store on the code before the change."
            lines.append(f"{suite}, {name}: nothing is stored; {advice}")
            continue
        old, old_spread = before[name]
        noise = max(old_spread + spread, _LEAST_NOISE * old)
        if ratio > old + noise:
            lines.append(f"{suite}, {name}: {ratio:.2f}, stored {old:.2f} (noise {noise:.2f})")
    return lines


def has_ratios(suite: str) -> bool:
    """Return whether ratios are stored to compare a new run of the suite with."""
    return bool(_ratios(newest(suite)))


def _ratios(records: Iterable[Record]) -> dict[str, tuple[float, float]]:
    """Return, for each case and peer, the median over the rounds of our seconds ÷ theirs, and half their range."""
    found = {}
    for case, group in groupby(records, key=lambda record: record["case"]):
        ours, *theirs = group
        for other in theirs:
            rounds = [a / b for a, b in zip(ours.get("rounds", ()), other.get("rounds", ()), strict=False)]
            if rounds:
                name = f"{case}: {ours['contestant']} ÷ {other['contestant']}"
                found[name] = (statistics.median(rounds), (max(rounds) - min(rounds)) / 2)
    return found


def table(records: Sequence[Record], *, origin: bool = True) -> str:
    """Return the records as a Markdown table: a column per field, without lists and without columns that are empty."""
    names = dict.fromkeys(name for record in records for name, value in record.items() if name not in _ORIGIN)
    shown = [name for name in names if any(_is_shown(record.get(name)) for record in records)]
    shown += [name for name in _ORIGIN[:2] if origin]
    lines = ["| " + " | ".join(shown) + " |", "|---" * len(shown) + "|"]
    lines += ["| " + " | ".join(_cell(record.get(name)) for name in shown) + " |" for record in records]
    return "\n".join(lines)


def write_pages(pages: Iterable[Path], views: Mapping[str, Callable[[], Sequence[Record]]]) -> None:
    """Write the tables of all pages: each between ``<!-- records: NAME -->`` and ``<!-- end of records -->``.

    NAME is one of ``views``, or a suite, of which all records are shown. ``<!-- records: SUITE: TEXT; TEXT -->`` takes
    the cases that contain one of the texts.
    """

    def made(name: str) -> str:
        return table(views[name]()) if name in views else _wanted(name)

    for page in pages:
        text = page.read_text(encoding="utf-8")
        new = _MARK.sub(lambda found: f"{found[1]}\n{made(found[2])}\n\n{found[3]}", text)
        if new != text:
            page.write_text(new, encoding="utf-8")


def _wanted(mark: str) -> str:
    suite, _, texts = mark.partition(": ")
    chosen = [text.strip() for text in texts.split(";")] if texts else [""]
    records = [r for r in newest(suite) if any(text in str(next(iter(r.values()))) for text in chosen)]
    if not records:
        raise ValueError(f"nothing is stored for {mark!r}: run python -m benchmarks {suite} --store")
    return table(records)


def _is_shown(value: Any) -> bool:
    return value is not None and not isinstance(value, (list, dict))


def _cell(value: Any) -> str:
    if not _is_shown(value):
        return ""
    if isinstance(value, float):
        value = float(f"{value:.3g}")
        return f"{value:.3g}" if abs(value) >= 1e6 else f"{value:,.0f}" if abs(value) >= 100 else str(value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
