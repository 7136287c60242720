"""The table behind "auto": errors of the selectors on dense, sparse, heavy-tailed and low-dimensional rows.

    python -m benchmarks.landmarks [case …] [--seeds N] [--held-back]

Real sets are read from ``NYSTROM_DATA``; missing ones are skipped. Errors are exact, against the whole kernel matrix of
at most 4,000 rows: the relative Frobenius error of the best rank-r approximation in the span of the landmarks.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

from nystrom.datasets import DataUnavailableError, load
from nystrom.engine import LocalEngine
from nystrom.engine.passes import Passes
from nystrom.kernels import Gaussian, Kernel, Linear, Polynomial
from nystrom.landmarks import SELECTORS
from nystrom.nystroem.factor import optimal
from nystrom.rows import as_blocks

CONTESTANTS = ["uniform", "kmeans", "rpcholesky", "rpcholesky+lloyd", "sketched-kmeans", "auto"]
MOST_ROWS = 4000


@dataclass(frozen=True)
class Case:
    """Rows, a kernel, and the numbers of landmarks and directions."""

    name: str
    rows: Callable[[], Any]
    kernel: Callable[[Any], Kernel]
    n_landmarks: int
    rank: int


def real(name: str) -> Callable[[], Any]:
    def rows() -> Any:
        X, _ = load(name, dtype=np.float32, download=False)
        keep = np.random.default_rng(1).permutation(X.shape[0])[:MOST_ROWS]
        return X[np.sort(keep)]

    return rows


def heavy_tailed() -> np.ndarray:
    """Student's t with 1.5 degrees of freedom: no variance."""
    return np.random.default_rng(5).standard_t(1.5, size=(MOST_ROWS, 20)).astype(np.float32)


def rare_clusters() -> np.ndarray:
    """A round cloud and 40 tight clusters of 8 rows far from it."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(MOST_ROWS, 30))
    X[:320] = np.repeat(4 * rng.normal(size=(40, 30)), 8, axis=0) + 0.3 * rng.normal(size=(320, 30))
    return X.astype(np.float32)


def outliers() -> np.ndarray:
    """A round cloud with 60 outliers, scaled by factors around 20."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(MOST_ROWS, 30))
    X[:60] *= rng.lognormal(3, 1, size=(60, 1))
    return X.astype(np.float32)


def rings() -> np.ndarray:
    """Four thin circles in the plane."""
    rng = np.random.default_rng(8)
    angle, radius = 2 * np.pi * rng.random(MOST_ROWS), rng.integers(1, 5, MOST_ROWS)
    X = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    return (X + 0.05 * rng.normal(size=X.shape)).astype(np.float32)


def scale_mixture() -> np.ndarray:
    """Normal rows, each times its own lognormal factor."""
    rng = np.random.default_rng(21)
    return (rng.normal(size=(MOST_ROWS, 15)) * rng.lognormal(0, 1, size=(MOST_ROWS, 1))).astype(np.float32)


def contaminated() -> np.ndarray:
    """Correlated normal rows, one in a hundred of them drawn evenly from a wide box instead."""
    rng = np.random.default_rng(22)
    X = rng.normal(size=(MOST_ROWS, 12)) @ rng.normal(size=(12, 12))
    X[:40] = rng.uniform(-60, 60, size=(40, 12))
    return X.astype(np.float32)


def uneven_clusters() -> np.ndarray:
    """80 clusters whose sizes fall as the power −1.5 of their rank, of different widths."""
    rng = np.random.default_rng(23)
    share = np.arange(1, 81) ** -1.5
    label = rng.choice(80, size=MOST_ROWS, p=share / share.sum())
    width = rng.uniform(0.2, 1.5, size=80)
    return (3 * rng.normal(size=(80, 25))[label] + width[label, None] * rng.normal(size=(MOST_ROWS, 25))).astype("f4")


