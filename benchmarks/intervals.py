"""Coverage of intervals and prediction sets, against MAPIE's CV+: ``python -m benchmarks intervals [--repeat SPLITS]``.

Kinds of rows, drawn again for every split, and two real tables, split at random; no rule of the package was chosen on
those after "1 % minority". Times are processor time in addition to one plain fit; MAPIE refits the same machine on five
folds and predicts with each, on the first splits.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import nystrom
from benchmarks.records import Record
from nystrom.datasets import is_available
from nystrom.types import Array

NEW = 2000
# Splits on which MAPIE is measured too.
PEER_SPLITS = 20


class Rows(NamedTuple):
    """Rows with targets; rows of one group are measurements of one subject."""

    X: Array
    y: Array
    groups: Array | None = None


class Case(NamedTuple):
    """The number of training rows, the function that draws rows, and the machine."""

    n: int
    rows: Callable[[int, np.random.Generator], Rows]
    machine: Callable[[], Any]


def _numbers(noise: Callable[[Array, np.random.Generator], Array]) -> Callable[[int, np.random.Generator], Rows]:
    def draw(n: int, rng: np.random.Generator) -> Rows:
        X = rng.uniform(-2, 2, size=(n, 3))
        return Rows(X, np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + noise(X, rng))

    return draw


EVEN = _numbers(lambda X, rng: 0.3 * rng.normal(size=len(X)))
UNEVEN = _numbers(lambda X, rng: rng.normal(size=len(X)) * np.where(X[:, 2] > 0, 0.8, 0.1))
SMOOTH = _numbers(lambda X, rng: 0.2 * rng.normal(size=len(X)) * np.exp(X[:, 0]))
HEAVY = _numbers(lambda X, rng: 0.2 * rng.standard_t(2, size=len(X)))


def _grouped(n: int, rng: np.random.Generator) -> Rows:
    """Return ten measurements per subject; the level of a subject does not depend on the columns."""
    found = EVEN(-(-n // 10), rng)
    level = found.y + 0.5 * rng.normal(size=len(found.y))
    own = np.repeat(np.arange(len(level)), 10)[:n]
    return Rows(found.X[own] + 0.01 * rng.normal(size=(n, 3)), level[own] + 0.1 * rng.normal(size=n), own)


def _classes(*offsets: float) -> Callable[[int, np.random.Generator], Rows]:
    def draw(n: int, rng: np.random.Generator) -> Rows:
        X = rng.normal(size=(n, 2))
        scores = 2 * X[:, np.arange(len(offsets)) % 2] * np.sign(np.arange(len(offsets)) - 0.5) + np.array(offsets)
        return Rows(X, (scores + rng.gumbel(size=scores.shape)).argmax(axis=1))

    return draw


def _steep(n: int, rng: np.random.Generator) -> Rows:
    X = rng.uniform(size=(n, 6))
    y = 2 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 4 * (X[:, 2] - 0.5) ** 2 + 2 * X[:, 3] + X[:, 4]
    return Rows(X, y + rng.normal(size=n) * (0.05 + 1.2 * X[:, 5] ** 3))


def _skewed(n: int, rng: np.random.Generator) -> Rows:
    """Return few rows at large values, where the target rises steeply and errors are large."""
    X = rng.lognormal(sigma=0.8, size=(n, 2))
    return Rows(X, X[:, 0] ** 2 + 3 * np.log(X[:, 1]) + 0.3 * rng.normal(size=n) * (1 + X[:, 0]))


def _counts(n: int, rng: np.random.Generator) -> Rows:
    X = rng.integers(0, 4, size=(n, 4)).astype(float)
    return Rows(X, rng.poisson(np.exp(X[:, 0] * X[:, 1] / 5 - 0.3)).astype(float))


def _subjects(n: int, rng: np.random.Generator) -> Rows:
    """Return 3 to 29 measurements per subject."""
    own = np.repeat(np.arange(n), rng.integers(3, 30, size=n))[:n]
    place, level = rng.normal(size=(n, 4)), 0.7 * rng.normal(size=n)
    y = np.sin(place[:, 0]) + 0.5 * place[:, 1] * place[:, 2] + level
    return Rows(place[own] + 0.1 * rng.normal(size=(n, 4)), y[own] + 0.2 * rng.normal(size=n), own)


def _six_classes(n: int, rng: np.random.Generator) -> Rows:
    y = rng.choice(6, p=[0.4, 0.25, 0.15, 0.1, 0.07, 0.03], size=n)
    centres = 1.3 * np.random.default_rng(5).normal(size=(6, 4))
    return Rows(centres[y] + rng.normal(size=(n, 4)), y)


def _ring(n: int, rng: np.random.Generator) -> Rows:
    X = rng.normal(size=(n, 3))
    return Rows(X, (rng.random(n) < 1 / (1 + np.exp(11 - 3 * np.linalg.norm(X, axis=1)))).astype(int))


def _lopsided(n: int, rng: np.random.Generator) -> Rows:
    """Return correlated columns, and errors that are never negative and grow."""
    X = rng.normal(size=(n, 10)) @ np.random.default_rng(7).normal(size=(10, 10)) / 3
    return Rows(X, X[:, 0] * X[:, 1] + np.tanh(3 * X[:, 2]) + rng.exponential(0.2 + 0.5 * np.abs(X[:, 3])))


def _outliers(n: int, rng: np.random.Generator) -> Rows:
    X = rng.uniform(size=(n, 2))
    error = rng.normal(size=n) * np.where(rng.random(n) < 0.05, 3.0, 0.15)
    return Rows(X, np.cos(6 * X[:, 0]) + 2 * (X[:, 1] > 0.5) + error)


def _households(n: int, rng: np.random.Generator) -> Rows:
    """Return groups of any size, many of one row; the size of errors differs by group."""
    own = np.repeat(np.arange(n), rng.geometric(0.35, size=n))[:n]
    level, size = rng.normal(size=n), rng.gamma(2.0, 0.3, size=n)
    X = rng.normal(size=(n, 5)) + 0.7 * rng.normal(size=(n, 5))[own]
    return Rows(X, X[:, 0] - np.abs(X[:, 1]) + 0.5 * level[own] + size[own] * rng.normal(size=n), own)


def _rare_classes(n: int, rng: np.random.Generator) -> Rows:
    y = rng.choice(5, p=[0.9, 0.05, 0.03, 0.01, 0.01], size=n)
    centres = 2 * np.random.default_rng(9).normal(size=(5, 5))
    return Rows(centres[y] + rng.normal(size=(n, 5)) * (1 + 0.3 * y[:, None]), y)


def _table(name: str) -> Callable[[int, np.random.Generator], Rows]:
    read = cache(partial(nystrom.datasets.load, name))

    def draw(n: int, rng: np.random.Generator) -> Rows:
        X, y = read()
        deviations = X.std(axis=0)
        rows = rng.permutation(len(X))[:n]
        return Rows(X[rows] / np.where(deviations > 0, deviations, 1.0), y[rows])

    return draw


def _ridge(**given: Any) -> Callable[[], Any]:
    return lambda: nystrom.KernelRidge(**({"alpha": "auto", "n_landmarks": 200, "random_state": 0} | given))


CASES = {
    "even errors": Case(500, EVEN, _ridge()),
    "two sizes of errors": Case(1000, UNEVEN, _ridge()),
    "errors that grow": Case(1000, SMOOTH, _ridge()),
    "heavy tails": Case(500, HEAVY, _ridge()),
    "groups of ten": Case(1000, _grouped, _ridge(alpha=0.1)),
    "few rows": Case(60, EVEN, _ridge()),
    "many rows": Case(20_000, UNEVEN, _ridge()),
    "support vectors": Case(1000, UNEVEN, lambda: nystrom.KernelSVR(C=10.0, n_landmarks=200, random_state=0)),
    "three classes": Case(
        1000, _classes(0, 0, 1), lambda: nystrom.KernelRidgeClassifier(n_landmarks=200, random_state=0)
    ),
    "1 % minority": Case(3000, _classes(0, -6.5), lambda: nystrom.KernelSVC(C=1.0, n_landmarks=200, random_state=0)),
    "errors that grow, six columns": Case(600, _steep, _ridge()),
    "few rows at large values": Case(500, _skewed, _ridge()),
    "counts, duplicated rows": Case(800, _counts, _ridge()),
    "groups of 3 to 29": Case(1200, _subjects, _ridge()),
    "six classes": Case(900, _six_classes, lambda: nystrom.KernelSVC(n_landmarks=200, random_state=0)),
    "classes in a ring": Case(3000, _ring, lambda: nystrom.KernelLogisticRegression(n_landmarks=200, random_state=0)),
    "lopsided errors, ten columns": Case(800, _lopsided, _ridge(kernel="laplacian")),
    "outliers": Case(400, _outliers, _ridge(gamma=8.0)),
    "outliers, Gaussian process": Case(
        400, _outliers, lambda: nystrom.GaussianProcessRegressor(gamma=8.0, n_landmarks=200, random_state=0)
    ),
    "groups of 1 to 15": Case(900, _households, _ridge()),
    "groups of 1 to 15, support vectors": Case(
        900, _households, lambda: nystrom.KernelSVR(n_landmarks=200, random_state=0)
    ),
    "five classes, two of 1 %": Case(
        2000, _rare_classes, lambda: nystrom.KernelRidgeClassifier(n_landmarks=200, random_state=0)
    ),
    "five classes, balanced": Case(
        2000, _rare_classes, lambda: nystrom.KernelSVC(class_weight="balanced", n_landmarks=200, random_state=0)
    ),
    "conjugate gradients": Case(3000, _lopsided, _ridge(solver="cg", n_landmarks=300)),
    "cpusmall": Case(2000, _table("cpusmall"), _ridge()),
    "satimage": Case(
        1500, _table("satimage"), lambda: nystrom.KernelLogisticRegression(n_landmarks=200, random_state=0)
    ),
}


class Split(NamedTuple):
    """The coverage, the mean width (classes per set), the seconds of the fit and the additional seconds."""

    covered: float
    width: float
    fit: float
    seconds: float


def split(case: Case, seed: int, new: int = NEW) -> tuple[Split, Rows, Rows]:
    """Return the results of the 90 % intervals or sets on new rows, and the training and new rows."""
    found = case.rows(case.n + new, np.random.default_rng(seed))
    X, y, groups = found.X, found.y, found.groups
    old = Rows(X[: case.n], y[: case.n], None if groups is None else groups[: case.n])
    ahead = Rows(X[case.n :], y[case.n :])
    model, fit = _timed(lambda: case.machine().fit(old.X, old.y, groups=old.groups))
    ask = model.predict_set if hasattr(model, "classes_") else model.predict_interval
    found_ends, seconds = _timed(lambda: ask(ahead.X, coverage=0.9))
    return Split(*_judge(found_ends, ahead.y, np.unique(old.y)), fit, seconds), old, ahead


def _judge(found: Array, truth: Array, classes: Array) -> tuple[float, float]:
    """Return the share of rows whose target is in its interval or set, and the mean width or size."""
    if found.dtype == bool:
        return float(np.mean((found & (classes == truth[:, None])).any(axis=1))), float(found.sum(axis=1).mean())
    low, high = found.T
    return float(np.mean((low <= truth) & (truth <= high))), float(np.mean(high - low))


def _peer(case: Case, old: Rows, new: Rows) -> Split:
    """Return the same results for MAPIE's CV+ with the same machine."""
    from mapie.classification import CrossConformalClassifier
    from mapie.regression import CrossConformalRegressor
    from sklearn.model_selection import GroupKFold

    machine = case.machine()
    parts: Any = 5 if old.groups is None else GroupKFold(5)

    def run() -> Array:
        common = {"estimator": machine, "confidence_level": 0.9, "cv": parts}
        if hasattr(machine, "predict_set"):
            around = CrossConformalClassifier(conformity_score="lac", **common)
            around.fit_conformalize(old.X, old.y, groups=old.groups)
            return np.asarray(around.predict_set(new.X)[1])[:, :, 0]
        around = CrossConformalRegressor(method="plus", **common)
        around.fit_conformalize(old.X, old.y, groups=old.groups)
        return np.asarray(around.predict_interval(new.X)[1])[:, :, 0]

    found, seconds = _timed(run)
    return Split(*_judge(found, new.y, np.unique(old.y)), 0.0, seconds)


