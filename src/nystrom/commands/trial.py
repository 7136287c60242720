"""A first fit to some of the rows, its score on the held-out rows, and advice on likely improvements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from nystrom.engine import Resources
from nystrom.engine.memory import parse_memory
from nystrom.exceptions import ApproximationWarning, FewerLandmarksWarning, silenced
from nystrom.rows import array_rows
from nystrom.rows.base import RowBlocks
from nystrom.rows.draw import take_with_targets
from nystrom.scoring import HeldOut, hold_out, judge, make_scores
from nystrom.types import Array, Matrix

# Minimum number of rows for a held-out score to be meaningful.
LEAST_ROWS = 20
# Maximum size of the first fit's rows, which are held in memory; larger tables are sampled.
_MOST_BYTES = 256 * 2**20
# Numbers of rows and landmarks used to compare kernels.
_SMALL = {"n_rows": 2_500, "n_landmarks": 500}
# Minimum improvement to mention: as a share of the error, and in standard errors.
_GAIN, _ERRORS = 0.02, 2.0
# A class counts as missed if its recall is below this.
_FOUND = 0.5

Fit = Callable[[Any, RowBlocks], Any]


@dataclass(frozen=True)
class Trial:
    """Rows in memory, some of them held out from a first fit; the whole table has ``n_rows``."""

    X: Matrix
    y: Array
    held: Array
    n_rows: int
    classes: bool

    def train(self, most: int | None = None) -> RowBlocks:
        """Return the rows that are not held out, at most ``most`` of them."""
        chosen = np.flatnonzero(~self.held)
        if most is not None and most < len(chosen):
            # Draw at random, because the rows may be sorted.
            chosen = chosen[np.linspace(0, len(chosen) - 1, most).astype(int)]
        rows = array_rows(self.X[chosen])
        rows.held_bytes = 2 * int(rows.block_bytes / rows.block_rows * len(self.y))
        return rows.with_target(self.y[chosen])

    def judge(self, machine: Any) -> HeldOut:
        """Return the score of a machine on the rows held out."""
        guess = np.asarray(machine.predict(self.X[self.held]))
        return judge(self.y[self.held], guess, classes=self.classes)


def make_trial(rows: RowBlocks, share: float, *, classes: bool, max_memory: Any, seed: int) -> Trial | None:
    """Return the rows with a share held out, sampled if they are too large for memory; None for too few rows."""
    n, budget, rng = rows.shape[0], parse_memory(max_memory), np.random.default_rng(seed)
    if n < LEAST_ROWS:
        return None
    room = _MOST_BYTES if budget is None else budget // 8
    most = max(int(room * rows.block_rows / max(rows.block_bytes, 1)), LEAST_ROWS)
    numbers = np.arange(n) if n <= most else np.sort(rng.choice(n, most, replace=False))
    sample = take_with_targets(rows, Resources().engine(rows), numbers)
    y = np.asarray(sample.y)
    codes = np.unique(y, return_inverse=True)[1] if classes else np.zeros(len(y), dtype=np.intp)
    held = hold_out(codes, share, rng)
    if not held.any():
        return None
    return Trial(sample.X, y, held, n, classes)


def describe(machine: Any, trial: Trial, labels: Array | None) -> dict[str, Any]:
    """Return the scores of a machine and of a baseline on the held-out rows, as plain values."""
    judged, y = trial.judge(machine), trial.y[trial.held]
    scores = make_scores(machine)
    scores.judge(machine, trial.X[trial.held], y)
    found = scores.result()
    found.pop("rows")
    per_class = found.pop("classes", {})
    if trial.classes:
        values, counts = np.unique(trial.y[~trial.held], return_counts=True)
        frequent = values[np.argmax(counts)]
        baseline = judge(y, np.full(len(y), frequent), classes=True).value
        name = frequent if labels is None else labels[frequent]
        per_class = {key if labels is None else labels[key]: figures for key, figures in per_class.items()}
        found |= {"most frequent class": name, "classes": per_class}
    else:
        baseline = judge(y, np.full(y.shape, trial.y[~trial.held].mean(axis=0)), classes=False).value
    return {
        "on": "held-out rows",
        "rows": len(y),
        "fitted to": len(trial.y) - len(y),
        "name": judged.name.replace("R²", "R2"),
        "value": judged.value,
        "low": judged.low,
        "high": judged.high,
        "baseline": baseline,
        **{key: value for key, value in found.items() if key not in ("R2", "accuracy")},
    }


def advise(machine: Any, trial: Trial, score: dict[str, Any], fit: Fit, given: set[str]) -> list[str]:
    """Return options that are likely to help, with reasons; the first two were tried on the same rows.

    Parameters
    ----------
    machine : fitted to the rows that are not held out
    score : dict
        The result of :func:`describe` for it.
    fit : callable
        Fits a machine to rows.
    given : set of str
        Parameters set by the user; no other value is suggested for them.
    """
    advice = []
    with silenced(ApproximationWarning, FewerLandmarksWarning):
        judged = trial.judge(machine)
        for found in (_landmarks(machine, trial, judged, fit, given), _kernel(machine, trial, fit, given)):
            advice += [found] if found else []
    if "classes" in score and "class_weight" not in given and "class_weight" in machine.get_params():
        missed = [
            f"{label} ({round(figures['recall'] * figures['rows'])} of {figures['rows']} rows)"
            for label, figures in score["classes"].items()
            if figures["rows"] and figures["recall"] < _FOUND
        ]
        if missed:
            advice.append(f"--class-weight balanced finds more of the rare classes; missed now: {', '.join(missed)}")
    if "metric" in machine.get_params() and machine.metric is None and "metric" not in given:
        advice.append("--metric auto learns how much each column counts; it was not tried, because it takes long here")
    return advice


def _gain(before: HeldOut, after: HeldOut) -> float:
    """Return the share by which errors are lower if the difference is clear, else 0."""
    change = before.losses - after.losses
    clear = change.mean() > _ERRORS * change.std() / np.sqrt(len(change))
    return float(change.mean() / before.losses.mean()) if clear and before.losses.any() else 0.0


def _landmarks(machine: Any, trial: Trial, judged: HeldOut, fit: Fit, given: set[str]) -> str:
    """Return advice to use more landmarks, if the step from half of them to all of them helped."""
    m, n = machine.landmarks_.shape[0], int((~trial.held).sum())
    if {"n_landmarks", "landmarks", "n_components"} & given or m >= n or m < 2 or not machine.kernel_.has_coordinates:
        return ""
    # Use the fitted kernel: do not search its width or metric again.
    fixed = {"kernel": machine.kernel_, "gamma": "scale", "metric": None, "n_landmarks": m // 2}
    names = machine.get_params(deep=False)
    half = fit(clone(machine).set_params(**{key: value for key, value in fixed.items() if key in names}), trial.train())
    gain = _gain(trial.judge(half), judged)
    if gain < _GAIN:
        return ""
    more = min(2 * m, trial.n_rows)
    return f"--n-landmarks {more} is likely to help: {m} landmarks have {gain:.0%} {_less(trial)} than {m // 2}"


def _kernel(machine: Any, trial: Trial, fit: Fit, given: set[str]) -> str:
    """Return advice to use another kernel, if one is better on a part of the rows."""
    if {"kernel", "gamma", "metric"} & given or not hasattr(type(machine), "metric_"):
        return ""
    small = trial.train(_SMALL["n_rows"])
    few = min(_SMALL["n_landmarks"], small.shape[0])
    plain, other = (
        trial.judge(fit(clone(machine).set_params(kernel=kernel, n_landmarks=few), small))
        for kernel in (machine.kernel, "auto")
    )
    gain = _gain(plain, other)
    if gain < _GAIN:
        return ""
    return f"--kernel auto is likely to help: with {small.shape[0]:,} rows it has {gain:.0%} {_less(trial)}"


def _less(trial: Trial) -> str:
    return "fewer errors" if trial.classes else "less squared error"


def lines(score: dict[str, Any]) -> list[str]:
    """Return the verdict in words: the score with its interval, the baseline, and what that means."""
    name = score["name"].replace("R2", "R²")
    if "low" not in score:
        return [f"{name} {score['value']:.4f} on {score['on']}, which is too good: they have been seen"]
    span = f"{name} {score['value']:.3f} (95 % interval {score['low']:.3f} to {score['high']:.3f})"
    found = [f"{span} on {score['rows']:,} rows held out from a first fit to {score['fitted to']:,}"]
    better = score["low"] > score["baseline"]
    if name == "accuracy":
        against = f"always naming {str(score['most frequent class'])!r} has {score['baseline']:.3f}"
        found.append(f"{against}; the mean recall of the classes is {score['balanced accuracy']:.3f}")
    else:
        found.append(
            f"typical error {score['root mean square error']:.4g} (root mean square), against "
            f"{score['baseline error']:.4g} by always predicting the mean"
        )
    if not better:
        found.append("the columns say little about the target: this is no better than the baseline")
    return found
