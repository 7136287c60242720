"""Run experiments: from a specification to rows, one piece of work at a time, each stored as soon as it is done."""

from __future__ import annotations

import gc
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from nystrom.engine import LocalEngine, blas_threads
from nystrom.engine.passes import Passes
from nystrom.engine.progress import Progress, Silent
from nystrom.exceptions import AccuracyWarning, FewerLandmarksWarning, silenced
from nystrom.landmarks import KMeans, Landmarks, SketchedKMeans, Uniform
from nystrom.landmarks.sampled import column_norms, draw_weighted
from nystrom.nystroem import factor
from nystrom.nystroem.fit_pass import Kept
from nystrom.rows import as_blocks
from nystrom.sketch import sketch_dimension
from nystrom.types import Array
from reproduction.catalogue import RIDGE, Experiment, Method, Study
from reproduction.environment import Clock, PeakMemory, versions
from reproduction.measure import KernelRows, Measured, RidgeAnswer
from reproduction.paper_algorithms import optimal_as_written, standard_as_written
from reproduction.prepare import Prepared, prepare_study
from reproduction.records import Row, RowFile, identity
from reproduction.small_matrices import toy_rows

_MAP_SIZE = 4  # Figure 1 draws its maps at m = 4
_MAP_POINTS = 600


@dataclass(frozen=True)
class RunLimits:
    """How much to run.

    Attributes
    ----------
    trials
        Repetitions with different seeds.
    clustered_trials
        Fewer repetitions for k-means on the rows themselves, which costs far more than the rest; None for ``trials``.
    seconds
        Time after which no new piece of work is started; None for no limit.
    """

    trials: int
    clustered_trials: int | None = None
    seconds: float | None = None

    def wants(self, method: Method, trial: int) -> bool:
        limit = self.trials
        if method.landmarks == "kmeans" and self.clustered_trials is not None:
            limit = min(limit, self.clustered_trials)
        return trial < limit


@dataclass(frozen=True)
class Unfinished:
    """What a run could not do: the studies whose data is missing, and whether the time ran out."""

    missing: tuple[tuple[str, str], ...]
    stopped: bool


def run(
    experiments: tuple[Experiment, ...],
    file: RowFile,
    limits: RunLimits,
    *,
    progress: Progress | None = None,
) -> Unfinished:
    """Run what is not in ``file`` yet, appending rows as they are made.

    Trials are the outer loop: a run that is interrupted has the same number of trials, give or take one, at
    every size. Studies that share a set run one after another and load it once.
    """
    progress = progress or Silent()
    began = time.monotonic()
    missing: list[tuple[str, str]] = []
    for experiment in experiments:
        if experiment.key == "toy":
            _run_toy(file)
        for study in experiment.studies:
            with silenced(AccuracyWarning, FewerLandmarksWarning):
                data = prepare_study(study)
                if data is None:
                    missing.append((experiment.key, study.dataset))
                    continue
                bench = Bench(experiment.key, study, data)
                if not _run_study(bench, file, limits, progress, began):
                    return Unfinished(tuple(missing), stopped=True)
            del bench, data
            gc.collect()
    return Unfinished(tuple(missing), stopped=False)


def _run_toy(file: RowFile) -> None:
    rows = [{"experiment": "toy", "trial": 0, "dataset": "toy", "data_sha256": None, **row} for row in toy_rows()]
    for row in rows:
        row["method"] = f"{row['method']}-{row['norm']}"
    file.append([row for row in rows if identity(row) not in file.done])


def _run_study(bench: Bench, file: RowFile, limits: RunLimits, progress: Progress, began: float) -> bool:
    """Run the missing rows of one study; False if the time ran out."""
    tasks = [task for task in _tasks(bench, limits) if any(identity(row) not in file.done for row in task.rows)]
    progress.start(f"{bench.experiment} {bench.study.name}", sum(len(task.rows) for task in tasks))
    try:
        for task in tasks:
            if limits.seconds is not None and time.monotonic() - began > limits.seconds:
                return False
            wanted = [row for row in task.rows if identity(row) not in file.done]
            file.append(task.work(wanted))
            progress.advance(len(task.rows))
    finally:
        progress.stop()
    return True


@dataclass(frozen=True)
class _Task:
    """Rows computed together, still without results, and the function that computes them."""

    rows: list[Row]
    work: Callable[[list[Row]], list[Row]]


