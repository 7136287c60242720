"""Scores of predictions: summed chunk by chunk, or on held-out rows with an interval."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from nystrom.types import Array

# Number of score bins. Ties count half in the AUC, so its error is at most the share of pairs within one bin.
_RANKS = 2**16
_CALIBRATION_BINS = 10
_EPSILON = float(np.finfo(np.float64).eps)
# Half-width of a 95 % interval in standard deviations of a normal distribution.
DEVIATIONS = 1.96


@dataclass(frozen=True)
class HeldOut:
    """A score on rows that a fit has not seen.

    Attributes
    ----------
    name : str
        "R²" or "accuracy".
    value, low, high : float
        The score and its 95 % interval: Wilson's for accuracy, the delta method for R².
    losses : array
        The loss of each row; their mean is 1 minus the score.
    """

    name: str
    value: float
    low: float
    high: float
    losses: Array

    @property
    def noise(self) -> float:
        """The standard error of the score."""
        return (self.high - self.low) / (2 * DEVIATIONS)


def judge(truth: Array, guess: Array, *, classes: bool) -> HeldOut:
    """Return the score of predictions for held-out rows.

    Examples
    --------
    >>> judge(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 2.0, 3.0, 3.0]), classes=False).value
    0.8
    """
    n = len(truth)
    if classes:
        losses = (np.asarray(guess) != truth).astype(np.float64)
        value, z = 1 - float(losses.mean()), DEVIATIONS
        middle = (value + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * float(np.sqrt(value * (1 - value) / n + z * z / (4 * n * n)))
        return HeldOut("accuracy", value, max(0.0, middle - half), min(1.0, middle + half), losses)
    truth, guess = (np.asarray(values, dtype=np.float64).reshape(n, -1) for values in (truth, guess))
    losses = np.square(guess - truth).sum(axis=1)
    deviations = np.square(truth - truth.mean(axis=0)).sum(axis=1)
    spread = float(deviations.mean())
    if spread == 0:
        # R² of a constant target, as in scikit-learn.
        value = float(not losses.any())
        return HeldOut("R²", value, value, value, losses)
    value = 1 - float(losses.mean()) / spread
    half = DEVIATIONS * float((losses - (1 - value) * deviations).std()) / spread / float(np.sqrt(n))
    return HeldOut("R²", value, value - half, min(1.0, value + half), losses / spread)


def hold_out(codes: Array, share: float, rng: np.random.Generator) -> Array:
    """Return which rows to hold out: at random, the same share of each class, and never all rows of one.

    Parameters
    ----------
    codes : array
        The class of each row; zeros if there are no classes.
    share : float
        Between 0 and 1.

    Examples
    --------
    >>> hold_out(np.repeat([0, 1], [10, 1]), 0.2, np.random.default_rng(0)).sum()
    np.int64(2)
    """
    order = rng.permutation(len(codes))
    order = order[np.argsort(codes[order], kind="stable")]
    _, first, counts = np.unique(codes[order], return_index=True, return_counts=True)
    rank = np.arange(len(codes)) - np.repeat(first, counts)
    held = np.empty(len(codes), dtype=bool)
    held[order] = np.floor((rank + 1) * share) > np.floor(rank * share)
    return held


class Scores(Protocol):
    """Sums over rows whose target is known."""

    def add(self, truth: Array, guess: Array) -> None:
        """Add some rows."""

    def judge(self, machine: Any, X: Any, truth: Array) -> None:
        """Add some rows with all outputs of a machine for them: predictions, scores, probabilities."""

    def result(self) -> dict[str, Any]:
        """Return the scores by name; the first after ``rows`` is the main score."""


def make_scores(machine: Any) -> Scores:
    """Return empty sums of the scores that suit a machine."""
    return ClassScores(machine.classes_) if hasattr(machine, "classes_") else NumberScores()


class ClassScores:
    """Accuracy and figures per class; AUC if there are scores; log-loss and calibration if there are probabilities.

    Parameters
    ----------
    classes : array
        The known classes, sorted. Rows of other classes count as wrong, and are ignored by the AUC and the log-loss.
    """

    def __init__(self, classes: Array) -> None:
        self.classes = np.asarray(classes)
        self.pairs: Counter[tuple[Any, Any]] = Counter()
        c = len(self.classes)
        # Number of rows by class, by membership in it, and by bin of the class's score.
        self._ranks = np.zeros((c, 2, _RANKS), dtype=np.int64) if c <= 100 else None
        self._likely = 0
        self._log_loss = 0.0
        # Per bin of the probability of the predicted class: rows, sum of probabilities, correct rows.
        self.calibration = np.zeros((3, _CALIBRATION_BINS))

    def add(self, truth: Array, guess: Array) -> None:
        labels, i = np.unique(truth, return_inverse=True)
        guessed, j = np.unique(guess, return_inverse=True)
        for at, count in enumerate(np.bincount(i * len(guessed) + j, minlength=len(labels) * len(guessed)).tolist()):
            if count:
                self.pairs[labels[at // len(guessed)], guessed[at % len(guessed)]] += count

    def judge(self, machine: Any, X: Any, truth: Array) -> None:
        guess = np.asarray(machine.predict(X))
        self.add(truth, guess)
        codes = np.minimum(np.searchsorted(self.classes, truth), len(self.classes) - 1)
        known = self.classes[codes] == truth
        codes = codes[known]
        if hasattr(machine, "predict_proba"):
            p = np.clip(np.asarray(machine.predict_proba(X), dtype=np.float64)[known], _EPSILON, 1 - _EPSILON)
            self._log_loss -= float(np.log(p[np.arange(len(p)), codes]).sum())
            self._likely += len(p)
            top = p.max(axis=1)
            right = guess[known] == truth[known]
            bins = np.minimum((top * _CALIBRATION_BINS).astype(int), _CALIBRATION_BINS - 1)
            for sums, weights in zip(self.calibration, (np.ones(len(p)), top, right), strict=True):
                sums += np.bincount(bins, weights, minlength=_CALIBRATION_BINS)
            values = np.log(p) - np.log1p(-p)
        else:
            values = np.asarray(machine.decision_function(X))[known]
            values = np.column_stack([-values, values]) if values.ndim == 1 else values
        self._rank(values, codes)

    def _rank(self, values: Array, codes: Array) -> None:
        if self._ranks is None:
            return
        # A monotone map to (-1, 1): the AUC depends on order alone.
        places = (values / (1 + np.abs(values)) + 1) * (_RANKS / 2)
        places = np.clip(places.astype(int), 0, _RANKS - 1)
        for k, counts in enumerate(self._ranks):
            for inside in (0, 1):
                counts[inside] += np.bincount(places[(codes == k) == inside, k], minlength=_RANKS)

    def _areas(self) -> Array:
        """Return the AUC of each class against the others; NaN if all rows or none belong to it."""
        ranks = np.zeros((0, 2, 1)) if self._ranks is None else self._ranks.astype(float)
        outside, inside = ranks[:, 0], ranks[:, 1]
        below = np.cumsum(outside, axis=1) - outside / 2
        pairs = inside.sum(axis=1) * outside.sum(axis=1)
        return np.divide((inside * below).sum(axis=1), pairs, out=np.full(len(pairs), np.nan), where=pairs > 0)

    def per_class(self) -> dict[Any, dict[str, Any]]:
        """Return rows, recall and precision of each class that occurs as truth or prediction; NaN for 0 / 0."""
        found = {}
        for label in sorted({label for pair in self.pairs for label in pair}):
            right = self.pairs[label, label]
            true = sum(count for (a, _), count in self.pairs.items() if a == label)
            said = sum(count for (_, b), count in self.pairs.items() if b == label)
            recall, precision = (right / total if total else float("nan") for total in (true, said))
            found[label] = {"rows": true, "recall": recall, "precision": precision}
        return found

    def result(self) -> dict[str, Any]:
        rows, classes = self.pairs.total(), self.per_class()
        found: dict[str, Any] = {
            "rows": rows,
            "accuracy": sum(count for (a, b), count in self.pairs.items() if a == b) / rows,
            "baseline accuracy": max(figures["rows"] for figures in classes.values()) / rows,
            "balanced accuracy": float(np.nanmean([figures["recall"] for figures in classes.values()])),
        }
        areas = self._areas()
        if not np.isnan(areas).all():
            found["AUC"] = float(np.nanmean(areas))
        if self._likely:
            found["log-loss"] = self._log_loss / self._likely
            found["calibration error"] = float(np.abs(self.calibration[1] - self.calibration[2]).sum() / self._likely)
        return {**found, "classes": classes}


class NumberScores:
    """R², root mean square error and mean absolute error; several targets are pooled."""

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
        # Combine the squared deviations of the parts into those from the mean of all rows.
        self._spread += float(np.square(truth - mean).sum() + np.sum(gap * gap) * self._rows * (count / total))
        self._mean = self._mean + gap * (count / total)
        self._rows = total
        self._values += truth.size
        self._squares += float(np.square(guess - truth).sum())
        self._sizes += float(np.abs(guess - truth).sum())

    def judge(self, machine: Any, X: Any, truth: Array) -> None:
        self.add(truth, np.asarray(machine.predict(X)))

    def result(self) -> dict[str, Any]:
        return {
            "rows": self._rows,
            "R2": 1 - self._squares / self._spread if self._spread else float(self._squares == 0),
            "root mean square error": (self._squares / self._values) ** 0.5,
            "baseline error": (self._spread / self._values) ** 0.5,
            "mean absolute error": self._sizes / self._values,
        }
