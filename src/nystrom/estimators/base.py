"""Base of every estimator: scikit-learn's contract around one fitted map."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import DTypeLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

import nystrom
from nystrom.checks import RandomState, check_choice, check_optional_count
from nystrom.devices import dispatches, place_of
from nystrom.engine import FIT_ADVICE, Engine, Resources, place_rows
from nystrom.engine.memory import Footprint, device_block_rows, emit_footprint, fit_footprint, parse_memory
from nystrom.engine.passes import Passes
from nystrom.engine.progress import WATCHER
from nystrom.engine.threads import limit_methods
from nystrom.errors import ErrorEstimate
from nystrom.errors.frobenius import DEFAULT_PAIRS
from nystrom.errors.trace import certify
from nystrom.estimators import quality
from nystrom.estimators.parameters import (
    ABSENT,
    DERIVED,
    check_names,
    complete,
    given_kernel,
    set_parameters,
    summary_html,
)
from nystrom.estimators.pipeline import (
    FitRequest,
    GivenSize,
    GrownSize,
    MapFit,
    ToleranceSize,
    resolve_sizes,
)
from nystrom.exceptions import warn_caller
from nystrom.kernels import GammaLike, Kernel, KernelLike, make_kernel
from nystrom.landmarks import LandmarksLike, make_selector
from nystrom.nystroem.factor import FACTORS, NystromMap, extend
from nystrom.rows import Block, RowBlocks, as_blocks, require_finite
from nystrom.rows.device import DeviceRows, SentRows
from nystrom.rows.files import open_rows
from nystrom.rows.objects import object_rows
from nystrom.solvers.landmark_cg import UnfactoredMap
from nystrom.tuning.search import MOST_LANDMARKS
from nystrom.types import Array, Emitted, Matrix, OutPath, RowsLike, TargetLike

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn before 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """A stand-in: there are no callbacks."""


_EMIT_ADVICE = "The result counts too: transform(X, out='features.npy') writes it to a file instead."
_MOST_NAMES = 5


class KernelMachine(CallbackSupportMixin, BaseEstimator):
    """Base of the estimators: from parameters and rows to one fitted :class:`NystromMap`.

    A subclass takes these parameters as ``**shared``; an entry ``**shared`` in its docstring is replaced by their text
    below.

    Parameters
    ----------
    kernel : str, Kernel or callable, default="gaussian"
        "gaussian" (or "rbf"), "polynomial", "linear", "laplacian", "matern", "cosine", "chi2", "additive_chi2",
        "sigmoid", "precomputed", a kernel object of :mod:`nystrom.kernels`, or a function.
    gamma : "scale", None, float or array, default="scale"
        Width of the kernel. "scale" is the paper's: one over the mean squared distance of the rows to their mean.
        None is scikit-learn's: one over the number of columns. An array has one value per column.
    n_components : int or None, default=None
        The rank r. None keeps every direction that the landmarks span.
    degree : int, default=3
        Degree of the polynomial kernel.
    coef0 : float, default=1
        The constant of the polynomial kernel.
    n_landmarks : int, "auto" or None, default=None
        m; by default twice ``n_components`` and at least 100, or 1,000 without a rank, and at most the number of rows.
        :class:`nystrom.KernelPCA` and the clusterings use every row up to 1,000 rows. "auto" starts from that number
        and doubles it until held-out errors (with a target) or the components (without) change by no more than their
        noise, up to 5,000 and to what ``max_memory`` allows.
    landmarks : str, array or selector, default="auto"
        How landmarks are chosen: a name ("auto", "sketched-kmeans", "kmeans", "uniform", "diagonal", "column-norm",
        "leverage", "kmeans++", "rpcholesky"), an m × p array of points, an array of row numbers, or a selector object
        of :mod:`nystrom.landmarks`.
    factor : {"optimal", "standard"}, default="optimal"
        Algorithm 2 or Algorithm 1.
    max_memory : str, int or None, default=None
        Largest increase of the memory of the process during a fit, as "2GB" or in bytes.
    max_device_memory : str, int or None, default=None
        Largest amount of memory that a pass adds on a device, as "2GB" or in bytes: blocks of rows are as small as that
        requires. Rows that are computed with on the host ignore it.
    n_jobs : int or None, default=None
        Number of threads; None uses all cores. The result is the same for any number.
    engine : {"auto", "local", "dask", "torch", "torch:cuda", "torch:mps", "cupy", "jax"}, default="auto"
        Where passes run. "auto": a Dask collection on its cluster (its features are then lazy Dask arrays), anything
        else locally. "dask" sends X to the cluster of the active ``distributed.Client``; for files it sends only the
        name. The others name a package and its device ("torch" alone uses the GPU if there is one): dense rows are read
        on the host and computed on the device, block by block.
    random_state : int, Generator, RandomState or None, default=None
        Seed.
    verbose : int, default=0
        1 shows the progress of each pass.
    """

    kernel: KernelLike
    gamma: GammaLike
    n_components: int | None
    degree: int
    coef0: float
    n_landmarks: int | str | None
    landmarks: LandmarksLike
    factor: str
    max_memory: str | float | None
    max_device_memory: str | float | None
    n_jobs: int | None
    engine: str
    random_state: RandomState
    verbose: int
    map_: NystromMap
    kernel_: Kernel
    landmarks_: Matrix
    landmark_indices_: Array | None
    n_components_: int
    # With scikit-learn's array API dispatch: an empty array in the namespace and on the device of X.
    _like: Any

    # Groups of parameters that several machines share: classes of checked values.
    _options: ClassVar[tuple[type, ...]] = ()
    # With fewer, even a few components are far from the exact ones: the first two axes of kernel PCA had correlations
    # of 0.81 and 0.73 with 4 landmarks, and of 0.9999 with 100.
    _least_landmarks: ClassVar[int] = 100
    # Up to this many rows, every row is a landmark by default.
    _every_row_up_to: ClassVar[int] = 0
    # Whether the map itself is cut to n_components, rather than only the results derived from it.
    _cuts_map: ClassVar[bool] = True

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        complete(cls)
        if "fit" in vars(cls):
            cls.fit = tell_callbacks(cls.fit)
        limit_methods(cls, __name__.partition(".")[0])

    def __new__(cls, *args: Any, **parameters: Any) -> Self:
        check_names(cls, parameters)
        return super().__new__(cls)

    def __init__(
        self,
        *,
        kernel: KernelLike = "gaussian",
        gamma: GammaLike = "scale",
        n_components: int | None = None,
        degree: int = 3,
        coef0: float = 1,
        n_landmarks: int | str | None = None,
        landmarks: LandmarksLike = "auto",
        factor: str = "optimal",
        max_memory: str | float | None = None,
        max_device_memory: str | float | None = None,
        n_jobs: int | None = None,
        engine: str = "auto",
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        set_parameters(self, KernelMachine.__init__, locals())

    if not TYPE_CHECKING:  # Otherwise every misspelt attribute would pass the type checker.

        def __getattr__(self, name: str) -> Any:
            """Return an attribute under scikit-learn's name, or say what to use instead."""
            if name in DERIVED:
                check_is_fitted(self)
                return DERIVED[name](self)
            if name in ABSENT and not hasattr(type(self), name):
                raise AttributeError(f"{type(self).__name__} has no {name}: {ABSENT[name]}")
            return super().__getattribute__(name)  # raises, in a property's own words

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; those of a kernel object, as ``kernel__left__gamma``, create a new kernel."""
        kernel = params.get("kernel", getattr(self, "kernel", None))
        inner = {name: value for name, value in params.items() if name.startswith("kernel__")}
        if inner and isinstance(kernel, Kernel):
            params = {name: value for name, value in params.items() if name not in inner}
            params["kernel"] = kernel.with_params(**{name[len("kernel__") :]: inner[name] for name in inner})
        return super().set_params(**params)

    def _kernel(self) -> Kernel:
        return make_kernel(given_kernel(self), gamma=self.gamma, degree=self.degree, coef0=self.coef0)

    def _check_parameters(self) -> None:
        """Raise for invalid values, even of parameters that this fit does not use."""
        for options in self._options:
            options.of(self)  # type: ignore[attr-defined]
        self._kernel()
        check_choice(self.factor, "factor", FACTORS)
        parse_memory(self.max_device_memory, "max_device_memory")

    @property
    def _columns(self) -> list[str] | None:
        """The columns of the fit that are read from a file, by name; None for all that it has."""
        names = vars(self).get("feature_names_in_")
        return None if names is None else list(names)

    def _check_X(self, X: RowsLike, *, reset: bool) -> RowBlocks:
        """Return the rows of X, checked for shape, dtype and columns; finiteness is checked in the pass."""
        if reset:
            self._check_parameters()
        elif "map_" not in vars(self):
            check_is_fitted(self)  # says so in scikit-learn's words
        kernel = self._kernel() if reset else self.map_.kernel
        X, _ = opened(X, columns=None if reset else self._columns)
        numbers = type(X) is np.ndarray and X.ndim == 2 and X.dtype.kind in "fiub"
        # After a fit to series of different lengths, a list of series of one length is not a matrix.
        if isinstance(X, (list, tuple)) and kernel.of_objects:
            rows: RowBlocks = object_rows(X)
        else:
            rows = as_blocks(X, owner=self, objects=not numbers and kernel.takes_objects)
        if not reset:
            _check_like_fit(self, rows, from_file=isinstance(X, RowBlocks))
        placed = rows if self.engine == "auto" and not reset else place_rows(rows, self.engine, fit=reset)
        if self.max_device_memory is None or not isinstance(placed, (DeviceRows, SentRows)):
            return placed
        budget = parse_memory(self.max_device_memory, "max_device_memory") or 0
        m = self._rank_and_size(placed)[1].most if reset else len(self.map_.landmarks)
        return placed.within(budget, device_block_rows(placed, m, budget))

    def _rows_to_fit(self, X: RowsLike, y: TargetLike) -> RowBlocks:
        """Return the rows of a fit without a target; of a file, the column that y names is not a feature."""
        return self._check_X(opened(X, y)[0], reset=True)

    def _resources(self) -> Resources:
        limit = None if self.max_memory is None else parse_memory(self.max_memory)
        return Resources(limit, self.n_jobs, self.verbose)

    def _request(self, rows: RowBlocks, **values: Any) -> FitRequest:
        """Return the request for a fit with these parameters; ``values`` replace or add to them."""
        kernel = self._kernel()
        if not kernel.has_coordinates and rows.shape[0] != rows.shape[1]:
            raise ValueError(
                f"with kernel='precomputed' X must be the square kernel matrix of the training rows; "
                f"got shape {rows.shape}."
            )
        rank, size = self._rank_and_size(rows)
        asked: dict[str, Any] = {
            "kernel": kernel,
            "selector": make_selector(self.landmarks),
            "rank": rank,
            "size": size,
            "factor": check_choice(self.factor, "factor", FACTORS),
            "resources": self._resources(),
            "seed": self.random_state,
            # With the default n_landmarks, fewer rows than landmarks are no reason to warn.
            "announce": self.n_landmarks is not None,
        }
        return FitRequest(**(asked | values))

    def _rank_and_size(self, rows: RowBlocks) -> tuple[int | None, GivenSize | GrownSize | ToleranceSize]:
        """Return the rank, and the rule for the number of landmarks."""
        n = rows.shape[0]
        if not isinstance(self.n_landmarks, str):
            least = n if n <= self._every_row_up_to else self._least_landmarks
            default = self._default_rank()
            rank, m = resolve_sizes(self.n_components, self.n_landmarks, n, least=least, default_rank=default)
            return rank, GivenSize(m, is_default=self.n_landmarks is None and self.n_components is None)
        check_choice(self.n_landmarks, "n_landmarks", ("auto",))
        rank = check_optional_count(self.n_components, "n_components")
        most = self._resources().most_landmarks(rows, make_selector(self.landmarks).held_bytes, MOST_LANDMARKS)
        limit = "max_memory allows" if most < MOST_LANDMARKS else "it takes"
        least = min(max(self._least_landmarks, 2 * (rank or 1)), n)
        return rank, GrownSize(least, max(most, least), rank=rank, limit=limit)

    def _default_rank(self) -> int | None:
        """Return the default rank, which is capped at the number of landmarks because the user did not set it."""
        return None

    def _store(self, rows: RowBlocks, fit: MapFit, **results: Any) -> Self:
        """Replace the results of an earlier fit by those of this one, all at once."""
        # Every fit sets the private results; public ones may remain from an earlier fit.
        kept = {name: value for name, value in vars(self).items() if not name.endswith("_")}
        names = rows.feature_names
        found: dict[str, Any] = {"n_features_in_": rows.shape[1]}
        if names is not None:
            found["feature_names_in_"] = np.array(names, dtype=object)
        found |= _results_of(fit.map) | {"_stages": fit.stages}
        if dispatches():
            # An empty array on the device of X: scikit-learn moves it with the model.
            found["_like"] = np.empty(0) if rows.home is None else rows.home.send(np.empty(0))
        for name, value in (
            ("certificate_", fit.certificate),
            ("sizes_tried_", fit.sizes_tried),
            ("error_", fit.error),
            ("metric_losses_", fit.metric_losses),
            ("search_", list(fit.search) or None),
        ):
            if value is not None:
                found[name] = value
        sample = getattr(results.get("_held"), "sample", None)
        if fit.kernel.of_objects and sample is not None:
            # The left-out rows are used later, when those of the fit are gone.
            kernel = fit.kernel.holding(np.concatenate([fit.landmarks.points, sample.X]))
            found |= {"kernel_": kernel, "map_": replace(fit.map, kernel=kernel)}
        self.__dict__.clear()
        self.__dict__.update(kept | found | results)
        return self

    def _engine(self, rows: RowBlocks, work: Footprint | None = None, *, n_columns: int = 1, held: int = 0) -> Engine:
        """Return the engine for these rows, with as many threads as ``max_memory`` allows for ``work``.

        By default the work computes ``n_columns`` numbers per row; ``held`` is the number of bytes of an array of them.
        """
        m = self.landmarks_.shape[0] if "landmarks_" in vars(self) else 0
        advice = _EMIT_ADVICE if held else FIT_ADVICE
        default = partial(emit_footprint, rows, m, n_columns, held=held)
        return self._resources().engine(rows, work or default, advice=advice)

    def _emit(
        self,
        rows: RowBlocks,
        function: Callable[[Block], Array],
        n_columns: int | None,
        dtype: DTypeLike,
        *,
        label: str,
        out: OutPath = None,
    ) -> Emitted:
        """Return the result of ``function`` for each block of finite rows, as one array or in ``out``: one pass."""
        name = rows.name

        def step(block: Block) -> Array:
            require_finite(block.X, name, block.start)
            return function(block)

        held = rows.shape[0] * (n_columns or 1) * np.dtype(dtype).itemsize if out is None else 0
        engine = self._engine(rows, n_columns=n_columns or 1, held=held)
        if out is None:
            return engine.emit(rows, step, n_columns, dtype, label=label)
        from nystrom.output import describe_job, write_rows

        job = describe_job(self.map_, label, vars(self))
        return write_rows(out, rows, engine, step, n_columns or 1, dtype, job=job, label=label)

    def merge(self, other: Self) -> Self:
        """Return the estimator fitted to the rows of both, which must share landmarks and kernel; reads no row.

        Fit both with ``landmarks=<the same array>`` and a numeric ``gamma``, on rows that do not overlap. Parameters
        such as ``alpha`` are those of the first. Raises for machines that need the rows themselves and not only sums
        over them.
        """
        self._check_merge(other)
        merged = copy(self)
        merged._keep(self.map_.merge(other.map_))
        return merged

    def _keep(self, fitted: NystromMap) -> None:
        """Store another map with the same landmarks, and the results that follow from its sums."""
        self.__dict__.update(_results_of(fitted), certificate_=certify(fitted), **self._solved(fitted))

    def _check_merge(self, other: Self) -> None:
        """Raise unless the sums of both fits add up to those of one fit."""
        name = type(self).__name__
        if type(self)._solved is KernelMachine._solved:
            raise ValueError(
                f"{name} cannot be merged: it reads the rows again after the map is fitted, and a merge has none. "
                f"Merge Nystroem, and fit {name} to all rows with landmarks=merged.landmarks_."
            )
        if type(other) is not type(self):
            raise ValueError(f"{name} merges with another {name} only; got {type(other).__name__}.")
        check_is_fitted(self)
        check_is_fitted(other)
        if not self.map_.kernel.has_coordinates:
            raise ValueError("merge needs rows with coordinates; kernel='precomputed' has none.")
        names, others = (getattr(machine, "feature_names_in_", None) for machine in (self, other))
        if not np.array_equal(names, others):  # type: ignore[arg-type]
            raise ValueError(
                "the two fits have different columns, or a different order of columns; fit both to the same columns."
            )
        targets = [machine.map_.statistics.cross.shape[1] for machine in (self, other)]
        if targets[0] != targets[1]:
            raise ValueError(
                f"the two fits have {targets[0]} and {targets[1]} targets; to merge, both need the same number."
            )

    def _solved(self, fitted: NystromMap) -> dict[str, Any]:
        """Return the results of the machine that follow from the sums of the map."""
        raise NotImplementedError

    def save(self, path: str | os.PathLike[str], *, full: bool = False) -> None:
        """Save the fitted estimator in one file without pickle, for :func:`nystrom.load`; see :func:`nystrom.save`."""
        nystrom.save(self, path, full=full)

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
            "trace" is exact. "fro" is exact up to 2,000 rows, and estimated from all pairs among a sample of rows for
            more. "spectral" is a bracket: narrow up to 10,000 rows, from inequalities with the Frobenius norm for more.
        exact : bool
            Whether to evaluate all pairs of rows, for any number of rows: O(n² p) time. "spectral" is then a bracket
            from Lanczos iteration, with all rows in memory.
        n_pairs : int
            Number of pairs of rows to evaluate; at least 100.
        confidence : float
            Probability that the interval contains the error.
        random_state : int, Generator, RandomState or None
            Seed of the sample.
        diag : array of shape (n,), optional
            k(x, x) of the rows, for ``norm="trace"`` with ``kernel="precomputed"`` and rows other than the training
            rows.

        Returns
        -------
        ErrorEstimate
            With ``value``, ``low`` and ``high``.
        """
        check_is_fitted(self)
        rows = self._check_X(X, reset=False)
        asked: dict[str, Any] = {
            "exact": exact,
            "n_pairs": n_pairs,
            "confidence": confidence,
            "random_state": random_state,
        }
        return quality.approximation_error(self, rows, norm, diag=diag, **asked)

    def best_possible(
        self,
        X: RowsLike,
        n_components: int | None = None,
        *,
        norm: str = "fro",
        confidence: float = 0.95,
        random_state: RandomState = 0,
    ) -> ErrorEstimate:
        """Return the relative error of the exact best rank r for the rows X and this kernel.

        Parameters
        ----------
        X : rows
            Any rows.
        n_components : int or None
            r; None for the rank of the map that :meth:`approximation_error` measures. For :class:`nystrom.KernelPCA`
            that map has every direction of the landmarks, not only those of the components.
        norm, confidence, random_state
            As in :func:`nystrom.best_possible`.

        Returns
        -------
        ErrorEstimate
            Exact up to 2,000 rows, with an interval for more.
        """
        check_is_fitted(self)
        rank = check_optional_count(n_components, "n_components") or quality.known_map(self).n_components
        rows = self._check_X(X, reset=False)
        return quality.best_possible(self, rows, rank, norm=norm, confidence=confidence, random_state=random_state)

    def unexplained_rows(self, X: RowsLike) -> Array:
        """Return the numbers of the rows that the landmarks explain to less than a tenth: one pass.

        Such rows are rare or far from all others. Give them landmarks (``landmarks="rpcholesky"``, or include these
        rows in ``landmarks``), or remove them.
        """
        check_is_fitted(self)
        return quality.unexplained_rows(self, self._check_X(X, reset=False))

    @property
    def quality_(self) -> str:
        """One line on the quality of the approximation: the explained part, and the rows that are not explained."""
        check_is_fitted(self)
        return quality.describe(getattr(self, "certificate_", None))

    def residual(self, X: RowsLike, *, diag: TargetLike = None, out: OutPath = None) -> Emitted:
        """Return ``k(x, x) − ‖φ(x)‖²`` of each row: 0 if the landmarks explain it, k(x, x) if they do not.

        With ``out``, a path, it is streamed there, as in :meth:`nystrom.Nystroem.transform`. ``diag`` is k(x, x) of
        each row, for ``kernel="precomputed"`` and rows other than the training rows.
        """
        check_is_fitted(self)
        rows = self._check_X(X, reset=False)
        fitted = quality.map_for(self, rows, diag)

        def function(block: Block) -> Array:
            return fitted.residual(block.X, start=block.start)

        return self._emit(rows, function, None, np.float64, label="residual", out=out)

    def _repr_html_inner(self) -> str:
        return summary_html(self) + super()._repr_html_inner()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**options)
        if "text/html" in bundle:
            bundle["text/html"] = summary_html(self) + bundle["text/html"]
        return bundle

    def __sklearn_array_api_convert__(self, converter: Callable[[Any], Any]) -> Self:
        """Return the model for rows in another namespace: it computes there, and keeps its own arrays on the host."""
        moved = copy(self)
        for name in ("_like", "labels_"):
            if hasattr(self, name):
                setattr(moved, name, converter(getattr(self, name)))
        if not hasattr(self, "_like"):
            moved._like = converter(np.empty(0))
        return moved

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.array_api_support = True
        kernel = given_kernel(self)
        own = not kernel.has_coordinates if isinstance(kernel, Kernel) else kernel == "precomputed"
        tags.input_tags.pairwise = own
        return tags


