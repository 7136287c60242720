"""Means and deviations of rows, used by figures and claims."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from reproduction.catalogue import Study
from reproduction.records import Row

Stage = Literal["total", "landmarks", "algorithm"]


@dataclass(frozen=True)
class Point:
    """One method at one size: mean and standard deviation of the error over trials, and its rows."""

    m: int
    r: int
    mean: float
    std: float
    trials: int
    rows: tuple[Row, ...]

    def seconds(self, stage: Stage = "total") -> float:
        """Return the processor seconds of a stage: the minimum over trials, since other load only slows a run down."""
        return min(_stage(row["cpu_seconds"], stage) for row in self.rows)


def _stage(seconds: dict[str, float], stage: Stage) -> float:
    if stage == "landmarks":
        return seconds.get("landmarks", 0.0)
    algorithm = seconds.get("kernel", 0.0) + seconds.get("factor", 0.0)
    return algorithm if stage == "algorithm" else algorithm + seconds.get("landmarks", 0.0)


class Summary:
    """The rows of one study, by method and size.

    Only rows of one version of the data count: the one most recently appended.
    """

    def __init__(self, rows: Iterable[Row], experiment: str, study: Study) -> None:
        mine = [row for row in rows if row["experiment"] == experiment and row["study"] == study.name]
        newest = mine[-1]["data_sha256"] if mine else None
        self.rows = [row for row in mine if row["data_sha256"] == newest]
        self.study = study
        grouped: dict[tuple[str, int, int], list[Row]] = defaultdict(list)
        sizes = set(study.sizes)
        for row in self.rows:
            if row["method"] == "svd" or (row["m"], row["r"]) in sizes:
                grouped[row["method"], row["m"], row["r"]].append(row)
        self._points: dict[str, list[Point]] = defaultdict(list)
        for (method, m, r), group in sorted(grouped.items(), key=lambda item: item[0][1:]):
            errors = np.array([row["error"] for row in group])
            spread = float(errors.std(ddof=1)) if len(errors) > 1 else 0.0
            self._points[method].append(Point(m, r, float(errors.mean()), spread, len(errors), tuple(group)))

    def __bool__(self) -> bool:
        return bool(self.rows)

    @property
    def dataset(self) -> str:
        return str(self.rows[0]["dataset"]) if self.rows else self.study.dataset

    @property
    def stand_in(self) -> bool:
        return bool(self.rows and self.rows[0].get("stand_in"))

    def points(self, method: str) -> list[Point]:
        """Return the points of a method, by size; empty if it was not run."""
        return self._points.get(method, [])

    def at(self, method: str, m: int, r: int | None = None) -> Point | None:
        """Return the point of a method at one size."""
        for point in self.points(method):
            if point.m == m and (r is None or point.r == r):
                return point
        return None

    def best(self, r: int) -> float | None:
        """Return the error of the best rank-r approximation, if it was computed."""
        for point in self.points("svd"):
            if point.r == r:
                return point.mean
        return None

    def trials(self) -> str:
        """Return the number of trials in words, with that of clustered where it differs."""
        counts = {method: min(p.trials for p in points) for method, points in self._points.items() if method != "svd"}
        if not counts:
            return "no trials"
        most, clustered = max(counts.values()), counts.get("clustered")
        text = f"{most} trial{'s' if most != 1 else ''}"
        return text if clustered in (None, most) else f"{text} ({clustered} of clustered)"
