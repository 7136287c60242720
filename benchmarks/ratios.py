"""Ratios of ours to theirs, kept in the repository with their spread, so that a slower change is named."""

from __future__ import annotations

import json
import statistics
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.limits import FLOP_BOUND
from benchmarks.measure import Result

STORED = Path(__file__).parent / "ratios.json"
# What is slower by less than this is noise, however small the spread that was stored.
_LEAST_NOISE = 0.1


def ratios(results: list[Result]) -> dict[str, dict[str, float]]:
    """Return, for each case and peer, the median over the rounds of our seconds ÷ theirs, and half their range."""
    found = {}
    for case, group in groupby(results, key=lambda result: result.case):
        first, *others = group
        for other in others:
            rounds = [ours / theirs for ours, theirs in zip(first.times, other.times, strict=False)]
            if rounds:
                spread = (max(rounds) - min(rounds)) / 2
                found[f"{case}: {first.contestant} ÷ {other.contestant}"] = {
                    "ratio": round(statistics.median(rounds), 4),
                    "spread": round(spread, 4),
                }
    return found


def store(suite: str, results: list[Result], machine: dict[str, Any]) -> None:
    """Keep the ratios of a suite, and the machine they are from, in the place of those stored before."""
    kept = _stored()
    kept[suite] = {"machine": machine, "ratios": ratios(results)}
    STORED.write_text(json.dumps(kept, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


def check(suite: str, results: list[Result]) -> list[str]:
    """Return a line for each ratio that is worse than the one stored by more than the spread of both."""
    before = _stored().get(suite)
    if before is None:
        return [f"{suite}: no ratios are stored; run python -m benchmarks {suite} --store on the code before."]
    now = ratios(results)
    lines = [f"{suite}, {name}: stored, but not measured now" for name in before["ratios"] if name not in now]
    for name, found in now.items():
        old = before["ratios"].get(name)
        if old is None:
            continue
        noise = max(old["spread"] + found["spread"], _LEAST_NOISE * old["ratio"])
        if found["ratio"] > old["ratio"] + noise:
            lines.append(f"{suite}, {name}: {found['ratio']:.2f}, stored {old['ratio']:.2f} (noise {noise:.2f})")
    return lines


def summary(results: list[Result]) -> str:
    """Return one Markdown line per case: ours (the first contestant) against the second, and what each costs.

    The flop bound stands at the end, where it was taken.
    """
    lines = [
        "| rows | time, ours ÷ theirs | rounds from … to | seconds | processor seconds | added MB "
        "| error | error, ours ÷ theirs | flop bound ÷ ours |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for case, group in groupby(results, key=lambda result: result.case):
        ours, theirs, *others = group
        bounds = [other for other in others if other.contestant == FLOP_BOUND]
        rounds = [a / b for a, b in zip(ours.times, theirs.times, strict=False)]
        lines.append(
            f"| {case} | {ours.seconds / theirs.seconds:.2f} | {min(rounds):.2f} … {max(rounds):.2f} "
            f"| {ours.seconds:.3f} / {theirs.seconds:.3f} | {ours.processor or 0:.3f} / {theirs.processor or 0:.3f} "
            f"| {ours.added_mb:.0f} / {theirs.added_mb:.0f} | {ours.error or 0:.4g} / {theirs.error or 0:.4g} "
            f"| {(ours.error or 0) / (theirs.error or 1):.2f} "
            f"| {f'{bounds[0].seconds / ours.seconds:.0%}' if bounds else ''} |"
        )
    return "\n".join(lines)


def write(suite: str, text: str, path: Path) -> None:
    """Put the text between the marks of a suite in a page, ``<!-- SUITE -->`` and ``<!-- end of SUITE -->``."""
    page = path.read_text()
    begin, end = f"<!-- {suite} -->\n", f"<!-- end of {suite} -->"
    if begin not in page or end not in page:
        raise ValueError(f"{path} has no marks for {suite}: {begin.strip()} and {end}, each on a line of its own.")
    head, rest = page.split(begin, 1)
    path.write_text(head + begin + "\n" + text.strip() + "\n\n" + end + rest.split(end, 1)[1])


def _stored() -> dict[str, Any]:
    return dict(json.loads(STORED.read_text())) if STORED.exists() else {}
