"""Ratios of ours to theirs, kept in the repository with their spread, so that a slower change is named."""

from __future__ import annotations

import json
import statistics
from itertools import groupby
from pathlib import Path

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


def store(suite: str, results: list[Result]) -> None:
    """Keep the ratios of a suite in the place of those stored before."""
    kept = _stored()
    kept[suite] = ratios(results)
    STORED.write_text(json.dumps(kept, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


def check(suite: str, results: list[Result]) -> list[str]:
    """Return a line for each ratio that is worse than the one stored by more than the spread of both."""
    before = _stored().get(suite)
    if before is None:
        return [f"{suite}: no ratios are stored; run python -m benchmarks {suite} --store on the code before."]
    lines = []
    for name, now in ratios(results).items():
        old = before.get(name)
        if old is None:
            continue
        noise = max(old["spread"] + now["spread"], _LEAST_NOISE * old["ratio"])
        if now["ratio"] > old["ratio"] + noise:
            lines.append(f"{suite}, {name}: {now['ratio']:.2f}, stored {old['ratio']:.2f} (noise {noise:.2f})")
    return lines


def _stored() -> dict[str, dict[str, dict[str, float]]]:
    return dict(json.loads(STORED.read_text())) if STORED.exists() else {}
