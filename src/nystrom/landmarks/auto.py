"""The default: what the measurements say is best for the rows at hand."""

from __future__ import annotations

import numpy as np

from nystrom.engine.local import blas_threads
from nystrom.kernels import Kernel, Precomputed
from nystrom.landmarks.base import Landmarks, Selector, sample_rows
from nystrom.landmarks.clustered import cluster_centers, cluster_means
from nystrom.landmarks.pivoted import RPCholesky
from nystrom.rows.arrays import ArrayRows
from nystrom.rows.base import Array, Matrix
from nystrom.sketch import PCASketch, Sketch
from nystrom.survey import Survey

_SKETCH_DIM = 20
_SAMPLE_ROWS = 10_000
_SAMPLE_ROWS_PER_LANDMARK = 64


class Auto(Selector):
    """Cluster a sampled-PCA sketch of a sample of rows, then take the means over all rows in one pass.

    A precomputed kernel has no coordinates, and goes to :class:`RPCholesky`.

    Parameters
    ----------
    n_iter : int
        Lloyd steps.
    """

    def __init__(self, n_iter: int = 10) -> None:
        self.n_iter = n_iter

    def _select(self, survey: Survey, m: int, kernel: Kernel, rng: np.random.Generator) -> Landmarks:
        if isinstance(kernel, Precomputed):
            return RPCholesky().select(survey, m, kernel, rng)
        size = max(_SAMPLE_ROWS, _SAMPLE_ROWS_PER_LANDMARK * m)
        sample = sample_rows(survey, size, rng)
        with blas_threads(1):
            sketch = fit_sketch(sample, rng)
            sketched = ArrayRows(sketch(sample))
        centers = cluster_centers(sketched, m, survey.engine, rng, self.n_iter, init="kmeans++")
        return Landmarks(cluster_means(survey, sketch, centers), None)


class _Dense:
    """The sketch that keeps every column, for rows that have few."""

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def __call__(self, X: Matrix) -> Array:
        return np.asarray(X.toarray() if hasattr(X, "toarray") else X)


def fit_sketch(sample: Matrix, rng: np.random.Generator) -> Sketch:
    """Return a sketch of 20 principal directions, or of all columns where there are no more."""
    size, p = sample.shape
    if p <= _SKETCH_DIM:
        return _Dense(p)
    recipe = PCASketch()
    # The sample is in the order of the source, which may be sorted: take rows from all over it.
    spread = sample[:: max(1, size // recipe.max_rows)]
    return recipe.fit(p, _SKETCH_DIM, rng, sample=spread)
