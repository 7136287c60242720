"""Whether rare rows are lost: ``python -m benchmarks.rare [--rows N] [--seeds N] [--first N]``.

30 clusters of 40 rows hidden among 100,000, in 5, 10 and 20 columns, and 50 outliers; "auto" with every direction kept,
and with the default rank. A row is lost if its residual is above 0.9; "reported" is the count in the
certificate, and whether the fit warned.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np

from nystrom import Nystroem
from nystrom.exceptions import ApproximationWarning
from nystrom.types import Array

CLUSTERS, SIZE, OUTLIERS = 30, 40, 50


def hidden_clusters(n: int, p: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return n rows and the numbers of those in small clusters, about three times as far out as the others."""
    X = rng.normal(size=(n, p))
    centres = rng.normal(size=(CLUSTERS, p))
    centres *= 3 * np.sqrt(p) * rng.uniform(0.8, 2, size=(CLUSTERS, 1)) / np.linalg.norm(centres, axis=1, keepdims=True)
    rare = rng.choice(n, CLUSTERS * SIZE, replace=False)
    X[rare] = np.repeat(centres, SIZE, axis=0) + 0.2 * rng.normal(size=(len(rare), p))
    return X, rare


def outliers(n: int, p: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return n rows and the numbers of those that are far from all others."""
    X = rng.normal(size=(n, p))
    rare = rng.choice(n, OUTLIERS, replace=False)
    X[rare] = 30 * rng.normal(size=(OUTLIERS, p))
    return X, rare


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    given = parser.parse_args()
    print("| rows | columns | seed | m | rank | rare rows lost | of all rows | reported | warned |")
    print("|---|---|---|---|---|---|---|---|---|")
    for make in (hidden_clusters, outliers):
        for p in (5, 10, 20):
            for seed in range(given.first, given.first + given.seeds):
                X, rare = make(given.rows, p, np.random.default_rng([p, seed]))
                for m, rank in ((100, None), (200, None), (200, 100)):
                    features = Nystroem(gamma=0.5 / p, n_components=rank, n_landmarks=m, random_state=seed)
                    with warnings.catch_warnings(record=True) as caught:
                        warnings.simplefilter("always")
                        features.fit(X)
                    residual = np.asarray(features.residual(X))
                    lost = residual > 0.9
                    warned = sum(issubclass(w.category, ApproximationWarning) for w in caught)
                    reported = "; ".join(features.certificate_.rare)
                    print(
                        f"| {make.__name__.replace('_', ' ')} | {p} | {seed} | {m} | {rank or 'all'} "
                        f"| {lost[rare].sum()} of {len(rare)} | {lost.sum()} | {reported} | {warned} |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
