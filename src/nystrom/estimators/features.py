"""The feature map as a scikit-learn transformer."""

from __future__ import annotations

from functools import wraps
from typing import Any, ClassVar, Self, Unpack

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from nystrom.checks import check_choice, check_flag, check_optional_count, check_positive, check_tolerance
from nystrom.devices import beside
from nystrom.engine import Engine
from nystrom.engine.memory import fit_footprint
from nystrom.engine.passes import Passes
from nystrom.errors.trace import NORMS
from nystrom.estimators.base import KernelMachine, extended, opened
from nystrom.estimators.parameters import CommonParameters, ScikitKernel, set_parameters
from nystrom.estimators.pipeline import GivenSize, GrownSize, MapFit, ToleranceSize, fit_map
from nystrom.kernels import GammaLike, KernelLike
from nystrom.landmarks import make_selector
from nystrom.nystroem.factor import FACTORS, NystromMap, emit_features
from nystrom.rows import RowBlocks, as_blocks
from nystrom.rows.base import MappedRows
from nystrom.solvers.ridge import ridge_problem
from nystrom.tuning.search import MOST_LANDMARKS
from nystrom.types import Array, Emitted, Matrix, OutPath, RowsLike, TargetLike, issparse, to_dense

# scikit-learn's default.
_DEFAULT_RANK = 100


def _keep_written_rows(cls: type[Nystroem]) -> type[Nystroem]:
    """Return the class with a ``transform`` that bypasses ``set_output`` when it writes to ``out``."""
    contained = cls.transform

    @wraps(contained)
    def transform(self: Nystroem, X: RowsLike, *, out: OutPath = None) -> Emitted:
        # scikit-learn wraps the method to return a data frame; rows written to a file are not one.
        return contained(self, X) if out is None else contained.__wrapped__(self, X, out=out)  # type: ignore[attr-defined]

    cls.transform = transform  # type: ignore[method-assign]
    return cls


