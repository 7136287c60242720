"""The error that landmarks would have on all rows, from a sample of them whose kernel is held.

For the search of a size: the sample and its kernel are made once, and each size on trial costs O(s m (p + m) + s² m)
whatever the number of rows.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import scipy.stats

from nystrom.certificate.estimate import ErrorEstimate, ratio_of
from nystrom.certificate.pairs import TILE, kernel_with
from nystrom.certificate.spectral import largest_eigenvalue
from nystrom.engine.survey import Survey
from nystrom.factor import bind, landmark_kernel, prepare
from nystrom.kernels import Kernel
from nystrom.kmeans.lloyd import draw_rows
from nystrom.landmarks.base import Landmarks, gather
from nystrom.linalg import whiten
from nystrom.rows.arrays import array_rows
from nystrom.rows.base import require_finite
from nystrom.types import Array

# Rows of the sample: few where a fit is so cheap that pairs of many would take longer.
_TRIAL_ROWS = (1000, 2000)
# Above this error float32 is accurate enough, and its products take half the time.
_FLOAT32_TOLERANCE = 1e-3


def trial_size(n: int, n_columns: int) -> int:
    """Return the rows of the sample for n rows: with 200 landmarks their pairs then cost a fifth of a fit."""
    return int(np.clip(np.sqrt(0.2 * n * (n_columns + 200)), *_TRIAL_ROWS))


class Trial:
    """A uniform sample of the rows, and the kernel between its rows.

    Parameters
    ----------
    survey : Survey
        All rows.
    kernel : Kernel
        With numeric parameters.
    rng : numpy.random.Generator
        Draws the sample.
    least : float
        The least error that matters.
    """

    def __init__(self, survey: Survey, kernel: Kernel, rng: np.random.Generator, *, least: float = 0.0) -> None:
        rows = survey.rows
        size = trial_size(*rows.shape)
        self.n_rows = rows.shape[0]
        self.kernel = kernel
        self.numbers = draw_rows(self.n_rows, size, None, rng)[0]
        self.X = gather(survey, self.numbers)
        require_finite(self.X, rows.name, numbers=self.numbers)
        # The spectral norm's start, drawn now so that sizes on trial do not move the stream that selects landmarks.
        self._seed = int(rng.integers(2**32))
        between = kernel_with(self.X, self.numbers, kernel)
        sample = array_rows(self.X, block_rows=TILE)
        size = len(self.numbers)
        self.dtype = np.float32 if least >= _FLOAT32_TOLERANCE and size < self.n_rows else np.float64
        self.K = survey.engine.emit(sample, lambda b: between(b.X), size, self.dtype, label="kernel of a sample")

    def left(self, landmarks: Landmarks) -> Array:
        """Return ``K − L Lᵀ`` of the sample, with every direction that the landmarks span."""
        kernel = bind(self.kernel, landmarks)
        T = whiten(landmark_kernel(kernel, landmarks), block_dtype=self.X.dtype).T
        values = np.asarray(prepare(kernel, landmarks)(self.X), dtype=np.float64)
        features: Array = (values @ T).astype(self.dtype)
        return np.asarray(self.K - features @ features.T)

    def error(self, landmarks: Landmarks, norm: str, confidence: float) -> ErrorEstimate:
        """Return the relative error that these landmarks would have on all rows."""
        E = self.left(landmarks)
        if norm == "spectral":
            return self._spectral(E, confidence)
        if norm == "trace":
            none = np.zeros(len(E))
            return self._ratio((none, np.diag(E)), (none, np.diag(self.K)), norm, confidence)
        return self._ratio(_squares(E), self._kernel_squares, norm, confidence)

    @cached_property
    def _kernel_squares(self) -> tuple[Array, Array]:
        return _squares(self.K)

    def _ratio(
        self, error: tuple[Array, Array], kernel: tuple[Array, Array], norm: str, confidence: float
    ) -> ErrorEstimate:
        """Return the ratio of sums over all rows; each of both is given as row sums off the diagonal, and the diagonal.

        The diagonal counts n times and pairs n (n − 1) times, so they are scaled apart. The interval is the jackknife's
        on the rows of the sample, for a U-statistic.
        """
        s, n = len(self.K), self.n_rows
        pairs, alone = n * (n - 1) / max(s * (s - 1), 1), n / s
        top, bottom = (pairs * float(off.sum()) + alone * float(on.sum()) for off, on in (error, kernel))
        ratio = ratio_of(max(top, 0.0), bottom)
        influence = 2 * pairs * (error[0] - ratio * kernel[0]) + alone * (error[1] - ratio * kernel[1])
        # Of a sample that is most of the rows, the sum is mostly known.
        spread = float(np.std(influence)) * np.sqrt(s * max(1 - s / n, 0.0))
        half = float(scipy.stats.t.ppf(0.5 + confidence / 2, max(s - 1, 1))) * ratio_of(spread, bottom)
        if norm == "trace":
            return ErrorEstimate(ratio, max(ratio - half, 0.0), ratio + half, norm, confidence)
        value = float(np.sqrt(ratio))
        half = half / (2 * value) if value > 0 else 0.0
        return ErrorEstimate(value, max(value - half, 0.0), value + half, norm, confidence)

    def _spectral(self, E: Array, confidence: float) -> ErrorEstimate:
        """Return the sample's own ratio of norms. The diagonal weighs more in a sample, so this errs high."""
        rng = np.random.default_rng(self._seed)
        failure = (1 - confidence) / 2
        error = largest_eigenvalue(E.__matmul__, len(E), rng, failure)
        kernel = largest_eigenvalue(self.K.__matmul__, len(E), rng, failure)
        widened = 1 + (2 / np.sqrt(len(E)) if len(E) < self.n_rows else 0.0)
        low, high = ratio_of(error.low, kernel.high) / widened, ratio_of(error.high, kernel.low) * widened
        return ErrorEstimate(ratio_of(error.low, kernel.low), low, high, "spectral", confidence)


def _squares(A: Array) -> tuple[Array, Array]:
    """Return the row sums of squares off the diagonal, and the squares on it."""
    on = np.diag(A).astype(np.float64) ** 2
    return np.einsum("ij,ij->i", A, A).astype(np.float64) - on, on
