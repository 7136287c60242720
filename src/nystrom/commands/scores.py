"""How predictions agree with the truth, summed chunk by chunk: nothing is held but counts and sums."""

from __future__ import annotations

from collections import Counter
from typing import Any, Protocol

import numpy as np

from nystrom.types import Array


class Scores(Protocol):
    """Sums over rows whose target is known."""

    def add(self, truth: Array, guess: Array) -> None:
        """Take some rows in."""

    def result(self) -> dict[str, Any]:
        """Return the scores by name; the first one after ``rows`` is the one to be told alone."""


def make_scores(machine: Any) -> Scores:
    """Return empty sums of the kind that a machine is judged by."""
    return ClassScores() if hasattr(machine, "classes_") else NumberScores()


class ClassScores:
    """Accuracy, and its mean over the true classes."""

    def __init__(self) -> None:
        self._rows: Counter[Any] = Counter()
        self._right: Counter[Any] = Counter()

    def add(self, truth: Array, guess: Array) -> None:
        for counts, labels in ((self._rows, truth), (self._right, truth[truth == guess])):
            for label, count in zip(*np.unique(labels, return_counts=True), strict=True):
                counts[label] += int(count)

    def result(self) -> dict[str, Any]:
        rows = self._rows.total()
        recalls = [self._right[label] / count for label, count in self._rows.items()]
        accuracy = self._right.total() / rows
        return {"rows": rows, "accuracy": accuracy, "balanced accuracy": float(np.mean(recalls))}


class NumberScores:
    """R², root mean square and mean absolute error; of several targets, over all of them together."""

    def __init__(self) -> None:
        self._rows = 0
        self._values = 0
        self._mean: Any = 0.0
        self._spread = self._squares = self._sizes = 0.0

    def add(self, truth: Array, guess: Array) -> None:
        count = len(truth)
        total = self._rows + count
        mean = truth.mean(axis=0)
        gap = mean - self._mean
        # Deviations from the mean of all rows, from those of the parts.
        self._spread += float(np.square(truth - mean).sum() + np.sum(gap * gap) * self._rows * (count / total))
        self._mean = self._mean + gap * (count / total)
        self._rows = total
        self._values += truth.size
        self._squares += float(np.square(guess - truth).sum())
        self._sizes += float(np.abs(guess - truth).sum())

    def result(self) -> dict[str, Any]:
        return {
            "rows": self._rows,
            "R2": 1 - self._squares / self._spread if self._spread else float(self._squares == 0),
            "root mean square error": (self._squares / self._values) ** 0.5,
            "mean absolute error": self._sizes / self._values,
        }