@_keep_written_rows
class Nystroem(ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelMachine):
    """Approximate a kernel's feature map from a few landmarks.

    ``transform(X)`` returns features L with ``L Lᵀ ≈ K``, the kernel matrix of the rows, so that a linear model on L is
    a kernel machine on X. It replaces :class:`sklearn.kernel_approximation.Nystroem`, with better landmarks and their
    best rank-r approximation (Algorithms 2 and 3 of the paper).

    Parameters
    ----------
    n_components : int or None, default=100
        The rank r: number of features. None keeps every direction that the landmarks span. By default twice as many
        landmarks are used, even if that is fewer than 100. The default rank is capped at ``n_landmarks``.
    tol : float or None, default=None
        The relative error to reach, such as 0.01. Rank and number of landmarks are then searched: ``n_components`` is
        ignored, and ``n_landmarks`` is the largest number of landmarks (by default 5,000, and what ``max_memory``
        allows). If that is too few, the fit warns and estimates how many are needed.
    tol_norm : {"fro", "trace", "spectral"}, default="fro"
        The norm of ``tol``.
    fit_inverse_transform : bool, default=False
        Whether to learn :meth:`inverse_transform`: ridge regression from the features to the rows, which is kernel
        ridge regression with any kernel, including sums and kernels of columns. Takes one more pass.
    alpha : float, default=1.0
        Regularisation of that regression.
    **shared : CommonParameters
        The parameters of every estimator: see :class:`nystrom.estimators.base.KernelMachine`.

    Attributes
    ----------
    landmarks_ : array or CSR of shape (m, p)
        The landmarks Z.
    landmark_indices_ : array of shape (m,) or None
        Row numbers of the landmarks, if they are rows.
    kernel_ : Kernel
        The kernel with numeric parameters.
    eigenvalues_ : array of shape (r,)
        Estimates of the leading eigenvalues of K.
    projection_ : array of shape (m, r)
        M of ``features(x) = k(x, Z) @ M``.
    n_components_ : int
        r; fewer than requested if the numerical rank of the kernel is lower.
    certificate_ : Certificate
        The exact trace-norm error of the fit.
    error_ : ErrorEstimate
        With ``tol``: the error of the map at its rank, in ``tol_norm``: exact for the trace norm and up to a few
        thousand rows, else with a 98 % interval.
    inverse_coef_, inverse_intercept_ : arrays of shape (r, p) and (p,)
        With ``fit_inverse_transform``: ``inverse_transform(F) = F @ inverse_coef_ + inverse_intercept_``.
    sizes_tried_ : tuple of (int, ErrorEstimate)
        With ``tol``: every number of landmarks tried, and its error.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, _ = load_digits(return_X_y=True)
    >>> features = Nystroem(n_components=20, random_state=0).fit(X)
    >>> features.transform(X).shape
    (1797, 20)
    >>> bool(features.certificate_.trace.value < 0.5)
    True
    """

    # The user chose the rank of the features, and sees its error.
    _least_landmarks: ClassVar[int] = 1
    _options: ClassVar[tuple[type, ...]] = (ScikitKernel,)

    def __init__(
        self,
        kernel: KernelLike = "gaussian",
        *,
        gamma: GammaLike = "scale",
        n_components: int | None = _DEFAULT_RANK,
        tol: float | None = None,
        tol_norm: str = "fro",
        fit_inverse_transform: bool = False,
        alpha: float = 1.0,
        **shared: Unpack[CommonParameters],
    ) -> None:
        set_parameters(self, Nystroem.__init__, locals())

    def _default_rank(self) -> int | None:
        return _DEFAULT_RANK

    def _rank_and_size(self, rows: RowBlocks) -> tuple[int | None, GivenSize | GrownSize | ToleranceSize]:
        if self.tol is None:
            return super()._rank_and_size(rows)
        tol, norm, limit = check_positive(self.tol, "tol"), self.tol_norm, "n_landmarks"
        asked = None if self.n_landmarks == "auto" else check_optional_count(self.n_landmarks, "n_landmarks")
        most = self._resources().most_landmarks(rows, make_selector(self.landmarks).held_bytes, asked or MOST_LANDMARKS)
        if most >= rows.shape[0]:
            limit = "rows"
        elif self.max_memory is not None and most < MOST_LANDMARKS and most != asked:
            limit = "max_memory"
        return None, ToleranceSize(tol, norm, most, limit)

    @property
    def components_(self) -> Matrix:
        """The landmarks, under scikit-learn's name."""
        return self.landmarks_ if issparse(self.landmarks_) else beside(getattr(self, "_like", None), self.landmarks_)

    @property
    def normalization_(self) -> Array:
        """The transpose of ``projection_``: ``transform(X)`` is ``k(X, components_) @ normalization_.T``.

        Scikit-learn's is the symmetric root of k(Z, Z)⁻¹; this one rotates the features to the leading directions.
        """
        return beside(getattr(self, "_like", None), self.projection_.T)

    @property
    def component_indices_(self) -> Array:
        """The row numbers of the landmarks, under scikit-learn's name."""
        if self.landmark_indices_ is None:
            raise AttributeError(
                "there is no component_indices_: the landmarks are means of rows. They are in landmarks_; "
                "landmarks='uniform' takes rows."
            )
        return self.landmark_indices_

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice(self.tol_norm, "tol_norm", NORMS)
        check_flag(self.fit_inverse_transform, "fit_inverse_transform")
        check_tolerance(self.alpha, "alpha")

    def fit(self, X: RowsLike, y: TargetLike = None) -> Nystroem:
        """Choose landmarks and fit the map: two or three passes over X."""
        rows = self._rows_to_fit(X, y)
        fit = fit_map(rows, self._request(rows))
        return self._store(rows, fit, **self._inverse(rows, fit))

    def _inverse(self, rows: RowBlocks, fit: MapFit) -> dict[str, Array]:
        """Return the ridge regression from the features to the rows, if requested: repeats the pass of the map."""
        if not self.fit_inverse_transform:
            return {}
        fitted = fit.factored
        if not fitted.kernel.has_coordinates or fitted.kernel.of_objects:
            raise ValueError(
                "fit_inverse_transform=True needs the coordinates of rows; objects and kernel='precomputed' have none."
            )
        onto = MappedRows(rows, lambda block: to_dense(block.X), rows.n_columns, name=rows.name, target="rows")
        engine = self._resources().engine(rows, fit_footprint(rows, len(fitted.landmarks)))
        again = FACTORS[self.factor](Passes(onto, engine), fitted.kernel, fitted.landmarks, fitted.n_components)
        coef, intercept = ridge_problem(again, fit_intercept=True).solve(float(self.alpha))
        return {"inverse_coef_": coef, "inverse_intercept_": intercept}

    def fit_transform(self, X: RowsLike, y: TargetLike = None) -> Emitted:
        """Fit and return the features of X; k(X, Z) is kept from the fit if it fits in 256 MiB."""
        rows = self._rows_to_fit(X, y)
        fit = fit_map(rows, self._request(rows, keep_kernel=True))
        self._store(rows, fit, **self._inverse(rows, fit))
        engine = _feature_engine(self, rows, fit.factored.n_components)
        return emit_features(rows, engine, fit.factored, keep=fit.keep)

    def partial_fit(self, X: RowsLike, y: TargetLike = None) -> Nystroem:
        """Add the rows X to the fit: one pass over them alone.

        The first call is :meth:`fit`, so give ``landmarks`` as an array (or a representative first X); later calls keep
        the landmarks and the kernel. The result equals the fit to all rows with these landmarks, up to rounding.
        """
        if not hasattr(self, "map_"):
            return self.fit(X, y)
        require_sums(self)
        self._keep(extended(self, self._check_X(opened(X, y, self._columns)[0], reset=False)))
        return self

    def _check_merge(self, other: Self) -> None:
        require_sums(self)
        super()._check_merge(other)

    def _solved(self, fitted: NystromMap) -> dict[str, Any]:
        return {}

    def transform(self, X: RowsLike, *, out: OutPath = None) -> Emitted:
        """Return the features of X: n × ``n_components_``, in the dtype of X; lazy if X is a Dask collection.

        Parameters
        ----------
        X : rows
            Any rows.
        out : path, optional
            ``.npy``, ``.zarr`` or ``.parquet``: the features are streamed there and returned as opened rows. The file
            gets its name when it is complete; repeating an interrupted call continues it.
        """
        check_is_fitted(self)
        rows = self._check_X(X, reset=False)
        fitted = self.map_
        if out is not None:
            return self._emit(
                rows, lambda block: fitted.features(block.X), fitted.n_components, rows.dtype, label="features", out=out
            )
        engine = _feature_engine(self, rows, fitted.n_components)
        return emit_features(rows, engine, fitted)

    def inverse_transform(self, X: RowsLike) -> Emitted:
        """Return rows whose features are near those in X (n × ``n_components_``), estimated by ridge regression.

        Needs ``fit_inverse_transform=True``. Exact pre-images need not exist.

        Examples
        --------
        >>> import numpy as np
        >>> X = np.random.default_rng(0).normal(size=(500, 2))
        >>> features = Nystroem(n_components=50, fit_inverse_transform=True, alpha=1e-3, random_state=0).fit(X)
        >>> bool(np.abs(features.inverse_transform(features.transform(X)) - X).mean() < 0.05)
        True
        """
        check_is_fitted(self)
        rows = rows_to_invert(self, X)
        coef, intercept = self.inverse_coef_, self.inverse_intercept_
        return self._emit(
            rows, lambda block: block.X @ coef + intercept, coef.shape[1], np.float64, label="inverse_transform"
        )

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)


def _feature_engine(machine: Nystroem, rows: RowBlocks, r: int) -> Engine:
    """Return the engine that computes r features per row, in the dtype of the rows."""
    return machine._engine(rows, n_columns=r, held=rows.shape[0] * r * rows.dtype.itemsize)


def require_sums(machine: Any) -> None:
    """Raise if a machine has learned ``inverse_transform``: that needs the rows again, not only sums over them."""
    if machine.fit_inverse_transform:
        raise ValueError("fit_inverse_transform=True reads all rows again: fit all rows in one call, or leave it out.")


def rows_to_invert(machine: Any, X: RowsLike) -> RowBlocks:
    """Return features, or components, to be inverted; the machine must have learned ``inverse_transform``."""
    if not hasattr(machine, "inverse_coef_"):
        raise NotFittedError("inverse_transform was not learned: set fit_inverse_transform=True and fit again.")
    rows = as_blocks(X, owner=machine)
    if rows.n_columns != machine.n_components_:
        raise ValueError(f"X must have {machine.n_components_} columns, one per component; got {rows.n_columns}.")
    return rows
