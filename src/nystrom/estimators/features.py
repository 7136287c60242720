"""The feature map as a scikit-learn transformer."""

from __future__ import annotations

from functools import wraps
from typing import Any, ClassVar, Unpack

from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from nystrom.checks import check_choice, check_optional_count, check_positive
from nystrom.devices import beside
from nystrom.errors.trace import NORMS
from nystrom.estimators.base import KernelMachine
from nystrom.estimators.parameters import CommonParameters, ScikitKernel, set_parameters
from nystrom.estimators.pipeline import MOST_LANDMARKS, GivenSize, GrownSize, ToleranceSize, fit_map
from nystrom.kernels import GammaLike, KernelLike
from nystrom.landmarks import make_selector
from nystrom.nystroem.factor import NystromMap, emit_features
from nystrom.rows import RowBlocks
from nystrom.types import Array, Emitted, Matrix, OutPath, RowsLike, TargetLike, issparse

# That of scikit-learn.
_DEFAULT_RANK = 100


def _keep_written_rows(cls: type[Nystroem]) -> type[Nystroem]:
    """Return the class with a ``transform`` that ``set_output`` leaves alone where it writes to ``out``."""
    contained = cls.transform

    @wraps(contained)
    def transform(self: Nystroem, X: RowsLike, *, out: OutPath = None) -> Emitted:
        # scikit-learn has wrapped the method to put its result into a data frame; the written rows are none.
        return contained(self, X) if out is None else contained.__wrapped__(self, X, out=out)  # type: ignore[attr-defined]

    cls.transform = transform  # type: ignore[method-assign]
    return cls


@_keep_written_rows
class Nystroem(ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelMachine):
    """Approximate a kernel's feature map from a few landmarks.

    ``transform(X)`` gives features L with ``L Lᵀ ≈ K``, the kernel matrix of the rows, so that a linear model on L is a
    kernel machine on X. It takes the place of :class:`sklearn.kernel_approximation.Nystroem`, with better landmarks
    and the best rank-r approximation that they allow (Algorithms 2 and 3 of the paper).

    Parameters
    ----------
    n_components : int or None, default=100
        The rank r: columns of the features. None keeps every direction that the landmarks span. Twice as many landmarks
        are taken by default, also where that is fewer than 100. With fewer than 100 landmarks the default is to keep
        every direction of theirs.
    tol : float or None, default=None
        The relative error to reach, such as 0.01. Rank and landmarks are then found: ``n_components`` is not used, and
        ``n_landmarks`` is the most landmarks to take (by default 5,000, and what ``max_memory`` allows). Where these
        are too few, the fit warns and says how many it would take.
    tol_norm : {"fro", "trace", "spectral"}, default="fro"
        The norm of ``tol``.
    **shared : CommonParameters
        The parameters of every estimator: see :class:`nystrom.estimators.base.KernelMachine`.

    Attributes
    ----------
    landmarks_ : array or CSR of shape (m, p)
        The landmarks Z.
    landmark_indices_ : array of shape (m,) or None
        Their row numbers, where they are rows.
    kernel_ : Kernel
        The kernel with numeric parameters.
    eigenvalues_ : array of shape (r,)
        Estimates of the leading eigenvalues of K.
    projection_ : array of shape (m, r)
        M of ``features(x) = k(x, Z) @ M``.
    n_components_ : int
        r; fewer than asked for where the kernel's numerical rank is lower.
    certificate_ : Certificate
        The exact trace-norm error of the fit.
    error_ : ErrorEstimate
        With ``tol``: the error of the map, its rank as cut, in ``tol_norm``: exact for the trace norm and up to some
        thousand rows, else with its 98 % interval.
    sizes_tried_ : tuple of (int, ErrorEstimate)
        With ``tol``: every number of landmarks on trial, and its error.

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

    # The user asked for features of this rank, and sees what they leave out.
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
        most = self._resources().most_landmarks(rows, make_selector(self.landmarks), asked or MOST_LANDMARKS)
        if most >= rows.shape[0]:
            limit = "rows"
        elif self.max_memory is not None and most < MOST_LANDMARKS and most != asked:
            limit = "max_memory"
        return None, ToleranceSize(tol, norm, most, limit)

    @property
    def components_(self) -> Matrix:
        """The landmarks, under scikit-learn's name for them."""
        return self.landmarks_ if issparse(self.landmarks_) else beside(getattr(self, "_like", None), self.landmarks_)

    @property
    def normalization_(self) -> Array:
        """The transpose of ``projection_``: ``transform(X)`` is ``k(X, components_) @ normalization_.T``.

        Scikit-learn's is the symmetric root of k(Z, Z)⁻¹; this one turns the features to the leading directions.
        """
        return beside(getattr(self, "_like", None), self.projection_.T)

    @property
    def component_indices_(self) -> Array:
        """The row numbers of the landmarks, under scikit-learn's name for them."""
        if self.landmark_indices_ is None:
            raise AttributeError(
                "component_indices_ is not there: the landmarks are means of rows. They are in landmarks_; "
                "landmarks='uniform' takes rows."
            )
        return self.landmark_indices_

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice(self.tol_norm, "tol_norm", NORMS)

    def fit(self, X: RowsLike, y: TargetLike = None) -> Nystroem:
        """Choose landmarks and fit the map: two or three passes over X."""
        rows = self._check_X(X, reset=True)
        return self._store(rows, fit_map(rows, self._request(rows)))

    def fit_transform(self, X: RowsLike, y: TargetLike = None) -> Emitted:
        """Fit, and return the features of X; k(X, Z) is kept from the fit where it fits in 256 MiB."""
        rows = self._check_X(X, reset=True)
        fit = fit_map(rows, self._request(rows, keep_kernel=True))
        self._store(rows, fit)
        engine = self._emit_engine(rows, fit.factored.n_components, rows.dtype, to_file=False)
        return emit_features(rows, engine, fit.factored, keep=fit.keep)

    def partial_fit(self, X: RowsLike, y: TargetLike = None) -> Nystroem:
        """Add the rows X to the fit: one pass over them alone.

        The first call is :meth:`fit`, so give ``landmarks`` as an array (or a first X that stands for all); later calls
        keep the landmarks and the kernel. The result is the fit to all rows with these landmarks, up to rounding.
        """
        if not hasattr(self, "map_"):
            return self.fit(X)
        self._keep(self._extended(self._check_X(X, reset=False)))
        return self

    def _solved(self, fitted: NystromMap) -> dict[str, Any]:
        return {}

    def transform(self, X: RowsLike, *, out: OutPath = None) -> Emitted:
        """Return the features of X: n × ``n_components_``, in the dtype of X; lazy if X is a Dask collection.

        Parameters
        ----------
        X : rows
            Any rows.
        out : path, optional
            ``.npy``, ``.zarr`` or ``.parquet``: the features are streamed there and come back as opened rows. The file
            appears under its name when it is complete; an interrupted call goes on where it was when it is made again.
        """
        check_is_fitted(self)
        rows = self._check_X(X, reset=False)
        fitted = self.map_
        if out is not None:
            return self._emit(
                rows, lambda block: fitted.features(block.X), fitted.n_components, rows.dtype, label="features", out=out
            )
        engine = self._emit_engine(rows, fitted.n_components, rows.dtype, to_file=False)
        return emit_features(rows, engine, fitted)

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)
