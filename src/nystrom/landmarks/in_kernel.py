"""Rows as landmarks where they have no means: clusters by what the kernel sees of a sample."""

from __future__ import annotations

import numpy as np

from nystrom.engine.passes import Passes
from nystrom.kernels import Kernel
from nystrom.kernels.base import near_one
from nystrom.kmeans.lloyd import kmeans
from nystrom.landmarks.base import Landmarks, evaluator, resolve, smaller_form
from nystrom.linalg import whiten
from nystrom.rows.base import array_rows, require_finite
from nystrom.rows.draw import draw_rows, gather, row_weights
from nystrom.types import Array, Matrix

# Rows whose span the sample is seen in, and how many directions of it k-means gets.
_SPANNING_ROWS = 256
_DIRECTIONS = 64


# Twice the rows and one more step took 1 % off the error on mnist, and as much time as a tenth of the fit.
_SAMPLE_ROWS = 4096
_SAMPLE_ROWS_PER_LANDMARK = 32
# Clustering takes O(rows · m) time. With thousands of landmarks fewer rows for each keep it below the fit's own cost.
_MANY_SAMPLE_ROWS = 2**16
_FEW_ROWS_PER_LANDMARK = 8


def sample_size(m: int) -> int:
    """Return the number of rows that are clustered for m landmarks."""
    enough = min(_SAMPLE_ROWS_PER_LANDMARK * m, _MANY_SAMPLE_ROWS)
    return max(_SAMPLE_ROWS, enough, _FEW_ROWS_PER_LANDMARK * m)


def has_means(passes: Passes, kernel: Kernel) -> bool:
    """Return whether every column of the rows has a mean that can be a landmark's."""
    return bool(kernel.mean_columns(passes.rows.n_columns).all())


def clusters_in_kernel(passes: Passes, m: int, kernel: Kernel, rng: np.random.Generator, n_iter: int) -> Landmarks:
    """Return, for each of m clusters of some rows, the row nearest to its centre.

    K-means runs on features of the rows drawn: their leading directions in the span of 256 of them. Cost: O(size · m)
    time per step for ``size`` rows drawn, whatever the number of all, and ``size`` × 256 kernel values.
    """
    numbers, weight = draw_rows(passes.rows.shape[0], max(sample_size(m), m), row_weights(passes), rng)
    X = gather(passes, numbers)
    require_finite(X, passes.rows.name, numbers=numbers)
    features = _features(X, resolve(kernel, passes), rng)
    found = kmeans(array_rows(features), m, engine=passes.engine, rng=rng, n_iter=n_iter, announce=False, weight=weight)
    labels = np.asarray(found.labels)
    distances = np.square(features - np.asarray(found.centers)[labels]).sum(axis=1)
    # By cluster, and the nearest to the centre first.
    order = np.lexsort((distances, labels))
    _, first = np.unique(labels[order], return_index=True)
    chosen = order[first]
    return Landmarks(smaller_form(X[chosen]), numbers[chosen])


def _features(X: Matrix, kernel: Kernel, rng: np.random.Generator) -> Array:
    """Return the leading directions of rows in the span of some of them, float64."""
    n = X.shape[0]
    some = np.sort(rng.choice(n, min(_SPANNING_ROWS, n), replace=False))
    kernel, _ = near_one(kernel, kernel.diag(X), np.dtype(np.float64))
    evaluate = evaluator(kernel, X[some], some)
    values = np.asarray(evaluate(X), dtype=np.float64)
    features = values @ whiten(values[some], block_dtype=X.dtype).T
    _, directions = np.linalg.eigh(features.T @ features)
    return np.ascontiguousarray(features @ directions[:, ::-1][:, :_DIRECTIONS])
