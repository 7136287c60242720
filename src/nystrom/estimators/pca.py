"""Kernel principal components from the factor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self, Unpack

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from nystrom.checks import check_flag, check_optional_count, check_tolerance
from nystrom.engine.memory import fit_footprint
from nystrom.engine.passes import Passes
from nystrom.estimators.base import KernelMachine
from nystrom.estimators.features import require_sums, rows_to_invert
from nystrom.estimators.parameters import CommonParameters, ScikitKernel, ScikitPCA, set_parameters
from nystrom.estimators.pipeline import DEFAULT_LANDMARKS, fit_enough, fit_map
from nystrom.kernels import GammaLike, KernelLike
from nystrom.landmarks import Landmarks
from nystrom.linalg import column_signs, psd_eigh
from nystrom.nystroem.factor import NystromMap, optimal
from nystrom.rows import Block, RowBlocks
from nystrom.rows.base import MappedRows
from nystrom.solvers.ridge import ridge_problem
from nystrom.types import Array, Emitted, Matrix, OutPath, RowsLike, TargetLike, issparse


class KernelPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelMachine):
    """Kernel principal component analysis.

    The components of the centred rows in the kernel's feature space, from the factor of the kernel matrix. It replaces
    :class:`sklearn.decomposition.KernelPCA`.

    Parameters
    ----------
    n_components : int or None, default=None
        Number of components; None keeps all that are not zero.
    fit_inverse_transform : bool, default=False
        Whether to learn :meth:`inverse_transform`: ridge regression from the components to the rows, with the same
        kernel. For an array ``gamma`` it uses the mean, because components are not columns.
    alpha : float, default=1.0
        Regularisation of that regression.
    **shared : CommonParameters
        The parameters of every estimator: see :class:`nystrom.estimators.base.KernelMachine`.

    Attributes
    ----------
    eigenvalues_ : array of shape (r,)
        Of the centred kernel matrix, descending.
    explained_variance_ : array of shape (r,)
        ``eigenvalues_ / n``: the variance of each component.
    explained_variance_ratio_ : array of shape (r,)
        Fraction of the variance of the feature space, including the part that the landmarks do not explain.
    projection_, offset_ : arrays of shape (m, r) and (r,)
        ``transform(x) = k(x, Z) @ projection_ − offset_``.
    landmarks_, kernel_, certificate_, ...
        As in :class:`nystrom.Nystroem`.

    Notes
    -----
    Cost: that of the map, O(n m (p + m)), and O(m³); ``fit_inverse_transform`` takes one more pass.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, _ = load_digits(return_X_y=True)
    >>> KernelPCA(n_components=2, random_state=0).fit_transform(X).shape
    (1797, 2)
    """

    # Rows are centred in the span of the landmarks; the rank is cut afterwards.
    _cuts_map: ClassVar[bool] = False
    _every_row_up_to: ClassVar[int] = DEFAULT_LANDMARKS
    _options: ClassVar[tuple[type, ...]] = (ScikitKernel, ScikitPCA)

    def __init__(
        self,
        n_components: int | None = None,
        *,
        fit_inverse_transform: bool = False,
        alpha: float = 1.0,
        kernel: KernelLike = "gaussian",
        gamma: GammaLike = "scale",
        **shared: Unpack[CommonParameters],
    ) -> None:
        set_parameters(self, KernelPCA.__init__, locals())

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if check_flag(self.fit_inverse_transform, "fit_inverse_transform") and not self._kernel().has_coordinates:
            raise ValueError(
                "Cannot fit_inverse_transform with a precomputed kernel: it needs the coordinates of the rows. "
                "Give the rows, or leave fit_inverse_transform=False."
            )
        check_tolerance(self.alpha, "alpha")

    def fit(self, X: RowsLike, y: TargetLike = None) -> KernelPCA:
        """Fit the map and find the components: no passes in addition to those of the map."""
        rows = self._rows_to_fit(X, y)
        request = self._request(rows, rank=None)
        fit = fit_enough(rows, request) if self.n_landmarks is None else fit_map(rows, request)
        results = self._solved(fit.factored)
        if self.fit_inverse_transform:
            results |= self._inverse(rows, fit.factored, results)
        return self._store(rows, fit, **results)

    def _solved(self, fitted: NystromMap) -> dict[str, Any]:
        s, Q = fitted.statistics, fitted.rotation
        mean = Q.T @ s.mean
        values, V = psd_eigh(Q.T @ s.scatter @ Q)
        # Centring removes one direction; its remaining eigenvalue is rounding.
        kept = values > 4 * len(values) * np.finfo(np.float64).eps * max(float(np.max(values, initial=0.0)), 0.0)
        r = min(int(kept.sum()), check_optional_count(self.n_components, "n_components") or len(values))
        projection = fitted.projection @ V[:, :r]
        signs = column_signs(projection)
        variances = values[:r] / s.weight
        variance = max(s.trace / s.weight - float(mean @ mean), 0.0)
        return {
            "eigenvalues_": values[:r],
            "projection_": projection * signs,
            "offset_": (mean @ V[:, :r]) * signs,
            "n_components_": r,
            "explained_variance_": variances,
            "explained_variance_ratio_": variances / (variance or 1.0),
        }

    def _check_merge(self, other: Self) -> None:
        require_sums(self)
        super()._check_merge(other)

    def transform(self, X: RowsLike, *, out: OutPath = None) -> Emitted:
        """Return the components of the rows of X: n × ``n_components_``, in the dtype of X.

        With ``out``, a path, they are streamed there, as in :meth:`nystrom.Nystroem.transform`.
        """
        check_is_fitted(self)
        rows = self._check_X(X, reset=False)
        scores = _scores(self.map_, self.projection_, self.offset_)
        return self._emit(
            rows, lambda block: scores(block.X), self.n_components_, rows.dtype, label="transform", out=out
        )

    def _inverse(self, rows: RowBlocks, fitted: NystromMap, found: dict[str, Any]) -> dict[str, Any]:
        """Return the ridge regression from the components to the rows: one pass."""
        kernel = fitted.kernel
        if not kernel.has_coordinates or kernel.of_objects:
            raise ValueError(
                "fit_inverse_transform=True needs the coordinates of rows; objects and kernel='precomputed' have none."
            )
        scores = _scores(fitted, found["projection_"], found["offset_"])
        scored = MappedRows(
            rows, lambda block: scores(block.X), found["n_components_"], name="the components", target="rows"
        )
        points = fitted.landmarks.points
        points = points if issparse(points) else np.asarray(points)
        landmarks = Landmarks(scores(points.astype(rows.dtype)), None)
        engine = self._resources().engine(rows, fit_footprint(rows, len(landmarks)))
        back = optimal(Passes(scored, engine), kernel.of_new_columns(found["n_components_"]), landmarks, None)
        weights, _ = ridge_problem(back).solve(float(self.alpha))
        return {"inverse_map_": back, "inverse_coef_": back.projection @ weights}

    def inverse_transform(self, X: RowsLike) -> Emitted:
        """Return rows whose components are near those in X (n × ``n_components_``), estimated by ridge regression.

        Needs ``fit_inverse_transform=True``. Exact pre-images need not exist.
        """
        check_is_fitted(self)
        rows = rows_to_invert(self, X)
        evaluate, coef = self.inverse_map_.evaluate, self.inverse_coef_

        def function(block: Block) -> Array:
            return evaluate(block.X) @ coef

        return self._emit(rows, function, coef.shape[1], np.float64, label="inverse_transform")

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)


def _scores(fitted: NystromMap, projection: Array, offset: Array) -> Callable[[Matrix], Array]:
    """Return the function from rows to their components."""

    def scores(X: Matrix) -> Array:
        C = fitted.evaluate(X)
        return C @ projection.astype(C.dtype) - offset.astype(C.dtype)

    return scores