def _results_of(fitted: NystromMap | UnfactoredMap) -> dict[str, Any]:
    """Return the public attributes of a map, under scikit-learn's naming convention."""
    found: dict[str, Any] = {
        "map_": fitted,
        "landmarks_": _shown(fitted.kernel, fitted.landmarks.points),
        "landmark_indices_": fitted.landmarks.indices,
        "kernel_": fitted.kernel,
    }
    if isinstance(fitted, UnfactoredMap):
        return found | {"n_components_": len(fitted.landmarks)}
    found |= {"eigenvalues_": fitted.eigenvalues, "projection_": fitted.projection}
    return found | {"n_components_": fitted.n_components}


def extended(machine: KernelMachine, rows: RowBlocks) -> NystromMap:
    """Return the map of a machine with these rows added, for the same landmarks and kernel: one pass over them."""
    if not machine.map_.kernel.has_coordinates:
        raise ValueError("partial_fit needs rows with coordinates; kernel='precomputed' has none.")
    work = fit_footprint(rows, machine.landmarks_.shape[0])
    return extend(machine.map_, Passes(rows, machine._engine(rows, work)))


def _shown(kernel: Kernel, points: Matrix) -> Matrix:
    """Return the landmarks as shown to users: points, or a column of objects."""
    if not kernel.of_objects:
        return points
    found = np.empty((points.shape[0], 1), dtype=object)
    for i, value in enumerate(kernel.objects(points)):
        found[i, 0] = value
    return found


