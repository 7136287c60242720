"""The stages of a fit: one function runs them from top to bottom, without reference to any estimator."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from nystrom.checks import RandomState, check_optional_count, make_generator
from nystrom.engine import Resources
from nystrom.engine.memory import Footprint, fit_footprint
from nystrom.engine.passes import Passes
from nystrom.engine.progress import stage
from nystrom.errors.trace import Certificate, ErrorEstimate, certify, look_at_rows, warn_if_cut, warn_if_unexplained
from nystrom.exceptions import ApproximationWarning, warn_caller
from nystrom.kernels import Gaussian, Kernel
from nystrom.landmarks import Landmarks, Selector
from nystrom.landmarks.auto import Auto
from nystrom.landmarks.base import GIVEN, View, see
from nystrom.nystroem.factor import FACTORS, NystromMap, truncate
from nystrom.nystroem.fit_pass import Kept
from nystrom.rows import RowBlocks
from nystrom.rows.base import ArrayRows
from nystrom.sizing.growing import Grown, grow_by_components, grow_by_score
from nystrom.sizing.rare_rows import UnlikeRows, can_watch, costs_too_much, count_unlike, unlike_rows, with_rare_rows
from nystrom.sizing.tolerance import Sized, cut_rank, find_size, why_not_met
from nystrom.solvers.landmark_cg import UnfactoredMap
from nystrom.tuning.kernel_rule import KernelRule
from nystrom.tuning.search import Tried
from nystrom.types import Array

# Recomputing a Gaussian kernel of rows in memory is faster than storing it for up to this many columns ...
_QUICK_COLUMNS = 128
# ... unless the kernel values take no more than this many bytes.
_SMALL_BYTES = 8 * 2**20
# Largest number of bytes of kernel values that a fit keeps for the features.
_KEPT_BYTES = 256 * 2**20
# Default number of landmarks if no rank is given: a fit to a million rows then takes seconds.
DEFAULT_LANDMARKS = 1000
# Use more landmarks if the default number leaves more than this fraction of the kernel unexplained: 4 of 9 graph cuts
# of 2,000 and 5,000 rows were wrong then, and only one with 1,000 landmarks.
_GROWS_ABOVE = 0.25
# Largest number of multiplications in the larger fit: about ten seconds on one core.
_CHEAP = 2**37
# Number of components that must be stable for n_landmarks="auto" without a rank.
_COMPONENTS_TO_SETTLE = 20


@dataclass(frozen=True)
class Size:
    """The number of landmarks, and the result of the search for it."""

    m: int
    tried: tuple[tuple[int, Any], ...] | None = None
    sized: Sized | None = None


class SizeRule(Protocol):
    """A rule for the number of landmarks."""

    @property
    def most(self) -> int:
        """The largest number of landmarks that a fit may hold."""

    def __call__(self, view: View, selector: Selector, seed: RandomState) -> Size:
        """Return the number of landmarks for the rows of the view."""


@dataclass(frozen=True)
class GivenSize:
    """The given or default number of landmarks; the search for a metric may replace the default."""

    most: int
    is_default: bool = False

    def __call__(self, view: View, selector: Selector, seed: RandomState) -> Size:
        return Size(self.most)


@dataclass(frozen=True)
class GrownSize:
    """Double the landmarks until the score (with a target) or the components (without) are stable."""

    least: int
    most: int
    # For a machine with a target: its usual number of landmarks, and whether it has an intercept.
    usual: int | None = None
    intercept: bool = True
    rank: int | None = None
    limit: str = "it takes"

    def __call__(self, view: View, selector: Selector, seed: RandomState) -> Size:
        rng = make_generator(seed).spawn(1)[0]
        found = self._grow(view, selector, rng)
        if not found.settled:
            warn_caller(
                f"n_landmarks='auto' stopped at {len(found.landmarks)} landmarks, the most that {self.limit}; more "
                f"would still help. Give n_landmarks a number to take more.",
                ApproximationWarning,
            )
        return Size(len(found.landmarks), found.tried)

    def _grow(self, view: View, selector: Selector, rng: np.random.Generator) -> Grown:
        kernel, selector = view.resolved(), view.selector(selector)
        if self.usual is None:
            rank = self.rank or _COMPONENTS_TO_SETTLE
            return grow_by_components(view.passes, selector, kernel, rng, rank, least=self.least, most=self.most)
        least, most, usual = self.least, self.most, self.usual
        return grow_by_score(
            view.passes, selector, kernel, rng, least=least, most=most, usual=usual, intercept=self.intercept
        )


@dataclass(frozen=True)
class ToleranceSize:
    """The number of landmarks that brings the error below a tolerance."""

    tol: float
    norm: str
    most: int
    limit: str

    def __call__(self, view: View, selector: Selector, seed: RandomState) -> Size:
        selector, rng = view.selector(selector), make_generator(seed)
        found = find_size(view.passes, selector, view.kernel, self.tol, rng, norm=self.norm, most=self.most)
        return Size(len(found.landmarks), found.tried, found)

    def cut(
        self, fitted: NystromMap, found: Sized, selector: Selector, passes: Passes
    ) -> tuple[NystromMap, ErrorEstimate]:
        """Return the map with the fewest directions that the tolerance allows, and its error; warn if it is not met."""
        if not found.met:
            warn_caller(why_not_met(found, selector, self.tol, self.most, self.limit), ApproximationWarning)
            return fitted, found.error_of(fitted, passes)
        rank = cut_rank(fitted.eigenvalues, found.error, self.tol)
        while True:
            cut = truncate(fitted, rank)
            error = found.error_of(cut, passes)
            if error.high <= self.tol:
                return cut, error
            if rank >= fitted.n_components:
                # The rank was not cut: use the error from the search unless this one is exact.
                return cut, error if error.confidence == 1 else found.error
            rank = (rank + fitted.n_components + 1) // 2


@dataclass(frozen=True)
class FitRequest:
    """The specification of a fit: values and rules, checked.

    ``rank`` is that of the map. ``factor_landmarks`` is the number of landmarks in the factor: None for all, 0 for no
    factor. ``footprint`` returns the memory of a fit with m landmarks, given the bytes of the selection.
    """

    kernel: Kernel
    selector: Selector
    size: GivenSize | GrownSize | ToleranceSize
    rank: int | None = None
    kernel_rule: KernelRule = field(default_factory=KernelRule)
    factor: str = "optimal"
    factor_landmarks: int | None = None
    footprint: Callable[[RowBlocks, int, int, int], Footprint] = fit_footprint
    resources: Resources = field(default_factory=Resources)
    seed: RandomState = None
    announce: bool = True
    keep_kernel: bool = False

    def passes(self, rows: RowBlocks, m: int) -> Passes:
        """Return the rows with an engine that has enough memory for m landmarks."""
        m = self.selector.count(m, rows.shape[0])
        work = self.footprint(rows, m, self.selector.held_bytes(rows, m), self.selector.thread_bytes(rows, m))
        return Passes(rows, self.resources.engine(rows, work, check=True))

    def factorise(self, passes: Passes, kernel: Kernel, landmarks: Landmarks) -> NystromMap:
        """Return the map of the rows for a trial kernel."""
        return FACTORS[self.factor](passes, kernel, landmarks, self.rank)


@dataclass(frozen=True)
class StageRecord:
    """One completed stage of a fit: its passes over the rows, and its seconds."""

    name: str
    n_passes: int
    seconds: float


@dataclass(frozen=True)
class MapFit:
    """The result of a fit. ``landmarks`` contains all of them, even if the factor uses only some."""

    map: NystromMap | UnfactoredMap
    landmarks: Landmarks
    kernel: Kernel
    passes: Passes
    certificate: Certificate | None
    stages: tuple[StageRecord, ...]
    keep: Kept
    sizes_tried: tuple[tuple[int, Any], ...] | None = None
    error: ErrorEstimate | None = None
    metric_losses: Any = None
    search: tuple[Tried, ...] = ()

    @property
    def factored(self) -> NystromMap:
        """The map, for a fit with a factor."""
        assert isinstance(self.map, NystromMap)
        return self.map


def fit_map(rows: RowBlocks, request: FitRequest) -> MapFit:
    """Run every stage of a fit once and in order: metric, size, landmarks, width, factor, rare rows, certificate."""
    fit = _fit(rows, request)
    _warn(rows, fit)
    return fit


def fit_enough(rows: RowBlocks, request: FitRequest) -> MapFit:
    """Fit with the default size, and again with a larger one if much of the kernel is unexplained and that is cheap."""
    n, m = rows.shape[0], request.size.most
    more = request.resources.most_landmarks(rows, request.selector.held_bytes, max(DEFAULT_LANDMARKS, 5 * m))
    given = isinstance(request.selector, GIVEN) or not isinstance(request.size, GivenSize)
    fit = _fit(rows, request)
    much = fit.certificate is not None and fit.certificate.unexplained > _GROWS_ABOVE
    if much and not given and more > m and n * more**2 <= _CHEAP:
        fit = _fit(rows, replace(request, size=GivenSize(more)))
    _warn(rows, fit)
    return fit


def _fit(rows: RowBlocks, request: FitRequest) -> MapFit:
    try:
        return _run(rows, request)
    except MemoryError as error:
        if error.__cause__ is not None:
            raise
        raise MemoryError(
            f"the fit ran out of memory ({error}). Use fewer landmarks or fewer columns of X. With max_memory= the fit "
            f"checks its need before it starts."
        ) from error


def _warn(rows: RowBlocks, fit: MapFit) -> None:
    """Warn of what a fit has lost, except for fits to a tolerance, which have a warning of their own."""
    if isinstance(fit.map, NystromMap) and fit.certificate is not None and fit.error is None:
        warn_if_unexplained(fit.certificate, rows, fit.map)
        warn_if_cut(fit.certificate, fit.map)


def _run(rows: RowBlocks, request: FitRequest) -> MapFit:
    began = time.perf_counter()
    passes, rng = request.passes(rows, request.size.most), make_generator(request.seed)
    # Replace column names by numbers, and give functions of objects their columns.
    request = replace(request, kernel=request.kernel.bind(rows.feature_names, rows.n_columns, rows.frame))
    with stage("metric"):
        metric = request.kernel_rule.in_metric(passes, request.kernel, rng)
        view = see(passes, metric.kernel)
    with stage("number of landmarks"):
        size = request.size(view, request.selector, request.seed)
    if metric.n_landmarks is not None and isinstance(request.size, GivenSize) and request.size.is_default:
        size = Size(request.resources.most_landmarks(rows, request.selector.held_bytes, metric.n_landmarks))
    if size.m != request.size.most and size.sized is None and request.resources.max_memory is not None:
        passes = request.passes(rows, size.m)
        view = view.over(passes)
    if size.sized is not None:
        landmarks, kernel = view.outside(size.sized.landmarks), view.back(view.resolved())
    else:
        with stage("landmarks"):
            landmarks, inside = view.select(request.selector, size.m, rng, announce=request.announce)
        with stage("bandwidth"):
            kernel = view.back(request.kernel_rule.width(view, inside, rng, request.factorise))
    name = "landmarks" if size.sized is None else "search"
    stages = [StageRecord(name, passes.n_passes, time.perf_counter() - began)]
    fitted, unlike, keep = _factorise(passes, kernel, landmarks, request)
    error = None
    if isinstance(request.size, ToleranceSize) and size.sized is not None and isinstance(fitted, NystromMap):
        fitted, error = request.size.cut(fitted, size.sized, request.selector, passes)
    n_passes = passes.n_passes - stages[0].n_passes
    stages.append(StageRecord("factor", n_passes, time.perf_counter() - began - stages[0].seconds))
    if kernel.of_objects:
        kernel = kernel.holding(landmarks.points)
        fitted = replace(fitted, kernel=kernel)
    certificate = None
    if isinstance(fitted, NystromMap):
        certificate = _certify(passes, fitted, unlike, keep, stages)
    return MapFit(
        fitted,
        landmarks,
        kernel,
        passes,
        certificate,
        tuple(stages),
        keep,
        size.tried,
        error,
        metric.losses,
        metric.tried,
    )


@stage("factor")
def _factorise(
    passes: Passes, kernel: Kernel, landmarks: Landmarks, request: FitRequest
) -> tuple[NystromMap | UnfactoredMap, UnlikeRows | None, Kept]:
    """Return the map of all rows, the rows unlike every landmark, and the kernel values kept.

    Some landmarks of "auto" move to rare clusters that it missed, unless the other rows lose too much. Landmarks that
    were found for a tolerance do not move.
    """
    if request.factor_landmarks == 0:
        return UnfactoredMap(landmarks, kernel), None, Kept(None)
    if request.factor_landmarks is not None:
        few = np.linspace(0, len(landmarks) - 1, min(request.factor_landmarks, len(landmarks))).astype(int)
        landmarks = Landmarks(landmarks.points[few], None)
    watch = isinstance(request.selector, Auto) and request.factor_landmarks is None
    watch = watch and can_watch(passes, kernel, landmarks)
    largest = np.empty(passes.rows.shape[0], passes.rows.dtype) if watch else None
    # A function of objects may be slow: evaluate it once.
    wanted = request.keep_kernel or kernel.of_objects
    keep = _room_for_kernel(passes, kernel, len(landmarks), largest) if wanted else Kept(None, largest)
    factorise = FACTORS[request.factor]
    fitted = factorise(passes, kernel, landmarks, request.rank, keep=keep)
    if keep.largest is None:
        return fitted, None, keep
    unlike, keep.largest = unlike_rows(passes, keep.largest), None
    better = None
    if unlike is not None and not isinstance(request.size, ToleranceSize):
        better = with_rare_rows(passes, fitted, unlike)
    if unlike is None or better is None:
        return fitted, unlike, keep
    moved = factorise(passes, kernel, better, request.rank, keep=keep)
    if costs_too_much(moved, fitted, unlike):
        keep.values = keep.tiles = None  # they are those of the landmarks given up
        return fitted, unlike, keep
    return moved, unlike, keep


def _certify(
    passes: Passes, fitted: NystromMap, unlike: UnlikeRows | None, keep: Kept, stages: list[StageRecord]
) -> Certificate:
    """Return the certificate, after checking some rows and those unlike every landmark."""
    certificate = look_at_rows(certify(fitted), passes, fitted, keep.values)
    if unlike is not None:
        certificate = count_unlike(certificate, fitted, unlike)
    return replace(certificate, stages=tuple((stage.name, stage.seconds) for stage in stages))


def _room_for_kernel(passes: Passes, kernel: Kernel, m: int, largest: Array | None) -> Kept:
    """Return what keeps C too, unless it would be large, or recomputing it is faster."""
    rows = passes.rows
    n_bytes = rows.shape[0] * m * rows.dtype.itemsize
    in_memory = isinstance(rows, ArrayRows) and not rows.is_sparse
    if in_memory and isinstance(kernel, Gaussian) and rows.shape[1] <= _QUICK_COLUMNS and n_bytes > _SMALL_BYTES:
        return Kept(None, largest)
    left = passes.engine.room if rows.place is None else rows.place.memory
    room = _KEPT_BYTES if left is None else min(_KEPT_BYTES, left)
    if not passes.engine.reads_here(rows) or n_bytes > room:
        return Kept(None, largest)
    if rows.place is not None:
        return Kept(None, largest, tiles={})
    return Kept(np.empty((rows.shape[0], m), rows.dtype), largest)


def resolve_sizes(
    n_components: object, n_landmarks: object, n_rows: int, *, least: int = 1, default_rank: object = None
) -> tuple[int | None, int]:
    """Return (rank or None, number of landmarks): m is 2r by default, at least ``least`` and at most the row count.

    A rank equal to ``default_rank`` is capped at ``n_landmarks``; any other above it is an error.
    """
    rank = check_optional_count(n_components, "n_components")
    m = check_optional_count(n_landmarks, "n_landmarks")
    if m is not None and rank is not None and rank > m:
        if rank == default_rank:
            return m, min(m, n_rows)
        raise ValueError(
            f"n_components={rank} is larger than n_landmarks={m}: {m} landmarks span at most {m} directions. "
            f"Lower n_components, raise n_landmarks, or leave n_landmarks=None for twice n_components."
        )
    if m is None:
        m = DEFAULT_LANDMARKS if rank is None else max(2 * rank, least)
    return rank, min(m, n_rows)