def far_group() -> np.ndarray:
    """A round cloud, and 200 rows in one tight group far away."""
    rng = np.random.default_rng(24)
    X = rng.normal(size=(MOST_ROWS, 10))
    X[:200] = 30 + 0.2 * X[:200]
    return X.astype(np.float32)


def roll() -> np.ndarray:
    """A rolled-up sheet in space."""
    rng = np.random.default_rng(25)
    angle = rng.uniform(4, 14, size=MOST_ROWS)
    sheet = [angle * np.cos(angle), angle * np.sin(angle), rng.uniform(0, 20, size=MOST_ROWS)]
    return np.column_stack(sheet).astype(np.float32)


def two_widths() -> np.ndarray:
    """Two round clouds about one point, one five times as wide as the other."""
    rng = np.random.default_rng(31)
    return (rng.normal(size=(MOST_ROWS, 10)) * rng.choice([1.0, 5.0], size=(MOST_ROWS, 1))).astype(np.float32)


def tight_and_loose() -> np.ndarray:
    """Ten tight groups and ten loose ones with equal numbers of rows."""
    rng = np.random.default_rng(36)
    label = rng.integers(20, size=MOST_ROWS)
    centres, width = 2 * rng.normal(size=(20, 15)), np.repeat([0.3, 3.0], 10)
    return (centres[label] + width[label, None] * rng.normal(size=(MOST_ROWS, 15))).astype(np.float32)


def lognormal_columns() -> np.ndarray:
    """Lognormal columns with different spreads."""
    rng = np.random.default_rng(32)
    return np.exp(rng.normal(size=(MOST_ROWS, 8)) * rng.uniform(0.5, 1.5, size=8)).astype(np.float32)


def ragged_clusters() -> np.ndarray:
    """15 clusters with tails of Student's t with 2 degrees of freedom."""
    rng = np.random.default_rng(33)
    centres = 4 * rng.normal(size=(15, 20))
    return (centres[rng.integers(15, size=MOST_ROWS)] + rng.standard_t(2, size=(MOST_ROWS, 20))).astype(np.float32)


def counts() -> np.ndarray:
    """Counts whose mean is a product of gamma variables, one per row and one per column."""
    rng = np.random.default_rng(34)
    mean = rng.gamma(0.7, 3.0, size=(MOST_ROWS, 1)) * rng.gamma(1.0, 1.0, size=40)
    return rng.poisson(mean).astype(np.float32)