def _timed(act: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    found = act()
    return found, time.process_time() - start


def _line(name: str, case: Case, splits: int) -> Record:
    ours, pairs = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(splits):
            found, old, new = split(case, seed)
            ours.append(found.covered)
            if seed < PEER_SPLITS:
                pairs.append((found, _peer(case, old, new)))
    width = sum(a.width for a, _ in pairs) / sum(b.width for _, b in pairs)
    seconds = sum(a.seconds for a, _ in pairs) / sum(b.seconds - a.fit for a, b in pairs)
    return {
        "rows": name,
        "n": case.n,
        "splits": splits,
        "covered": f"{np.mean(ours):.1%}",
        "splits' deviation": f"{np.std(ours):.1%}",
        "CV+ covered": f"{np.mean([b.covered for _, b in pairs]):.1%}",
        "width ÷ CV+": round(width, 2),
        "time ÷ CV+": round(seconds, 3),
    }


def main(splits: int, output: Path) -> list[Record]:
    """Print a line per case, write all of them to a file, and return them."""
    lines: list[Record] = []
    for name, case in CASES.items():
        if name in ("cpusmall", "satimage") and not is_available(name):
            continue
        lines.append(_line(name, case, splits))
        if len(lines) == 1:
            print("| " + " | ".join(lines[0]) + " |\n" + "|---" * len(lines[0]) + "|")
        print("| " + " | ".join(map(str, lines[-1].values())) + " |", flush=True)
    (output / "intervals.json").write_text(json.dumps(lines, indent=1, ensure_ascii=False) + "\n")
    return lines