def _tasks(bench: Bench, limits: RunLimits) -> Iterator[_Task]:
    if bench.study.svd:
        blank = [bench.blank("svd", r, r, 0) for r in sorted({r for _, r in bench.study.sizes})]
        yield _Task(blank, bench.run_svd)
    for trial in range(limits.trials):
        methods = [method.key for method in bench.study.methods if limits.wants(method, trial)]
        for m, r in bench.study.sizes:
            yield _Task([bench.blank(key, m, r, trial) for key in methods], bench.run_trial)


class Bench:
    """One study with its data. What its pieces of work share is computed once, on first use."""

    def __init__(self, experiment: str, study: Study, data: Prepared) -> None:
        self.experiment = experiment
        self.study = study
        self.data = data
        self.engine = LocalEngine()
        self.rows = as_blocks(data.X)
        self.methods = {method.key: method for method in study.methods}
        self._kernel_rows: KernelRows | None = None
        self._ridge: RidgeAnswer | None = None
        self._norms: tuple[Array, Clock] | None = None

    @property
    def kernel_rows(self) -> KernelRows:
        if self._kernel_rows is None:
            self._kernel_rows = KernelRows(self.data.X, self.data.kernel)
        return self._kernel_rows

    @property
    def ridge(self) -> RidgeAnswer:
        if self._ridge is None:
            if self.data.y is None:
                raise ValueError(f"the set {self.data.dataset!r} has no target, so it cannot be used for regression.")
            self._ridge = RidgeAnswer(self.kernel_rows.K, self.data.y, RIDGE)
        return self._ridge

    @property
    def norms(self) -> tuple[Array, Clock]:
        """The squared norms of K's columns and the time that they took."""
        if self._norms is None:
            with Clock() as clock:
                norms = column_norms(Passes(self.rows, self.engine), self.data.kernel)
            self._norms = norms, clock
        return self._norms

    def blank(self, method: str, m: int, r: int, trial: int) -> Row:
        """Return a row without its results."""
        spec = self.methods.get(method)
        n, p = self.data.X.shape
        compression = spec.compression if spec else None
        return {
            "experiment": self.experiment,
            "study": self.study.name,
            "dataset": self.data.dataset,
            "stand_in": self.data.stand_in,
            "data_sha256": self.data.sha256,
            "n": n,
            "p": p,
            "task": self.study.task,
            "kernel": repr(self.data.kernel),
            "method": method,
            "compression": compression,
            "sketch_dim": sketch_dimension(p, compression=compression) if compression else None,
            "m": m,
            "r": r,
            "trial": trial,
            "seed": self.seed(spec, m, trial),
        }

    def seed(self, method: Method | None, m: int, trial: int) -> int:
        """Return the seed: the same for methods that share landmarks, another for every size and trial."""
        how = f"{method.landmarks} {method.compression}" if method else "svd"
        return zlib.crc32(f"{self.study.name} {how} {m} {trial}".encode())

    def run_svd(self, blanks: list[Row]) -> list[Row]:
        """Return the rows of the best approximation at every rank."""
        began = time.perf_counter()
        values, vectors = self.kernel_rows.best(max(row["r"] for row in blanks))
        seconds = time.perf_counter() - began
        done = []
        for row in blanks:
            kept = np.maximum(values[: row["r"]], 0)
            if self.study.task == "ridge":
                error = self.ridge.error(vectors[:, : row["r"]] * np.sqrt(kept))
            else:
                error = self.kernel_rows.best_error(kept)
            done.append(_finish(row, Measured(error, error, error), {"factor": seconds}, 0.0))
        return done

    def run_trial(self, blanks: list[Row]) -> list[Row]:
        """Return the rows of one trial at one size for all methods; methods with equal landmarks share C and W."""
        chosen: dict[int, tuple[Landmarks, Clock, int]] = {}
        factors: list[Array] = []
        done: list[Row] = []
        for row in blanks:
            method = self.methods[row["method"]]
            with PeakMemory() as peak:
                if row["seed"] not in chosen:
                    chosen[row["seed"]] = self._choose(method, row["m"], row["seed"])
                landmarks, choosing, passes = chosen[row["seed"]]
                L, stages = self._approximate(method, landmarks, row["r"])
            factors.append(L)
            stages["landmarks"] = choosing
            wall = {stage: clock.wall for stage, clock in stages.items()}
            cpu = {stage: round(clock.cpu, 6) for stage, clock in stages.items()}
            done.append({**row, "passes": passes, "seconds": wall, "cpu_seconds": cpu, "peak_mb": peak.megabytes})
        began = time.perf_counter()
        errors = self._errors(factors)
        share = (time.perf_counter() - began) / len(blanks)
        return [
            _finish({**row, **self._extra(row, L)}, error, {**row["seconds"], "error": share}, row["peak_mb"])
            for row, L, error in zip(done, factors, errors, strict=True)
        ]

    def _errors(self, factors: list[Array]) -> list[Measured]:
        if self.study.task == "ridge":
            return [Measured(error, error, error) for error in map(self.ridge.error, factors)]
        return self.kernel_rows.errors(factors)

    def _choose(self, method: Method, m: int, seed: int) -> tuple[Landmarks, Clock, int]:
        """Return landmarks, the time and the passes over the rows that they took."""
        rng = np.random.default_rng(seed)
        passes = Passes(self.rows, self.engine)
        if method.landmarks == "column-norm":
            norms, spent = self.norms
            with Clock() as clock:
                found = draw_weighted(passes, norms, m, rng)
            return found, clock.plus(spent), passes.n_passes + 1
        if method.landmarks == "sketched-kmeans":
            selector: Any = SketchedKMeans(compression=method.compression, n_iter=10)
        else:
            selector = KMeans(n_iter=10) if method.landmarks == "kmeans" else Uniform()
        with Clock() as clock:
            found = selector.select(passes, m, self.data.kernel, rng)
        return found, clock, passes.n_passes

    def _approximate(self, method: Method, landmarks: Landmarks, r: int) -> tuple[Array, dict[str, Clock]]:
        """Return L (n × r) and the time that C, W and L took."""
        if method.factor.startswith("written"):
            written = standard_as_written if method.factor == "written-standard" else optimal_as_written
            # One thread: with matrices this small, more threads only wait for each other, and waiting counts as time.
            with blas_threads(1):
                with Clock() as forming:
                    C = factor.prepare(self.data.kernel, landmarks)(self.data.X)
                    W = factor.landmark_kernel(self.data.kernel, landmarks)
                with Clock() as clock:
                    L = written(C, W.astype(C.dtype), r)
            return L, {"kernel": forming, "factor": clock}
        with Clock() as clock:
            keep = Kept(np.empty((self.rows.shape[0], landmarks.points.shape[0]), dtype=self.rows.dtype))
            passes = Passes(self.rows, self.engine)
            fitted = factor.FACTORS[method.factor](passes, self.data.kernel, landmarks, r, keep=keep)
            L = factor.emit_features(self.rows, self.engine, fitted, keep=keep)
        return L, {"factor": clock}

    def _extra(self, row: Row, L: Array) -> Row:
        """Return what Figure 1 needs besides errors: how well a line separates the map, and some of its points."""
        if self.experiment != "fig1" or row["m"] != _MAP_SIZE or self.data.y is None:
            return {}
        extra: Row = {"separability": linear_separability(L, self.data.y)}
        if row["trial"] == 0:
            some = np.arange(min(_MAP_POINTS, len(L)))
            extra["map"] = np.round(L[some].astype(np.float64), 4).tolist()
            extra["map_rows"] = np.round(np.asarray(self.data.X[some], dtype=np.float64), 4).tolist()
            extra["map_classes"] = self.data.y[some].astype(int).tolist()
        return extra


def linear_separability(L: Array, y: Array) -> float:
    """Return the share of rows that the best linear rule found (logistic regression, unpenalised) gets right."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    scaled = L / np.maximum(np.abs(L).max(axis=0), np.finfo(np.float64).tiny)
    # scikit-learn has no other switch. This is safe because no other thread of the program warns.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = LogisticRegression(C=1e6, max_iter=300).fit(scaled, y)
    return float(fitted.score(scaled, y))


def _finish(row: Row, error: Measured, seconds: dict[str, float], peak: float) -> Row:
    return {
        **row,
        "error": error.value,
        "low": error.low,
        "high": error.high,
        "seconds": {stage: round(value, 6) for stage, value in seconds.items()},
        "peak_mb": round(peak, 1),
        "versions": versions(),
    }