def noisy_spiral() -> np.ndarray:
    """A thin spiral in the plane, and 5 % of the rows uniform in a box ten times as wide."""
    rng = np.random.default_rng(35)
    angle = 3 * np.pi * np.sqrt(rng.random(MOST_ROWS))
    X = np.column_stack([angle * np.cos(angle), angle * np.sin(angle)]) + 0.1 * rng.normal(size=(MOST_ROWS, 2))
    X[: MOST_ROWS // 20] = rng.uniform(-100, 100, size=(MOST_ROWS // 20, 2))
    return X.astype(np.float32)


def diabetes() -> np.ndarray:
    return load_diabetes(return_X_y=True)[0].astype(np.float32)


def digits() -> np.ndarray:
    return load_digits(return_X_y=True)[0].astype(np.float32)


def tumours() -> np.ndarray:
    X = load_breast_cancer(return_X_y=True)[0]
    return ((X - X.mean(axis=0)) / X.std(axis=0)).astype(np.float32)


def scale(X: Any) -> Kernel:
    return Gaussian()


def median(X: Any) -> Kernel:
    """The Gaussian kernel with a bandwidth that is robust to outliers."""
    return Gaussian(float(1 / np.median(np.square(X - np.median(X, axis=0)).sum(axis=1))))


CASES = [
    Case("mnist", real("mnist"), scale, 100, 20),
    Case("dna", real("dna"), scale, 50, 10),
    Case("protein-mix", real("protein-mix"), scale, 100, 50),
    Case("satimage", real("satimage"), scale, 60, 30),
    Case("cpusmall", real("cpusmall"), scale, 100, 50),
    Case("rfc-tfidf (sparse)", real("rfc-tfidf"), scale, 100, 50),
    Case("rfc-tfidf, linear", real("rfc-tfidf"), lambda X: Linear(), 100, 50),
    Case("mnist, degree 2", real("mnist"), lambda X: Polynomial(2, gamma=1e-6), 100, 50),
    Case("heavy-tailed", heavy_tailed, scale, 100, 50),
    Case("heavy-tailed, median", heavy_tailed, median, 100, 100),
    Case("rare clusters, median", rare_clusters, median, 100, 100),
    Case("outliers", outliers, scale, 100, 50),
    Case("outliers, median", outliers, median, 100, 100),
    Case("rings, narrow", rings, lambda X: Gaussian(4.0), 150, 150),
    Case("scale mixture", scale_mixture, scale, 100, 50),
    Case("scale mixture, median", scale_mixture, median, 100, 100),
    Case("contaminated", contaminated, scale, 100, 50),
    Case("contaminated, median", contaminated, median, 100, 100),
    Case("uneven clusters, median", uneven_clusters, median, 100, 100),
    Case("far group, median", far_group, median, 100, 100),
    Case("rolled sheet, narrow", roll, lambda X: Gaussian(0.1), 150, 150),
    Case("digits", digits, scale, 100, 50),
    Case("tumours", tumours, scale, 60, 60),
    Case("two widths", two_widths, scale, 100, 50),
    Case("two widths, median", two_widths, median, 100, 100),
]
# No rule was tuned on these.
HELD_BACK = [
    Case("tight and loose groups", tight_and_loose, scale, 100, 50),
    Case("tight and loose groups, median", tight_and_loose, median, 100, 100),
    Case("lognormal columns", lognormal_columns, scale, 100, 50),
    Case("lognormal columns, median", lognormal_columns, median, 100, 100),
    Case("ragged clusters", ragged_clusters, scale, 100, 50),
    Case("ragged clusters, median", ragged_clusters, median, 100, 100),
    Case("counts, median", counts, median, 100, 100),
    Case("noisy spiral, narrow", noisy_spiral, lambda X: Gaussian(0.5), 150, 150),
    Case("diabetes", diabetes, scale, 40, 40),
]


def errors(case: Case, n_seeds: int) -> Iterator[float]:
    """Yield the mean error of each contestant."""
    X = case.rows()
    kernel = case.kernel(X)
    if kernel.needs_moments:
        kernel = kernel.resolve(Passes(as_blocks(X), LocalEngine()).moments)
    K = np.asarray(kernel(X, X), dtype=np.float64)
    norm = np.linalg.norm(K)
    for name in CONTESTANTS:
        found = []
        for seed in range(n_seeds):
            passes = Passes(as_blocks(X), LocalEngine())
            landmarks = SELECTORS[name]().select(passes, case.n_landmarks, kernel, np.random.default_rng(seed))
            L = np.asarray(optimal(passes, kernel, landmarks, case.rank).features(X), dtype=np.float64)
            found.append(np.linalg.norm(K - L @ L.T) / norm)
        yield float(np.mean(found))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", help="only cases whose name contains one of these")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--held-back", action="store_true", help="the sets that no rule was chosen by")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| rows | m, r |", " | ".join(CONTESTANTS), "|")
    print("|---|---|" + "---|" * len(CONTESTANTS))
    for case in HELD_BACK if arguments.held_back else CASES:
        if arguments.cases and not any(part in case.name for part in arguments.cases):
            continue
        try:
            line = [f"{error:.4f}" for error in errors(case, arguments.seeds)]
        except DataUnavailableError as error:
            print(f"<!-- {case.name}: {error} -->")
            continue
        print(f"| {case.name} | {case.n_landmarks}, {case.rank} |", " | ".join(line), "|", flush=True)


if __name__ == "__main__":
    main()
