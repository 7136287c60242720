"""What every estimator shares: parameters checked once, the map fitted, its results stored."""

from __future__ import annotations

import os
import time
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

import nystrom
from nystrom.certificate import certify
from nystrom.certificate.fit_warnings import look_at_rows, warn_if_cut, warn_if_unexplained
from nystrom.checks import check_choice, check_optional_count
from nystrom.engine import (
    Engine,
)
from nystrom.engine.survey import Survey
from nystrom.estimators.all_or_nothing import restore_on_failure
from nystrom.estimators.display import StageRecord
from nystrom.estimators.parameters import check_names, complete
from nystrom.estimators.quality import QualityMixin
from nystrom.exceptions import ApproximationWarning
from nystrom.factor import FACTORS, NystromMap, extend
from nystrom.fold import Kept
from nystrom.generator import RandomState, make_generator
from nystrom.kernels import GammaLike, Gaussian, InMetric, Kernel, KernelLike, Precomputed, make_kernel
from nystrom.landmarks import Landmarks, LandmarksLike, Selector, make_selector
from nystrom.landmarks.auto import Auto
from nystrom.landmarks.base import resolve
from nystrom.landmarks.in_metric import select_in_metric
from nystrom.linalg import algebra_threads
from nystrom.machine import machine_memory
from nystrom.memory import Footprint, fit_footprint, parse_memory
from nystrom.rows import RowBlocks
from nystrom.rows.arrays import ArrayRows
from nystrom.solvers.rare_clusters import Apart, can_watch, costs_too_much, count_apart, rows_apart, with_rare_rows
from nystrom.solvers.sizing import Grown, grow_by_components
from nystrom.threads import limit_methods
from nystrom.types import Array
from nystrom.warn import warn_caller

# Up to this many columns a Gaussian kernel of rows in memory is computed again sooner than fresh memory is filled.
_QUICK_COLUMNS = 128
# Memory of up to this size is soon filled.
_SMALL_BYTES = 8 * 2**20

# Without a rank to double, this many landmarks: enough for good accuracy, and still seconds for a million rows.
DEFAULT_LANDMARKS = 1000
# Without a rank, this many components must be stable for "auto".
_COMPONENTS_TO_SETTLE = 20


# More are seldom worth their time, which grows with the square of their number; a larger n_landmarks allows them.
MOST_LANDMARKS = 5000


def resolve_sizes(
    n_components: object, n_landmarks: object, n_rows: int, *, least: int = 1, yielding: object = None
) -> tuple[int | None, int]:
    """Return (rank or None, number of landmarks): m is 2r by default, at least ``least``, never more than the rows.

    The rank ``yielding`` gives way to fewer landmarks; any other is an error then.
    """
    rank = check_optional_count(n_components, "n_components")
    m = check_optional_count(n_landmarks, "n_landmarks")
    if m is not None and rank is not None and rank > m:
        if rank == yielding:
            return m, min(m, n_rows)
        raise ValueError(
            f"n_components={rank} is larger than n_landmarks={m}: {m} landmarks span at most {m} directions. "
            f"Lower n_components, raise n_landmarks, or leave n_landmarks=None for twice n_components."
        )
    if m is None:
        m = DEFAULT_LANDMARKS if rank is None else max(2 * rank, least)
    return rank, min(m, n_rows)


