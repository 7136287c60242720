"""How good a fitted map is: its error, the best error there is, and the rows that it does not explain."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from sklearn.utils.validation import check_is_fitted

from nystrom.certificate import ErrorEstimate, measure_error
from nystrom.certificate.best import NORMS as BEST_NORMS
from nystrom.certificate.best import best_error
from nystrom.certificate.fit_warnings import lost_rows
from nystrom.certificate.frobenius import DEFAULT_PAIRS
from nystrom.checks import check_choice, check_optional_count
from nystrom.engine.survey import Survey
from nystrom.estimators.passes import PassMixin
from nystrom.factor import NystromMap, spanning_projection
from nystrom.generator import RandomState, make_generator
from nystrom.kernels import Kernel, Precomputed
from nystrom.kernels.custom import PrecomputedBeside
from nystrom.landmarks import make_selector
from nystrom.landmarks.base import gather
from nystrom.rows import Block, RowBlocks, require_finite
from nystrom.types import Array, Emitted, OutPath, RowsLike, TargetLike, to_dense


class QualityMixin(PassMixin):
    """Measures the map of a fitted machine on rows."""

    kernel_: Kernel
    landmark_indices_: Array | None
    n_components: int | None
    # Whether the map itself is cut to n_components, and not only what is made of it.
    _cuts_map = True

    def approximation_error(
        self,
        X: RowsLike,
        norm: str = "fro",
        *,
        exact: bool = False,
        n_pairs: int = DEFAULT_PAIRS,
        confidence: float = 0.95,
        random_state: RandomState = 0,
        diag: TargetLike = None,
    ) -> ErrorEstimate:
        """Return ``‖K − L Lᵀ‖ / ‖K‖`` for the rows X, without forming K.

        Parameters
        ----------
        X : rows
            Any rows; the training rows give the error of the fit.
        norm : {"fro", "trace", "spectral"}
            "trace" is exact. "fro" is exact up to 2,000 rows, and above that estimated from all pairs among a sample of
            rows. "spectral" is a bracket: narrow up to 10,000 rows, the Frobenius norm's inequalities above.
        exact : bool
            Whether to look at all pairs of rows, however many: O(n² p) time. "spectral" then is Lanczos' bracket,
            with all rows in memory.
        n_pairs : int
            Pairs of rows that are looked at; at least 100.
        confidence : float
            Probability that the interval holds the error.
        random_state : int, Generator, RandomState or None
            Seed of the sample.
        diag : array of shape (n,), optional
            With ``kernel="precomputed"`` and rows other than the training rows, their k(x, x), for ``norm="trace"``.

        Returns
        -------
        ErrorEstimate
            With ``value``, ``low`` and ``high``.
        """
        check_is_fitted(self)
        rows = self._check_X(X, reset=False)
        engine = self._emit_engine(rows, 1, np.float64, to_file=False)
        rng = make_generator(random_state)
        fitted = self._map_beside(rows, diag)
        if isinstance(fitted.kernel, PrecomputedBeside) and norm != "trace":
            raise ValueError(
                f"norm={norm!r} needs the kernel between all rows, and with kernel='precomputed' rows other than the "
                f"training rows hold it with these alone. Give the square kernel matrix of the training rows, or "
                f"norm='trace' and diag=<k(x, x) of each row>."
            )
        return measure_error(rows, fitted, engine, norm, exact=exact, n_pairs=n_pairs, confidence=confidence, rng=rng)

    def best_possible(
        self,
        X: RowsLike,
        n_components: int | None = None,
        *,
        norm: str = "fro",
        confidence: float = 0.95,
        random_state: RandomState = 0,
    ) -> ErrorEstimate:
        """Return the relative error of the exact best rank r for the rows X and this kernel; see the function.

        Parameters
        ----------
        X : rows
            Any rows.
        n_components : int or None
            r; None for that of the map that :meth:`approximation_error` measures. That of :class:`nystrom.KernelPCA`
            has every direction of the landmarks, of which its components are the leading ones.
        norm, confidence, random_state
            As in :func:`nystrom.best_possible`.

        Returns
        -------
        ErrorEstimate
            Exact up to 2,000 rows, with an interval above.
        """
        check_is_fitted(self)
        check_choice(norm, "norm", BEST_NORMS)
        rank = check_optional_count(n_components, "n_components") or self._known_map().n_components
        rows = self._check_X(X, reset=False)
        survey = Survey(rows, self._emit_engine(rows, 1, np.float64, to_file=False))
        rng = make_generator(random_state)
        return best_error(survey, self.kernel_, rank, make_selector("auto"), rng, norm=norm, confidence=confidence)

    def _map_beside(self, rows: RowBlocks, diag: TargetLike) -> NystromMap:
        """Return the map for these rows: a precomputed kernel takes their k(x, x) from ``diag``, or has none."""
        kernel, fitted = self.kernel_, self._known_map()
        if diag is not None:
            if not isinstance(kernel, Precomputed):
                raise ValueError(f"diag is for kernel='precomputed' alone; {kernel!r} computes k(x, x) from the rows.")
            diag = np.asarray(diag, dtype=np.float64)
            if diag.shape != (rows.shape[0],) or not (diag >= 0).all() or not np.isfinite(diag).all():
                raise ValueError(
                    f"diag must hold a finite k(x, x) of at least 0 for each of the {rows.shape[0]} rows; got shape "
                    f"{diag.shape}" + (f" with {diag.min():.3g} as the least." if diag.size else ".")
                )
        if not isinstance(kernel, Precomputed) or (diag is None and self._is_training_matrix(rows)):
            return fitted
        return replace(fitted, kernel=PrecomputedBeside(kernel.indices, diag))

    def _known_map(self) -> NystromMap:
        """Return the map with its projection, which a machine without a factor, or from a file, may have yet to find.

        It is found here, and not by every block. With every direction kept, any whitening of the landmarks will do.
        """
        fitted = self.map_
        if isinstance(fitted.projection, np.ndarray) or (self._cuts_map and self.n_components is not None):
            return fitted
        return replace(fitted, projection=spanning_projection(fitted.kernel, fitted.landmarks))

    def _is_training_matrix(self, rows: RowBlocks) -> bool:
        """Whether the rows are the kernel matrix of the fit: square, and the same in the landmarks' rows."""
        n = self.landmarks_.shape[1]
        if rows.shape != (n, n):
            return False
        here = gather(Survey(rows, self._engine(rows)), np.asarray(self.landmark_indices_))
        here, there = (np.asarray(to_dense(A)) for A in (here, self.landmarks_))
        return np.array_equal(here.astype(there.dtype), there)

    def unexplained_rows(self, X: RowsLike) -> Array:
        """Return the numbers of the rows of which the landmarks explain less than a tenth: one pass.

        Such rows are rare or far from all others. Give them landmarks (``landmarks="rpcholesky"``, or their own rows
        among ``landmarks``), or leave them out.
        """
        check_is_fitted(self)
        fitted, rows = self._known_map(), self._check_X(X, reset=False)
        name = rows.name

        def step(block: Block) -> Array:
            require_finite(block.X, name, block.start)
            residual = fitted.residual(block.X, start=block.start)
            lost = lost_rows(residual, fitted.kernel.diag(block.X, start=block.start))
            return block.start + np.flatnonzero(lost)

        engine = self._emit_engine(rows, 1, np.float64, to_file=True)
        return np.concatenate([part for _, part in engine.map(rows, step, label="rows not explained")])

    @property
    def quality_(self) -> str:
        """One line on how good the approximation is: what is explained, and the rows that are not."""
        check_is_fitted(self)
        certificate = getattr(self, "certificate_", None)
        if certificate is None:
            raise AttributeError("quality_ needs a factor of the kernel matrix, and conjugate gradients make none.")
        line = f"{1 - certificate.trace.value:.1%} of the kernel explained"
        if certificate.unexplained < certificate.trace.value * (1 - 1e-9):
            line += f" ({1 - certificate.unexplained:.1%} without the cut of the rank)"
        if certificate.n_looked:
            line += f"; {certificate.n_lost:,} of {certificate.n_looked:,} rows looked at are lost"
        return "; ".join([line, *certificate.rare])

    def residual(self, X: RowsLike, *, diag: TargetLike = None, out: OutPath = None) -> Emitted:
        """Return ``k(x, x) − ‖φ(x)‖²`` of each row: 0 where the landmarks explain it, k(x, x) where they do not.

        With ``out``, a path, it is streamed there, as by :meth:`nystrom.Nystroem.transform`. ``diag`` is k(x, x) of
        each row, for ``kernel="precomputed"`` and rows other than the training rows.
        """
        check_is_fitted(self)
        rows = self._check_X(X, reset=False)
        fitted = self._map_beside(rows, diag)

        def function(block: Block) -> Array:
            return fitted.residual(block.X, start=block.start)

        return self._emit(rows, function, None, np.float64, label="residual", out=out)