def opened(X: RowsLike, y: TargetLike = None, columns: list[str] | None = None) -> tuple[RowsLike, TargetLike]:
    """Return the rows of a path, which hold the target y (such as the name of a column); anything else unchanged."""
    if not isinstance(X, (str, os.PathLike)):
        return X, y
    return open_rows(X, target=y, columns=columns), None


def _check_like_fit(machine: KernelMachine, rows: RowBlocks, *, from_file: bool) -> None:
    """Raise if the columns of the rows differ in number, names or order from those of the fit, or their device does.

    Files are read by the host, whatever the model was fitted to. If only the rows or only the fit have column names,
    scikit-learn's warning is issued, unless the rows come ``from_file``: names in a file are not the caller's choice.
    """
    owner = type(machine).__name__
    fitted, given = vars(machine).get("feature_names_in_"), rows.feature_names
    if fitted is not None and given is not None:
        if list(fitted) != list(given):
            raise ValueError(_differences(list(fitted), list(given)))
    elif given is not None and not from_file:
        warn_caller(f"X has feature names, but {owner} was fitted without feature names", UserWarning)
    elif fitted is not None and not from_file:
        warn_caller(f"X does not have valid feature names, but {owner} was fitted with feature names", UserWarning)
    expected = machine.n_features_in_
    if rows.shape[1] != expected:
        raise ValueError(f"X has {rows.shape[1]} features, but {owner} is expecting {expected} features as input.")
    if from_file or "_like" not in vars(machine) or not dispatches():
        return
    there, here = place_of(machine._like), rows.home
    if there != here:
        raise ValueError(
            f"{owner} was fitted to arrays of {there or 'NumPy'}, and these are of {here or 'NumPy'}. Give both in one "
            f"namespace and on one device, or move the model: from sklearn.utils._array_api import move_estimator_to; "
            f"model = move_estimator_to(model, xp, device)."
        )


