"""Rules for what a fit learns about its kernel: the metric before the landmarks, the width after them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nystrom.checks import check_choice
from nystrom.engine.base import Engine
from nystrom.engine.passes import Passes
from nystrom.kernels import InMetric, Kernel, Laplacian
from nystrom.landmarks import Landmarks
from nystrom.landmarks.base import View, see
from nystrom.nystroem.factor import NystromMap
from nystrom.rows import RowBlocks
from nystrom.tuning.bandwidth import Factorise, search_gamma
from nystrom.tuning.judge import Reach
from nystrom.tuning.metric import METRICS, MetricLike, check_learnable, kinds_of, metric_root, plain_kernels
from nystrom.tuning.search import Learned, Space, TimeLimit, Tried, learn_kernel

# From the map of some rows, the rows, their engine, and the weight of all rows, to a number to be minimised.
Criterion = Callable[[NystromMap, RowBlocks, Engine, float], float]


@dataclass(frozen=True)
class WidthRule:
    """How a Gaussian process judges a width: by a criterion to be minimised, within bounds."""

    criterion: Criterion
    bounds: tuple[float, float] = (0.0, np.inf)


@dataclass(frozen=True)
class Metric:
    """The kernel in its metric; after a search also the number of landmarks that it suggests, losses and trials."""

    kernel: Kernel
    n_landmarks: int | None = None
    losses: Any = None
    tried: tuple[Tried, ...] = ()


@dataclass(frozen=True)
class KernelRule:
    """Which parts of the kernel are learned from the rows; by default only ``gamma="scale"`` is computed.

    Parameters
    ----------
    metric : "diagonal", "full", "auto", array or None
        As in the machines with a target.
    several : bool
        Whether the kernel is chosen among several, as for ``kernel="auto"``.
    any_width : bool
        Whether the width is searched, as for ``gamma="auto"``.
    classes, fit_intercept : bool
        Whether the machine learns classes, and whether it has an intercept.
    reach : Reach
        The regularisations that the machine can use.
    n_landmarks : int or None
        The number given by the user.
    limit : TimeLimit or None
        The time limit.
    likelihood : WidthRule or None
        How a Gaussian process judges the width after the landmarks are selected.
    """

    metric: MetricLike = None
    several: bool = False
    any_width: bool = False
    classes: bool = False
    fit_intercept: bool = True
    reach: Reach = field(default_factory=Reach)
    n_landmarks: int | None = None
    limit: TimeLimit | None = None
    likelihood: WidthRule | None = None

    def in_metric(self, passes: Passes, kernel: Kernel, rng: np.random.Generator) -> Metric:
        """Return the kernel in the metric to use: given, or learned from held-out rows."""
        learns = isinstance(self.metric, str)
        if isinstance(kernel, InMetric) and (self.metric is not None or self.several):
            chosen = "auto" if self.several else repr(kernel.kernel)
            raise ValueError(
                f"gamma has a bandwidth for each column, which is a metric; leave metric=None and name the kernel. Got "
                f"metric={self.metric!r}, kernel={chosen!r}."
            )
        if self.metric is not None and not learns:
            return self._in_given(passes, kernel, rng)
        if not (learns or self.several or self.any_width):
            return Metric(kernel)
        kinds: tuple[str, ...] = ()
        if learns:
            metric = check_choice(self.metric, "metric", METRICS)
            check_learnable(kernel, metric)
            kinds = kinds_of(metric, passes.rows.n_columns, sparse=passes.rows.is_sparse)
        learned = self._learn(passes, kernel, kinds, rng)
        root = learned.root
        if root is not None and root.ndim == 1 and self.metric == "full":
            root = np.diag(root)
        kernel = learned.kernel if root is None else InMetric(learned.kernel, root)
        return Metric(kernel, learned.n_landmarks, learned.losses if learns else None, learned.tried)

    def _in_given(self, passes: Passes, kernel: Kernel, rng: np.random.Generator) -> Metric:
        """Return the kernel in the given metric; kernel and width are chosen on the rows in that metric."""
        root = metric_root(self.metric, passes.rows.n_columns)
        if root.ndim == 2 and isinstance(kernel, Laplacian):
            raise ValueError(
                "the Laplacian kernel sums over columns, which metric as a matrix would mix: give one scale per "
                "column, or use kernel='matern'."
            )
        if not (self.several or self.any_width):
            return Metric(InMetric(kernel, root))
        seen = see(passes, InMetric(kernel, root))
        learned = self._learn(seen.passes, kernel, (), rng, mixed=root.ndim == 2)
        return Metric(InMetric(learned.kernel, root), learned.n_landmarks, None, learned.tried)

    def _learn(
        self, passes: Passes, kernel: Kernel, kinds: tuple[str, ...], rng: np.random.Generator, *, mixed: bool = False
    ) -> Learned:
        """Choose kernel and metric on held-out rows; without Laplacian kernels if columns are mixed."""
        rows = passes.rows
        kernels = plain_kernels(kernel, rows.n_columns, several=self.several, sparse=rows.is_sparse)
        space = Space(
            [each for each in kernels if not (mixed and isinstance(each, Laplacian))],
            kinds,
            any_width=self.any_width,
            # A likelihood searches one width.
            linear=self.several and self.likelihood is None,
            classes=self.classes,
            fit_intercept=self.fit_intercept,
            reach=self.reach,
            n_landmarks=self.n_landmarks,
            limit=self.limit,
        )
        return learn_kernel(passes, space, rng.spawn(1)[0])

    def width(self, view: View, landmarks: Landmarks, rng: np.random.Generator, factorise: Factorise) -> Kernel:
        """Return the kernel with numeric parameters, for landmarks in the coordinates of the view."""
        rule, kernel = self.likelihood, view.kernel
        if rule is None:
            return view.resolved()
        passes = view.passes
        count = passes.moments.count

        def criterion(fitted: NystromMap, rows: RowBlocks) -> float:
            return rule.criterion(fitted, rows, passes.engine, count)

        start = kernel.resolve(passes.moments)
        return search_gamma(passes, start, landmarks, factorise, criterion, rng, bounds=rule.bounds)
