"""Codes of categories against columns of 0 and 1: ``python -m benchmarks.mixed [--rows N] [--seeds N]``.

Four synthetic tables with numbers and categories, split in halves. "one-hot" is the Gaussian kernel of
TableEncoder's columns; "codes" is the same kernel as a product of Gaussian and Overlap, of one column per category
column. Scores are R² or accuracy on the second half; times are processor time of encoding, fit and score.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from nystrom import KernelRidge, KernelRidgeClassifier
from nystrom.kernels import Gaussian, Overlap
from nystrom.preprocessing import TableEncoder
from nystrom.types import Array

Table = tuple[pd.DataFrame, Array]


def _codes(n: int, count: int, rng: np.random.Generator) -> Array:
    """Return categories with frequencies that decay like those of words."""
    shares = 1 / np.arange(1, count + 1)
    return rng.choice(count, n, p=shares / shares.sum())


def _words(codes: Array, stem: str) -> Array:
    return np.array([f"{stem}{code}" for code in codes], dtype=object)


def incomes(n: int, rng: np.random.Generator) -> Table:
    """Whether an income is high: age, hours, education, work, occupation, family, country; as in census tables."""
    age, hours = rng.uniform(18, 80, n), rng.normal(40, 10, n)
    kinds = {"education": 16, "work": 8, "occupation": 14, "family": 6, "country": 40}
    codes = {name: _codes(n, count, rng) for name, count in kinds.items()}
    effect = sum(rng.normal(size=count)[codes[name]] for name, count in kinds.items())
    score = effect - 0.002 * (age - 50) ** 2 + 0.05 * (hours - 40) + rng.logistic(size=n)
    words = {name: _words(code, name) for name, code in codes.items()}
    return pd.DataFrame({"age": age, "hours": hours, **words}), score > np.median(score)


def flights(n: int, rng: np.random.Generator) -> Table:
    """Delays: hour, day, distance, airline, origin and destination of 150 airports each."""
    hour, distance = rng.uniform(5, 23, n), rng.gamma(2, 500, n)
    airline, origin, to = _codes(n, 12, rng), _codes(n, 150, rng), _codes(n, 150, rng)
    delay = 2 * rng.normal(size=12)[airline] + 3 * rng.normal(size=150)[origin] * (hour > 15) + rng.normal(size=150)[to]
    y = delay + 0.3 * (hour - 5) + 2 * rng.normal(size=n)
    words = {"airline": _words(airline, "A"), "origin": _words(origin, "O"), "to": _words(to, "D")}
    return pd.DataFrame({"hour": hour, "distance": distance, **words}), y


def houses(n: int, rng: np.random.Generator) -> Table:
    """Prices: area, rooms, age, quarter of 30, kind of 5."""
    area, age, quarter, kind = rng.gamma(6, 15, n), rng.uniform(0, 100, n), _codes(n, 30, rng), _codes(n, 5, rng)
    price = np.log(area) * (1 + 0.3 * rng.normal(size=30)[quarter]) + np.sin(age / 15) * rng.normal(size=5)[kind]
    words = {"quarter": _words(quarter, "Q"), "kind": _words(kind, "K")}
    return pd.DataFrame({"area": area, "age": age, **words}), price + 0.2 * rng.normal(size=n)


def patients(n: int, rng: np.random.Generator) -> Table:
    """A diagnosis from ten columns of five categories each, two of which interact."""
    codes = rng.integers(0, 5, (n, 10))
    both = rng.normal(size=(5, 5))[codes[:, 0], codes[:, 1]] + rng.normal(size=5)[codes[:, 2]]
    table = {f"c{j}": _words(codes[:, j], "v") for j in range(10)}
    return pd.DataFrame(table), both + 0.5 * rng.normal(size=n) > 0


def machine(y: Array, kernel: Any, gamma: Any) -> Any:
    kind = KernelRidgeClassifier if y.dtype == bool else KernelRidge
    return kind(kernel=kernel, gamma=gamma, n_landmarks=1000, fit_intercept=True, random_state=0)


def run(table: pd.DataFrame, y: Array, codes: bool) -> tuple[float, int, float]:
    """Return the score, the number of columns and the seconds of one encoding."""
    began, half = time.process_time(), len(y) // 2
    encoder = TableEncoder(categories="codes" if codes else "one-hot").fit(table[:half])
    rows, gamma = encoder.transform(table[:half]), 1 / table.shape[1]
    kernel: Any = "gaussian"
    if codes:
        names = [name for name in table if not pd.api.types.is_numeric_dtype(table[name])]
        numbers = [name for name in table if name not in names]
        kernel = Overlap(2 * gamma).on(names)
        kernel = Gaussian(gamma).on(numbers) * kernel if numbers else kernel
    model = machine(y, kernel, gamma).fit(rows, y[:half])
    score = model.score(encoder.transform(table[half:]), y[half:])
    return score, rows.shape[1], time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| table | one-hot | columns | seconds | codes | columns | seconds |")
    print("|---|---|---|---|---|---|---|")
    makers: tuple[Callable[[int, np.random.Generator], Table], ...] = (incomes, flights, houses, patients)
    for make in makers:
        found = []
        for seed in range(given.seeds):
            table, y = make(given.rows, np.random.default_rng(seed))
            found.append([*run(table, y, codes=False), *run(table, y, codes=True)])
        hot, wide, slow, coded, narrow, quick = np.mean(found, axis=0)
        print(
            f"| {make.__name__} | {hot:.4f} | {wide:.0f} | {slow:.1f} | {coded:.4f} | {narrow:.0f} | {quick:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
