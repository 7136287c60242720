"""How often the interval of the Frobenius error contains it: ``python -m benchmarks.coverage [--fits N] [--rows N]``.

Eight kinds of rows, drawn again for every fit; one interval at default settings per fit, against the exact error.
With ``--cost``, compare the processor time of a call with that of its fit instead.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from nystrom import Nystroem
from nystrom.types import Array, Matrix


class Case(NamedTuple):
    """A function from n to rows, and the parameters of the fit."""

    rows: Callable[[int, np.random.Generator], Matrix]
    params: dict[str, Any]


def _pairs(n: int, rng: np.random.Generator) -> Array:
    half = rng.normal(size=(n // 2, 8))
    return np.concatenate([half, half + 0.01 * rng.normal(size=half.shape)])


def _clusters(n: int, rng: np.random.Generator) -> Array:
    return rng.normal(size=(30, 20))[rng.integers(30, size=n)] * 3 + rng.normal(size=(n, 20))


def _text(n: int, rng: np.random.Generator) -> Matrix:
    """Return rows of 40 words drawn by Zipf's law out of 3,000, weighted by rarity, of length 1."""
    share = 1 / np.arange(1, 3001)
    words = rng.choice(3000, size=40 * n, p=share / share.sum())
    counts = sp.csr_matrix((np.ones(40 * n), (np.repeat(np.arange(n), 40), words)), shape=(n, 3000))
    counts.sum_duplicates()
    rarity = np.log(n / (1 + np.asarray((counts > 0).sum(axis=0)).ravel()))
    weighted = counts @ sp.diags(rarity)
    norms = np.sqrt(np.asarray(weighted.multiply(weighted).sum(axis=1)).ravel())
    return (sp.diags(1 / norms) @ weighted).tocsr()


CASES = {
    "narrow": Case(lambda n, rng: rng.normal(size=(n, 5)), {"gamma": 20.0}),
    "wide": Case(lambda n, rng: rng.normal(size=(n, 10)), {}),
    "heavy tails": Case(lambda n, rng: rng.standard_t(1.5, size=(n, 6)), {"gamma": 0.1}),
    "near-duplicates": Case(_pairs, {"gamma": 1.0}),
    "clusters": Case(_clusters, {}),
    "sparse text": Case(_text, {}),
    "polynomial": Case(
        lambda n, rng: rng.normal(size=(n, 6)) * np.exp(0.5 * rng.normal(size=(n, 1))), {"kernel": "polynomial"}
    ),
    "laplacian": Case(lambda n, rng: rng.normal(size=(n, 4)), {"kernel": "laplacian"}),
}


def cost() -> None:
    """Print the processor time of a fit with 100 landmarks and of its error, dense and sparse."""
    rng = np.random.default_rng(0)
    print("| rows | fit, s | error, s | error ÷ fit |\n|---|---|---|---|")
    for n, p in ((60_000, 784), (3600, 400)):
        few = rng.normal(size=(n, 20)) @ rng.normal(size=(20, p)) + 0.3 * rng.normal(size=(n, p))
        for kind, X in (
            ("float32", few.astype(np.float32)),
            ("float64", few),
            ("sparse, a tenth", sp.random(n, p, 0.1, format="csr", random_state=0)),
        ):
            features = Nystroem(n_landmarks=100, n_components=50, random_state=0)
            fit, error = (
                min(_seconds(act, X) for _ in range(3)) for act in (features.fit, features.approximation_error)
            )
            print(f"| {n:,} × {p}, {kind} | {fit:.3f} | {error:.3f} | {error / fit:.2f} |", flush=True)


def _seconds(act: Callable[[Matrix], Any], X: Matrix) -> float:
    start = time.process_time()
    act(X)
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fits", type=int, default=50, help="fits per case")
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--components", type=int, default=40)
    parser.add_argument("--case", choices=sorted(CASES), nargs="*", default=list(CASES))
    parser.add_argument("--cost", action="store_true", help="the time of a call, not its intervals")
    given = parser.parse_args()
    if given.cost:
        cost()
        return
    print(f"{given.fits} fits per case, {given.rows} rows, {given.components} components\n")
    print("| rows | error | held | half-width | seconds | fit |\n|---|---|---|---|---|---|")
    for name in given.case:
        held, errors, widths, seconds, fits = 0, [], [], [], []
        for seed in range(given.fits):
            X = CASES[name].rows(given.rows, np.random.default_rng(seed))
            features = Nystroem(n_components=given.components, random_state=seed, **CASES[name].params)
            start = time.perf_counter()
            features.fit(X)
            middle = time.perf_counter()
            found = features.approximation_error(X, random_state=seed)
            seconds.append(time.perf_counter() - middle)
            fits.append(middle - start)
            true = features.approximation_error(X, exact=True).value
            held += found.low <= true <= found.high
            errors.append(true)
            widths.append((found.high - found.low) / 2 / true)
        print(
            f"| {name} | {np.mean(errors):.4f} | {held} of {given.fits} | {np.mean(widths):.2%} "
            f"| {np.median(seconds):.3f} | {np.median(fits):.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