def _differences(fitted: list[str], given: list[str]) -> str:
    lines = ["The feature names should match those that were passed during fit."]
    unseen, missing = sorted(set(given) - set(fitted)), sorted(set(fitted) - set(given))
    if unseen:
        lines += ["Feature names unseen at fit time:", *_listed(unseen)]
    if missing:
        lines += ["Feature names seen at fit time, yet now missing:", *_listed(missing)]
    if not unseen and not missing:
        lines += ["Feature names must be in the same order as they were in fit."]
    return "\n".join([*lines, ""])


def _listed(names: list[str]) -> Iterable[str]:
    return [f"- {name}" for name in names[:_MOST_NAMES]] + ["- ..."] * (len(names) > _MOST_NAMES)


def tell_callbacks(fit: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method ``fit`` that tells the callbacks of its machine, if it has any, of its stages and its result."""

    @wraps(fit)
    def told(machine: Any, X: Any, y: Any = None, *more: Any, **named: Any) -> Any:
        inside = hasattr(machine, "_callback_fit_ctx")  # called by the fit of a subclass
        run = fit if inside or not getattr(machine, "_skl_callbacks", None) else with_callbacks(_run_told)
        return run(machine, X, y, *more, **named) if run is fit else run(machine, fit, X, y, *more, **named)

    return told


def _run_told(machine: Any, fit: Callable[..., Any], X: Any, y: Any, *more: Any, **named: Any) -> Any:
    root = machine._init_callback_context(max_subtasks=None)
    given = {"X": X, "y": y, "metadata": {name: named[name] for name in ("sample_weight",) if name in named}}

    @contextmanager
    def watch(stage: str) -> Iterator[None]:
        task = root.subcontext(task_name=stage).call_on_fit_task_begin(estimator=machine)
        yield
        task.call_on_fit_task_end(estimator=machine)

    root.call_on_fit_task_begin(estimator=machine, **given)
    token = WATCHER.set(watch)
    try:
        fitted = fit(machine, X, y, *more, **named)
    finally:
        WATCHER.reset(token)
    results = {name: value for name, value in vars(machine).items() if name not in machine._get_param_names()}
    results = {name: value for name, value in results.items() if "callback" not in name}
    root.call_on_fit_task_end(estimator=machine, **given, reconstruction_attributes=results)
    return fitted