class KernelMachine(QualityMixin):
    """Base of the estimators: from parameters and rows to one fitted :class:`NystromMap`.

    A subclass takes these parameters as ``**shared`` and hands them on; an entry ``**shared`` in its docstring is
    replaced by their text below.

    Parameters
    ----------
    kernel : str, Kernel or callable, default="gaussian"
        "gaussian" (or "rbf"), "polynomial", "linear", "laplacian", "matern", "cosine", "chi2", "additive_chi2",
        "sigmoid", "precomputed", a kernel object of :mod:`nystrom.kernels`, or a function.
    gamma : "scale", None, float or array, default="scale"
        Width of the kernel. "scale" is the paper's: one over the mean squared distance of the rows to their mean.
        None is scikit-learn's: one over the number of columns. An array has one for each column.
    n_components : int or None, default=None
        The rank r. None keeps every direction that the landmarks span.
    degree : int, default=3
        Of the polynomial kernel.
    coef0 : float, default=1
        The constant of the polynomial kernel.
    n_landmarks : int, "auto" or None, default=None
        m; by default twice ``n_components`` and at least 100, or 1,000 without a rank, and at most the number of rows.
        "auto" doubles it from there until held-out errors (with a target) or the components (without) change by no more
        than their noise, up to 5,000 and to what ``max_memory`` allows.
    landmarks : str, array or selector, default="auto"
        How landmarks are chosen: a name ("auto", "sketched-kmeans", "kmeans", "uniform", "diagonal", "column-norm",
        "leverage", "kmeans++", "rpcholesky"), an m × p array of points, an array of row numbers, or a selector object
        of :mod:`nystrom.landmarks`.
    factor : {"optimal", "standard"}, default="optimal"
        Algorithm 2 or Algorithm 1.
    max_memory : str, int or None, default=None
        What a fit may add to the process, as "2GB" or in bytes.
    n_jobs : int or None, default=None
        Threads; None is all cores. The result is the same for any number.
    engine : {"auto", "local", "dask"}, default="auto"
        Where passes run. "auto": a Dask collection on its cluster (its features are then lazy Dask arrays), anything
        else here. "dask" sends X to the cluster of the active ``distributed.Client``; of files only the name is sent.
    random_state : int, Generator, RandomState or None, default=None
        Seed.
    verbose : int, default=0
        1 shows the progress of each pass.
    """

    # Fewer leave even a few components far from the exact ones: with 4 landmarks two axes of kernel PCA correlated with
    # theirs by 0.81 and 0.73, with 100 by 0.9999.
    _least_landmarks = 100

    @property
    def _yielding_rank(self) -> int | None:
        """The rank that gives way to fewer landmarks, since nobody has asked for it."""
        return None

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        complete(cls)
        restore_on_failure(cls)
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
        n_jobs: int | None = None,
        engine: str = "auto",
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.n_components = n_components
        self.degree = degree
        self.coef0 = coef0
        self.n_landmarks = n_landmarks
        self.landmarks = landmarks
        self.factor = factor
        self.max_memory = max_memory
        self.n_jobs = n_jobs
        self.engine = engine
        self.random_state = random_state
        self.verbose = verbose

    def _fit_engine(self, rows: RowBlocks, selector: Selector, m: int) -> Engine:
        if rows.on_cluster:
            return self._engine(rows)
        m = selector.count(m, rows.shape[0])
        work = self._footprint(rows, m, selector.held_bytes(rows, m), selector.thread_bytes(rows, m))
        if self.max_memory is None:
            work.check_machine()
            return self._engine(rows)
        return self._engine(rows, work)

    def _factor_fits(self, rows: RowBlocks, m: int) -> bool:
        """Whether a factor of m landmarks fits into ``max_memory``, or into this machine."""
        budget = parse_memory(self.max_memory) or machine_memory()
        return budget is None or rows.on_cluster or fit_footprint(rows, m).least <= budget

    def _footprint(self, rows: RowBlocks, m: int, selection_bytes: int, selection_thread_bytes: int) -> Footprint:
        """Return what a fit adds to the process."""
        return fit_footprint(rows, m, selection_bytes, selection_thread_bytes)

    def _kernel(self) -> Kernel:
        return make_kernel(self.kernel, gamma=self.gamma, degree=self.degree, coef0=self.coef0)

    def _check_parameters(self) -> None:
        self._kernel()
        check_choice(self.factor, "factor", FACTORS)

    def _settle_metric(
        self, survey: Survey, kernel: Kernel, n_landmarks: int, rng: np.random.Generator
    ) -> tuple[Kernel, int]:
        """Return the kernel in the metric to be used and the landmarks; a machine with a target may learn both here."""
        return kernel, n_landmarks

    def _settle_kernel(self, survey: Survey, kernel: Kernel, landmarks: Landmarks, rng: np.random.Generator) -> Kernel:
        """Return the kernel with numbers for all its parameters; a machine with a target may search for them here."""
        return resolve(kernel, survey)

    def _fit_map(self, rows: RowBlocks, *, keep_kernel: bool = False, cut_rank: bool = True) -> tuple[NystromMap, Kept]:
        """Choose landmarks and fit the map; with ``keep_kernel`` also return C if it is small enough to hold.

        Without ``cut_rank`` the map keeps every direction, for a machine that cuts to ``n_components`` afterwards.
        """
        survey, kernel, landmarks, rank = self._choose_landmarks(rows)
        keep = Kept(self._room_for_kernel(survey, kernel, landmarks.points.shape[0]) if keep_kernel else None)
        before, began = survey.n_passes, time.perf_counter()
        with algebra_threads(len(landmarks)):
            fitted, apart = self._factorise_all(survey, kernel, landmarks, rank if cut_rank else None, keep)
            self._stages += (StageRecord("factor", survey.n_passes - before, time.perf_counter() - began),)
            self._store_map(fitted)
            self._certify(rows, fitted, apart, keep)
            warn_if_unexplained(self.certificate_, rows, fitted)
            warn_if_cut(self.certificate_, fitted)
        return fitted, keep

    def _certify(self, rows: RowBlocks, fitted: NystromMap, apart: Apart | None, keep: Kept) -> None:
        """Store what is known of the fit, with a look at some rows and at those that stand apart."""
        certificate = look_at_rows(certify(fitted), rows, fitted, keep.values)
        if apart is not None:
            certificate = count_apart(certificate, fitted, apart)
        self.certificate_ = replace(certificate, stages=tuple((s.name, s.seconds) for s in self._stages))

    def _factorise_all(
        self, survey: Survey, kernel: Kernel, landmarks: Landmarks, rank: int | None, keep: Kept
    ) -> tuple[NystromMap, Apart | None]:
        """Return the map of all rows, and those that resembled no landmark.

        Rare clusters that "auto" has missed are given some of its landmarks, unless all other rows lose too much by it.
        """
        factorise = FACTORS[self.factor]
        fitted, apart = self._factorise_watched(survey, kernel, landmarks, rank, keep)
        better = None if apart is None else with_rare_rows(survey, fitted, apart)
        if apart is None or better is None:
            return fitted, apart
        moved = factorise(survey, kernel, better, rank, keep=keep)
        if costs_too_much(moved, fitted, apart):
            keep.values = None  # they are those of the landmarks given up
            return fitted, apart
        return moved, apart

    def _factorise_watched(
        self, survey: Survey, kernel: Kernel, landmarks: Landmarks, rank: int | None, keep: Kept
    ) -> tuple[NystromMap, Apart | None]:
        """Return the map of all rows with these landmarks, and the rows that resemble none of them if "auto" chose."""
        watch = isinstance(make_selector(self.landmarks), Auto) and can_watch(survey, kernel, landmarks)
        keep.largest = np.empty(survey.rows.shape[0], survey.rows.dtype) if watch else None
        fitted = FACTORS[self.factor](survey, kernel, landmarks, rank, keep=keep)
        apart = None if keep.largest is None else rows_apart(survey, keep.largest)
        keep.largest = None
        return fitted, apart

    def _choose_landmarks(self, rows: RowBlocks) -> tuple[Survey, Kernel, Landmarks, int | None]:
        """Return the surveyed rows, the kernel with numbers for its parameters, the landmarks and the rank."""
        check_choice(self.factor, "factor", FACTORS)
        kernel = self._checked_kernel(rows)
        began = time.perf_counter()
        rank, m = self._sizes(rows, kernel)
        selector = make_selector(self.landmarks)
        survey = Survey(rows, self._fit_engine(rows, selector, m))
        rng = make_generator(self.random_state)
        # With the default n_landmarks, fewer rows than landmarks are no reason to warn.
        announce = self.n_landmarks is not None
        planned = m
        kernel, m = self._settle_metric(survey, kernel, m, rng)
        if m != planned and self.max_memory is not None:
            survey = Survey(rows, self._fit_engine(rows, selector, m))
        if isinstance(kernel, InMetric):
            kernel, landmarks = select_in_metric(
                selector, survey, m, kernel, rng, settle=self._settle_kernel, announce=announce
            )
        else:
            landmarks = selector.select(survey, m, kernel, rng, announce=announce)
            kernel = self._settle_kernel(survey, kernel, landmarks, rng)
        self._stages: tuple[StageRecord, ...] = (
            StageRecord("landmarks", survey.n_passes, time.perf_counter() - began),
        )
        return survey, kernel, landmarks, rank

    def _sizes(self, rows: RowBlocks, kernel: Kernel) -> tuple[int | None, int]:
        """Return the rank and the number of landmarks; for "auto", as many landmarks as are enough."""
        if not isinstance(self.n_landmarks, str):
            least, yielding = self._least_landmarks, self._yielding_rank
            return resolve_sizes(self.n_components, self.n_landmarks, rows.shape[0], least=least, yielding=yielding)
        check_choice(self.n_landmarks, "n_landmarks", ("auto",))
        rank = check_optional_count(self.n_components, "n_components")
        selector = make_selector(self.landmarks)
        most = self._most_landmarks(rows, selector)
        survey = Survey(rows, self._fit_engine(rows, selector, most))
        kernel = resolve(kernel, survey)
        least = min(max(self._least_landmarks, 2 * (rank or 1)), rows.shape[0])
        rng = make_generator(self.random_state).spawn(1)[0]
        found = self._enough_landmarks(survey, selector, kernel, rng, least=least, most=max(most, least))
        self.sizes_tried_: tuple[tuple[int, Any], ...] = found.tried
        if not found.settled:
            warn_caller(
                f"n_landmarks='auto' stopped at {len(found.landmarks)} landmarks, the most that "
                f"{'max_memory allows' if most < MOST_LANDMARKS else 'it takes'}; more would still help. Give "
                f"n_landmarks a number to take more.",
                ApproximationWarning,
            )
        return rank, len(found.landmarks)

    def _enough_landmarks(
        self, survey: Survey, selector: Selector, kernel: Kernel, rng: np.random.Generator, *, least: int, most: int
    ) -> Grown:
        """Return enough landmarks for this machine; without a target, enough that its components are stable."""
        rank = check_optional_count(self.n_components, "n_components") or _COMPONENTS_TO_SETTLE
        return grow_by_components(survey, selector, kernel, rng, rank, least=least, most=most)

    def _most_landmarks(self, rows: RowBlocks, selector: Selector, most: int = MOST_LANDMARKS) -> int:
        """Return ``most``, or as many landmarks as there are rows, or as ``max_memory`` allows where that is fewer."""
        most = min(most, rows.shape[0])
        budget = parse_memory(self.max_memory)
        if budget is None or rows.on_cluster:
            return most
        low, high = 1, most
        while low < high:
            middle = (low + high + 1) // 2
            fits = fit_footprint(rows, middle, selector.held_bytes(rows, middle)).least <= budget
            low, high = (middle, high) if fits else (low, middle - 1)
        return low

    def _checked_kernel(self, rows: RowBlocks) -> Kernel:
        kernel = self._kernel()
        if isinstance(kernel, Precomputed) and rows.shape[0] != rows.shape[1]:
            raise ValueError(
                f"with kernel='precomputed' X must be the square kernel matrix of the training rows; "
                f"got shape {rows.shape}."
            )
        return kernel

    def _factorise(self, survey: Survey, kernel: Kernel, landmarks: Landmarks) -> NystromMap:
        """Return the map of rows for a kernel that is on trial, made as :meth:`_fit_map` would."""
        rank = check_optional_count(self.n_components, "n_components")
        return FACTORS[self.factor](survey, kernel, landmarks, rank)

    def _room_for_kernel(self, survey: Survey, kernel: Kernel, m: int) -> Array | None:
        """Return room for C, or None where it would be large, or where it takes less time to compute it again."""
        rows = survey.rows
        in_memory = isinstance(rows, ArrayRows) and not rows.is_sparse
        n_bytes = rows.shape[0] * m * rows.dtype.itemsize
        if in_memory and isinstance(kernel, Gaussian) and rows.shape[1] <= _QUICK_COLUMNS and n_bytes > _SMALL_BYTES:
            return None
        left = getattr(survey.engine, "room", None)
        room = 256 * 2**20 if left is None else min(256 * 2**20, left)
        if rows.on_cluster or n_bytes > room:
            return None
        return np.empty((rows.shape[0], m), rows.dtype)

    def _extend_map(self, rows: RowBlocks) -> None:
        """Add rows to the map, its landmarks and kernel kept: one pass over the new rows."""
        if isinstance(self.kernel_, Precomputed):
            raise ValueError("partial_fit needs rows with coordinates; kernel='precomputed' has none.")
        m = self.landmarks_.shape[0]
        work = None if rows.on_cluster else fit_footprint(rows, m)
        self._store_map(extend(self.map_, Survey(rows, self._engine(rows, work))))

    def merge(self, other: Self) -> Self:
        """Return the estimator fitted to the rows of both, which must share landmarks and kernel; no row is read.

        Fit both with ``landmarks=<the same array>`` and a numeric ``gamma``, on rows that do not overlap. Parameters
        such as ``alpha`` are those of the first. A machine that needs the rows themselves, and not only sums over
        them, refuses.
        """
        self._check_merge(other)
        merged = copy(self)
        merged._store_map(self.map_.merge(other.map_))
        merged._solve_merged()
        return merged

    def _check_merge(self, other: Self) -> None:
        """Raise unless the sums of both fits add up to those of one fit."""
        name = type(self).__name__
        if type(self)._solve_merged is KernelMachine._solve_merged:
            raise ValueError(
                f"{name} cannot be merged: it reads the rows again after the map is fitted, and a merge has none. "
                f"Merge Nystroem, and fit {name} to all rows with landmarks=merged.landmarks_."
            )
        if type(other) is not type(self):
            raise ValueError(f"{name} merges with another {name} only; got {type(other).__name__}.")
        check_is_fitted(self)
        check_is_fitted(other)
        if isinstance(self.kernel_, Precomputed):
            raise ValueError("merge needs rows with coordinates; kernel='precomputed' has none.")
        names, others = (getattr(machine, "feature_names_in_", None) for machine in (self, other))
        if not np.array_equal(names, others):  # type: ignore[arg-type]
            raise ValueError("the two fits have other columns, or the same in another order; fit both to the same.")
        targets = [machine.map_.statistics.cross.shape[1] for machine in (self, other)]
        if targets[0] != targets[1]:
            raise ValueError(f"the two fits have {targets[0]} and {targets[1]} targets; only fits of as many merge.")

    def _solve_merged(self) -> None:
        """Compute what the machine stores beside the map, from the map's sums alone."""
        raise NotImplementedError

    def save(self, path: str | os.PathLike[str], *, full: bool = False) -> None:
        """Save the fitted estimator in one file without pickle, for :func:`nystrom.load`; see :func:`nystrom.save`."""
        nystrom.save(self, path, full=full)

    def _store_map(self, fitted: NystromMap) -> None:
        self.map_ = fitted
        self.landmarks_ = fitted.landmarks.points
        self.landmark_indices_ = fitted.landmarks.indices
        self.kernel_ = fitted.kernel
        self.eigenvalues_ = fitted.eigenvalues
        self.projection_ = fitted.projection
        self.n_components_ = fitted.n_components
        self.certificate_ = certify(fitted)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = isinstance(self.kernel, Precomputed) or (
            isinstance(self.kernel, str) and self.kernel == "precomputed"
        )
        return tags
