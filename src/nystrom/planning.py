"""What a fit will cost, before it starts: passes, bytes, memory and time.

Passes and bytes are counted. Memory comes from the footprints that a fit itself compares with ``max_memory``. Times are
measured on this machine: the passes are run on a few blocks of the requested shape, the first of a file or synthetic.
The time per row covers the passes only, since the algebra between them does not grow with the number of rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike

from nystrom.checks import check_choice, check_count, check_optional_count, check_positive
from nystrom.engine import LocalEngine
from nystrom.engine.base import M
from nystrom.engine.memory import (
    HELD_BYTES,
    Footprint,
    cg_footprint,
    fit_footprint,
    parse_memory,
    room_for_values,
    square_matrices,
)
from nystrom.engine.passes import Passes, block_moments
from nystrom.engine.progress import format_seconds
from nystrom.engine.threads import blas_threads, one_blas_thread, resolve_n_jobs
from nystrom.kernels import Gaussian
from nystrom.landmarks.auto import Auto, cluster_sample, sketch_columns
from nystrom.landmarks.base import Landmarks
from nystrom.landmarks.clustered import sample_size
from nystrom.machine import available_cores, machine_memory
from nystrom.nystroem.factor import NystromMap, optimal, prepare
from nystrom.rows import ArrayRows, array_rows, default_block_rows
from nystrom.rows.base import Block, RowBlocks
from nystrom.rows.files import open_rows
from nystrom.rows.sparse import stack_rows
from nystrom.solvers.landmark_cg import gram_product
from nystrom.solvers.preconditioner import FalkonPreconditioner
from nystrom.solvers.ridge import (
    AUTO_ALPHAS,
    MOST_JUDGED,
    STEPS,
    auto_alphas,
    choose_solver,
    leave_one_out,
    ridge_problem,
    solves,
)
from nystrom.types import Matrix

_CALIBRATION_SECONDS = 0.5
_MAX_CALIBRATION_LANDMARKS = 500
# Order up to which the algebra is timed; larger orders take time in proportion to the cube.
_MAX_ORDER = 2000
# For blocks whose size does not depend on the number of rows.
_MANY_ROWS = 10**9
# Overhead of Dask per block on a worker, measured on a local cluster (docs/performance.md).
_SECONDS_A_BLOCK = 0.006
# Bytes per second from a file that was just written.
_TEMPORARY_BANDWIDTH = 1e9
_SOLVERS = ("auto", "factor", "cg")


@dataclass(frozen=True)
class Stage:
    """One stage of a fit: what it reads and sends (bytes in all), and how long it takes (seconds)."""

    name: str
    n_passes: int
    bytes_read: float
    bytes_sent: float
    seconds: float


@dataclass(frozen=True)
class Plan:
    """What a fit will cost.

    Attributes
    ----------
    stages : tuple of Stage
        In the order in which they run.
    memory : float
        Peak bytes of each worker process (of this process without workers), the interpreter included.
    client_memory : float
        Peak bytes of the process that calls ``fit``.
    n_blocks : int
        Blocks of a pass.
    notes : tuple of str
        What was assumed, what was extrapolated, and whether the memory suffices.
    workers : int or None
        Number of worker processes; None for a fit in this process.
    n_values : int
        Kernel values that the closed form computes between rows and landmarks: n × m, and again for the rows whose
        leave-one-out errors choose ``alpha``. A function of two objects is called n × m times, m × m times for the
        landmarks, n times for the diagonal, and 4,096 times for a check.
    """

    stages: tuple[Stage, ...]
    memory: float
    client_memory: float
    n_blocks: int
    notes: tuple[str, ...]
    workers: int | None = None
    n_values: int = 0

    @property
    def seconds(self) -> float:
        return sum(stage.seconds for stage in self.stages)

    @property
    def n_passes(self) -> int:
        return sum(stage.n_passes for stage in self.stages)

    def __str__(self) -> str:
        lines = [f"{'stage':<20} {'passes':>6} {'read':>10} {'sent':>10} {'time':>14}"]
        for stage in self.stages:
            size = f"{format_bytes(stage.bytes_read):>10} {format_bytes(stage.bytes_sent):>10}"
            lines.append(f"{stage.name:<20} {stage.n_passes:>6} {size} {format_seconds(stage.seconds):>14}")
        lines.append(f"{'total':<20} {self.n_passes:>6} {'':>21} {format_seconds(self.seconds):>14}")
        if self.workers is None:
            lines.append(f"memory: {format_bytes(self.memory)}")
        else:
            client = format_bytes(self.client_memory)
            lines.append(f"memory: {format_bytes(self.memory)} per worker, {client} for the client")
        lines.append(f"blocks: {self.n_blocks:,} per pass")
        lines.append(f"kernel values: {self.n_values:,} between rows and landmarks")
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


@one_blas_thread
def plan(
    n_rows: int,
    n_features: int,
    n_landmarks: int,
    *,
    nnz: int | None = None,
    dtype: DTypeLike = np.float64,
    block_rows: int | None = None,
    workers: int | None = None,
    threads: int | None = None,
    worker_memory: float | str | None = None,
    read_bandwidth: float | None = None,
    network_bandwidth: float = 1e9,
    solver: str = "factor",
    in_order: bool = False,
    sample: Matrix | None = None,
    calibration: Calibration | None = None,
) -> Plan:
    """Predict what ``KernelRidge(n_landmarks=m).fit`` costs; other machines select, read and factor alike.

    Parameters
    ----------
    n_rows : int
        n, the number of rows.
    n_features : int
        p, the number of columns.
    n_landmarks : int
        m. The rank does not matter: all directions are summed, and the rank is cut at the end.
    nnz : int, optional
        Number of nonzero entries of sparse rows; None for dense rows.
    dtype : dtype
        float64 or float32.
    block_rows : int, optional
        Rows of a block, or of a chunk of a Dask array; by default those of the local engine.
    workers : int, optional
        Worker processes of a Dask cluster; None for a fit in this process.
    threads : int, optional
        Threads of each worker; 1 by default, and all cores for a fit in this process.
    worker_memory : float or str, optional
        Memory of each worker in bytes, or as text such as "16GB"; a plan that needs more says so.
    read_bandwidth : float, optional
        Bytes per second at which each process reads rows; None if they are in memory.
    network_bandwidth : float
        Bytes per second into each worker.
    solver : {"factor", "cg", "auto"}
        The solver of :class:`nystrom.KernelRidge`: the closed form, conjugate gradients, or the one that it would
        choose.
    in_order : bool
        Whether rows are read from the beginning in every pass, as those of CSV and Parquet files are.
    sample : matrix, optional
        Some of the rows, to be timed instead of synthetic ones.
    calibration : Calibration, optional
        For the same p, m, dtype and block; if None, measured here in a few seconds.

    Returns
    -------
    Plan
        Print it for a table.

    Examples
    --------
    >>> from nystrom import plan
    >>> print(plan(100_000, 20, 50))  # doctest: +SKIP
    >>> plan(10_000, 5, 20).n_passes
    3
    """
    for name, value in (("n_rows", n_rows), ("n_features", n_features), ("n_landmarks", n_landmarks)):
        check_count(value, name)
    for name, count in (("block_rows", block_rows), ("workers", workers), ("threads", threads)):
        check_optional_count(count, name)
    if read_bandwidth is not None:
        check_positive(read_bandwidth, "read_bandwidth")
    has = parse_memory(worker_memory, "worker_memory")
    check_positive(network_bandwidth, "network_bandwidth")
    check_choice(solver, "solver", _SOLVERS)
    dtype = _float_dtype(dtype)
    m = min(n_landmarks, n_rows)
    row_bytes = _row_bytes(n_rows, n_features, nnz, dtype)
    block_rows = min(block_rows or default_block_rows(row_bytes, n_rows), n_rows)
    density = None if nnz is None else nnz / (n_rows * n_features)
    n_jobs = (threads or 1) if workers else resolve_n_jobs(threads)
    choice = choose_solver(n_rows, n_features, m, n_alphas=AUTO_ALPHAS)
    taken = choice.solver if solver == "auto" else solver
    if calibration is None:
        calibration = calibrate(
            n_features,
            m,
            dtype=dtype,
            density=density,
            block_rows=block_rows,
            n_jobs=n_jobs,
            solver=taken,
            sample=sample,
        )
    shape, in_memory = (n_rows, n_features), read_bandwidth is None
    job = _Job(shape, m, dtype, nnz is not None, row_bytes, block_rows, in_memory, workers, n_jobs, taken, in_order)
    stages = _stages(job, calibration, read_bandwidth, network_bandwidth)
    memory, client_memory = _memory(job, calibration)
    notes = (
        f"KernelRidge(solver='auto') takes {choice.solver!r} here: {choice.reason}",
        *_notes(job, calibration, memory, has, network_bandwidth),
    )
    return Plan(stages, memory, client_memory, job.n_blocks, notes, workers, m * (n_rows + min(n_rows, MOST_JUDGED)))


def plan_file(path: str | Path, n_landmarks: int, **options: Any) -> Plan:
    """Predict what a fit to the rows of a file costs; its first rows are timed.

    Parameters
    ----------
    path : str or Path
        What :func:`nystrom.open_rows` reads.
    n_landmarks : int
        m.
    **options
        Options of :func:`plan`, such as ``workers``, ``threads``, ``worker_memory`` and ``solver``.
    """
    began = time.perf_counter()
    rows = open_rows(path)
    return plan_rows(rows, n_landmarks, opening=time.perf_counter() - began, **options)


def plan_rows(rows: RowBlocks, n_landmarks: int, *, opening: float = 0.0, passes: int = 0, **options: Any) -> Plan:
    """Predict what a fit to opened rows costs.

    ``opening`` is the time that it took to open and count them. With ``passes``, the rows are read that often and then
    kept: in memory, or in a temporary file if they are large, as ``nystrom fit`` does with tables.
    """
    n, p = rows.shape
    m = min(check_count(n_landmarks, "n_landmarks"), n)
    bandwidth, sample = _read_some(rows, m)
    row_bytes = rows.block_bytes / rows.block_rows
    nnz = min(int(n * row_bytes / (rows.dtype.itemsize + 4)), n * p) if rows.is_sparse else None
    shape: dict[str, Any] = {"nnz": nnz, "dtype": rows.dtype, "block_rows": rows.block_rows, "sample": sample}
    opening += passes * n * row_bytes / bandwidth
    if passes:
        shape["block_rows"] = None
        shape |= {} if n * row_bytes <= HELD_BYTES else {"read_bandwidth": _TEMPORARY_BANDWIDTH}
    elif not rows.in_memory:
        shape |= {"read_bandwidth": bandwidth, "in_order": not rows.random_access}
    planned = plan(n, p, n_landmarks, **{**shape, **options})
    first = Stage("open and encode" if passes else "open and count", max(passes, 1), n * row_bytes, 0.0, opening)
    return replace(planned, stages=(first, *planned.stages)) if opening else planned


def _read_some(rows: RowBlocks, least: int) -> tuple[float, Matrix]:
    """Return the bytes per second at which blocks are read, and the first rows, at least ``least`` of them."""
    began, n_rows, read, held = time.perf_counter(), 0, 0.0, list[Matrix]()
    for block in rows.iterate():
        if n_rows < least:
            held.append(block.X)
        n_rows, read = block.stop, time.perf_counter() - began
        if read > _CALIBRATION_SECONDS and n_rows >= least:
            break
    return n_rows * rows.block_bytes / rows.block_rows / max(read, 1e-6), stack_rows(held)


@dataclass(frozen=True)
class _Job:
    """The planned fit; its shape determines the footprints."""

    shape: tuple[int, int]
    m: int
    dtype: np.dtype
    is_sparse: bool
    row_bytes: float
    block_rows: int
    in_memory: bool
    workers: int | None
    n_jobs: int
    solver: str = "factor"
    in_order: bool = False
    held_bytes: int = 0

    @property
    def n(self) -> int:
        return self.shape[0]

    @property
    def p(self) -> int:
        return self.shape[1]

    @property
    def block_bytes(self) -> int:
        return int(self.block_rows * self.row_bytes)

    @property
    def holds_values(self) -> bool:
        """Whether kernel values are kept between steps, as the solver "cg" does if memory allows."""
        return not self.workers and self.n * self.m * self.dtype.itemsize <= room_for_values(None)

    @property
    def n_blocks(self) -> int:
        return -(-self.n // self.block_rows)

    @property
    def n_sample(self) -> int:
        return min(sample_size(self.m), self.n)

    @property
    def footprint(self) -> Footprint:
        """Bytes that the fit itself requests from ``max_memory``."""
        selection = Auto().held_bytes(cast(RowBlocks, self), self.m)
        if self.solver == "cg":
            return cg_footprint(self, self.m, selection_bytes=selection)
        return fit_footprint(self, self.m, selection)


def _float_dtype(dtype: DTypeLike) -> np.dtype:
    for allowed in (np.float64, np.float32):
        with suppress(TypeError):
            if np.dtype(dtype) == allowed:
                return np.dtype(allowed)
    raise ValueError(f"dtype must be float64 or float32; got {dtype!r}.")


def _row_bytes(n: int, p: int, nnz: int | None, dtype: np.dtype) -> float:
    if nnz is not None and check_count(nnz, "nnz", least=0) > n * p:
        raise ValueError(f"nnz must be at most n_rows times n_features, {n * p:,}; got {nnz!r}.")
    return float(p * dtype.itemsize) if nnz is None else (dtype.itemsize + 4) * nnz / n


def _stages(job: _Job, measured: Calibration, read_bandwidth: float | None, network: float) -> tuple[Stage, ...]:
    W = job.workers or 1
    data = job.n * job.row_bytes
    reading = data / read_bandwidth / W if read_bandwidth else 0.0
    overhead = _SECONDS_A_BLOCK * job.n_blocks / W if job.workers else 0.0
    # A thread of its own reads ahead; without a core of its own, it takes time from those that compute.
    shared = 0.0 if job.workers or job.n_jobs < available_cores() else reading / job.n_jobs

    def one_pass(name: str, fixed: float, a_row: float, result_bytes: float, shipped: float) -> Stage:
        # A share 1 - 1/W of the merges needs a result from another worker.
        sent = (job.n_blocks * result_bytes * (W - 1) / W + W * shipped) if job.workers else 0.0
        # The last blocks leave some threads idle: the slowest thread has its share of blocks, rounded up.
        a_thread = -(-job.n_blocks // (W * job.n_jobs)) * job.block_rows * job.n_jobs
        rows = max(min(a_thread, job.n), job.n / W)
        return Stage(name, 1, data, sent, fixed + max(rows * a_row + shared, reading) + overhead + sent / W / network)

    sample_bytes = job.n_sample * job.row_bytes
    moments = one_pass("moments", *measured.moments, float(job.p * 8), 0.0)
    before = [
        Stage("cluster the sample", 0, 0.0, 0.0, measured.clustering * job.n_sample / sample_size(job.m)),
        moments,
    ]
    if job.workers:
        before.insert(0, Stage("sample", 1, data, sample_bytes, reading + overhead))
    elif job.in_order:
        # The pass that draws the sample takes the moments too.
        before = [replace(moments, name="sample and moments"), before[0]]
    points = float(job.m * job.p * 8)
    gram = float(job.m * job.m * 8)
    if job.solver == "factor":
        judged = measured.judging * min(job.n, MOST_JUDGED) / MOST_JUDGED
        touched = 1.0 if job.workers or job.in_order else min(1.0, MOST_JUDGED / job.n)
        factor = one_pass("factor", *measured.factor, gram, points + gram)
        last = Stage("leave-one-out", 1, touched * data, 0.0, judged / W + touched * reading + overhead)
        return (*before, factor, last)
    vector = 8.0 * job.m
    first = one_pass("target", *measured.factor, vector, points + vector)
    step = one_pass("step", measured.factor[0], measured.held_step, vector, vector) if job.holds_values else first
    # The search and the last fit compute the values; every solve checks its residual at its start and at its end.
    twice = replace(first, n_passes=2, bytes_read=2 * data, bytes_sent=2 * first.bytes_sent, seconds=2 * first.seconds)
    n_steps = int(STEPS * solves(AUTO_ALPHAS)) + 2 * (AUTO_ALPHAS + 1)
    seconds = n_steps * (step.seconds + measured.solves)
    steps = Stage(f"{n_steps} steps", n_steps, n_steps * step.bytes_read, n_steps * step.bytes_sent, seconds)
    return (*before, twice, Stage("preconditioner", 0, 0.0, 0.0, measured.preconditioner), steps)


def _memory(job: _Job, measured: Calibration) -> tuple[float, float]:
    """Return the peak bytes of a worker, and of the client."""
    work = job.footprint
    held = job.n * job.row_bytes if job.in_memory else 0.0
    if not job.workers:
        values = job.n * job.m * job.dtype.itemsize if job.solver == "cg" and job.holds_values else 0
        total = measured.base_bytes + held + values + work.fixed + min(job.n_jobs, job.n_blocks) * work.per_thread
        return total, total
    # A worker holds one chunk and its work arrays per thread, and two sums waiting to be merged; the client does not.
    more = square_matrices(job.n_blocks) - square_matrices(1)
    tree = 8.0 * job.m**2 * more if job.solver == "factor" else 0.0
    chunks = job.n_jobs * (work.per_thread + job.block_bytes) + job.block_bytes
    waiting = 2 * 8.0 * job.m * (job.m if job.solver == "factor" else 1)
    return measured.base_bytes + held / job.workers + chunks + waiting, measured.base_bytes + work.fixed - tree


def _notes(
    job: _Job, measured: Calibration, memory: float, worker_memory: float | None, network: float
) -> tuple[str, ...]:
    notes = [
        f"timed on this machine with up to {measured.n_rows:,} rows and {measured.n_jobs} thread(s); the time of "
        f"{job.n:,} rows is extrapolated, in proportion"
    ]
    if job.workers:
        notes.append(
            f"{job.workers} workers are extrapolated: each is taken to be as fast as this machine, with "
            f"{format_bytes(network)}/s of network"
        )
    if job.workers is None:
        notes.append(_local_verdict(job, memory, worker_memory))
    elif worker_memory is not None and memory > worker_memory:
        rows = f"fewer than {job.block_rows:,} rows per block, more workers, or fewer landmarks"
        notes.append(f"DOES NOT FIT: a worker has {format_bytes(worker_memory)}; try {rows}")
    elif worker_memory is not None:
        notes.append(f"fits: a worker has {format_bytes(worker_memory)}")
    return tuple(notes)


def _local_verdict(job: _Job, memory: float, limit: float | None) -> str:
    """Return whether this process has enough memory for the fit, and what to do if not."""
    has = limit or machine_memory()
    if has is None:
        return "whether it fits is not known: this system does not report its memory"
    if memory <= has:
        return f"fits: this machine has {format_bytes(has)}"
    rows = job.n * job.row_bytes
    if rows > 0.5 * memory:
        advice = (
            f"the rows alone take {format_bytes(rows)}. Leave them in a file, which nystrom.open_rows reads block by "
            f"block (--read-bandwidth 500MB plans that), or spread them over a cluster (--workers)"
        )
    else:
        advice = "try fewer landmarks, or fewer --threads"
    return f"DOES NOT FIT: this machine has {format_bytes(has)}; {advice}"


def format_bytes(count: float) -> str:
    """Return a number of bytes in readable units.

    Examples
    --------
    >>> [format_bytes(value) for value in (0, 2_048, 3.5e9, 8e12)]
    ['0 B', '2.05 kB', '3.5 GB', '8 TB']
    """
    for limit, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= limit:
            return f"{count / limit:.3g} {unit}"
    return f"{count:.0f} B"


@dataclass(frozen=True)
class Calibration:
    """Measured times for one problem shape.

    Attributes
    ----------
    moments, factor : tuple of float
        Constant seconds, and seconds per row, of the two passes with ``n_jobs`` threads. For
        solver "cg", ``factor`` is the pass of one step that computes the kernel values.
    clustering : float
        Seconds of k-means on the sample.
    base_bytes : float
        Bytes of a process before any work.
    n_rows, n_jobs : int
        Largest number of rows timed, and number of threads.
    judging : float
        Seconds of the leave-one-out errors of 5,000 rows.
    held_step, preconditioner, solves : float
        For solver "cg": seconds per row of a step whose kernel values are held, of all preconditioners, and of the four
        triangular solves of a step.
    """

    moments: tuple[float, float]
    factor: tuple[float, float]
    clustering: float
    base_bytes: float
    n_rows: int
    n_jobs: int
    judging: float = 0.0
    held_step: float = 0.0
    preconditioner: float = 0.0
    solves: float = 0.0


def calibrate(
    n_features: int,
    n_landmarks: int,
    *,
    dtype: DTypeLike = np.float64,
    density: float | None = None,
    block_rows: int | None = None,
    n_jobs: int = 1,
    solver: str = "factor",
    sample: Matrix | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Calibration:
    """Time the passes of a fit by solver "factor" or "cg" on rows of this shape: some seconds.

    The rows are synthetic, or repeat those of ``sample``, which decide how well conditioned the kernel is.
    With ``clock=time.process_time`` the plan is in processor seconds, which other load on the machine hardly changes.
    """
    dtype = np.dtype(dtype)
    rng = np.random.default_rng(0)
    if block_rows is None:
        row_bytes = n_features * dtype.itemsize * (1 if density is None else density)
        block_rows = default_block_rows(row_bytes, _MANY_ROWS)
    base_bytes = _resident_bytes()
    order = n_landmarks if solver == "cg" else min(n_landmarks, _MAX_ORDER)
    if sample is None or sample.shape[0] < order:
        sample = _make_rows(max(block_rows, order), n_features, density, dtype, rng)
    block = sample[np.resize(np.arange(sample.shape[0]), block_rows)]
    landmarks = Landmarks(sample[rng.choice(sample.shape[0], order, replace=False)])
    kernel = Gaussian(1 / max(block_moments(sample).spread, np.finfo(dtype).tiny))
    engine = _TimedEngine(n_jobs, clock)
    fitted: list[NystromMap] = []

    @cache
    def rows(n_blocks: int) -> RowBlocks:
        made = array_rows(stack_rows([block] * n_blocks), block_rows=block_rows)
        return made.with_target(np.arange(made.shape[0]) % 2.0)

    def moments(n_blocks: int) -> None:
        Passes(rows(n_blocks), engine).moments  # noqa: B018 - reading it makes the pass

    def factor(n_blocks: int) -> None:
        fitted[:] = [optimal(Passes(rows(n_blocks), engine), kernel, landmarks, None)]

    def step(n_blocks: int) -> None:
        gram_product(rows(n_blocks), engine, prepare(kernel, landmarks), np.ones((order, 1)), label="step")

    def judge(n_blocks: int) -> None:
        problem = ridge_problem(fitted[0])
        leave_one_out(problem, fitted[0], rows(n_blocks), engine, auto_alphas(problem.values))

    rates_moments, _ = _rates(moments, engine, block_rows)
    (fixed, per_row), n_timed = _rates(step if solver == "cg" else factor, engine, block_rows)
    clustering = _clustering_seconds(n_features, n_landmarks, dtype, rng, engine, clock)
    found = Calibration(rates_moments, (fixed, per_row), clustering, base_bytes, n_timed, n_jobs)
    if solver == "cg":
        held_step = _held_step_seconds(n_landmarks, dtype, engine, clock)
        preconditioner, solved = _preconditioner_seconds(kernel, landmarks.points, clock)
        return replace(found, held_step=held_step, preconditioner=preconditioner, solves=solved)
    n_judged = min(n_jobs * block_rows, MOST_JUDGED)
    judging = _best(judge, n_jobs, 1, clock) * MOST_JUDGED / n_judged
    # More landmarks than were timed: the algebra grows with m³, and a pass as its products do.
    m, scale = n_landmarks, n_landmarks / order
    products = m * (n_features + 2 * m) / (order * (n_features + 2 * order))
    return replace(found, factor=(fixed * scale**3, per_row * products), judging=judging * scale**2)


class _TimedEngine(LocalEngine):
    """An engine that times its folds separately, because the algebra between them does not grow with the rows."""

    def __init__(self, n_jobs: int, clock: Callable[[], float]) -> None:
        super().__init__(n_jobs)
        self.clock = clock
        self.seconds = 0.0

    def fold(self, rows: RowBlocks, step: Callable[[Block], M], *, label: str) -> M:
        began = self.clock()
        try:
            return super().fold(rows, step, label=label)
        finally:
            self.seconds += self.clock() - began


def _held_step_seconds(m: int, dtype: np.dtype, engine: LocalEngine, clock: Callable[[], float]) -> float:
    """Return the seconds per row of a step with kernel values kept in memory."""
    n = max(engine.n_jobs * 64, min(8192, 2**27 // m))
    held = ArrayRows(np.ones((n, m), dtype), block_rows=-(-n // (4 * engine.n_jobs)))

    def run(_: int) -> None:
        gram_product(held, engine, None, np.ones((m, 1)), label="step")

    return _best(run, 1, 3, clock) / n


def _preconditioner_seconds(kernel: Gaussian, Z: Matrix, clock: Callable[[], float]) -> tuple[float, float]:
    """Return the seconds of the preconditioners for landmarks Z and of the solves of a step, from fewer landmarks.

    The search and the last fit form one each, which is regularised for every value of ``alpha``.
    """
    m = Z.shape[0]
    order = min(m, _MAX_ORDER)
    square = np.ones((order, order))
    made: list[FalkonPreconditioner] = []

    def form(_: int) -> None:
        made[:] = [FalkonPreconditioner(kernel, Landmarks(Z[:order]), Z.dtype)]

    def regularise(_: int) -> None:
        made[0].regularise(1.0, np.ones(order), centred=False)

    def multiply(_: int) -> None:
        square @ square

    def solve(_: int) -> None:
        inner = made[0]
        inner.scale(inner.whiten(inner.unwhiten(inner.unscale(square[:, :1]))))

    with blas_threads(1):
        formed, regularised = _best(form, 1, 2, clock), _best(regularise, 1, 2, clock)
        # A factorisation, and a factorisation and a triangular product: each takes a sixth of a full product.
        sixth = _best(multiply, 1, 2, clock) / 6
        solved = _best(solve, 1, 3, clock)
    scale = m / order

    def enlarged(seconds: float, products: float) -> float:
        # The rest grows with m²: kernel values, copies, and blocks too small for BLAS to reach full speed.
        return products * scale**3 + max(seconds - products, 0.0) * scale**2

    seconds = 2 * enlarged(formed, sixth) + (AUTO_ALPHAS + 1) * enlarged(regularised, 2 * sixth)
    return seconds, solved * scale**2


def _rates(run: Callable[[int], None], engine: _TimedEngine, block_rows: int) -> tuple[tuple[float, float], int]:
    """Return (seconds outside the passes, seconds per row) of the faster of two runs, and the number of rows."""
    n_blocks = engine.n_jobs
    found: list[tuple[float, float]] = []
    while True:
        engine.seconds, began = 0.0, engine.clock()
        run(n_blocks)
        passes, whole = engine.seconds, engine.clock() - began
        if found or passes >= _CALIBRATION_SECONDS or n_blocks * block_rows >= 2**19:
            found.append((max(whole - passes, 0.0), passes / (n_blocks * block_rows)))
            if len(found) == 2:
                fixed, per_row = map(min, zip(*found, strict=True))
                return (fixed, per_row), n_blocks * block_rows
        else:
            n_blocks *= 2


def _best(run: Callable[[int], None], n_blocks: int, repeats: int, clock: Callable[[], float]) -> float:
    times = []
    for _ in range(repeats):
        began = clock()
        run(n_blocks)
        times.append(clock() - began)
    return min(times)


def _clustering_seconds(
    p: int, m: int, dtype: np.dtype, rng: np.random.Generator, engine: LocalEngine, clock: Callable[[], float]
) -> float:
    """Return the seconds of k-means on the sample for m landmarks, extrapolated from smaller sizes if m is large."""
    few = min(m, _MAX_CALIBRATION_LANDMARKS)
    dim = sketch_columns(p)
    sample = ArrayRows(rng.normal(size=(sample_size(few), dim)).astype(dtype))

    def cluster(n_iter: int) -> None:
        cluster_sample(sample, few, engine, np.random.default_rng(0), n_iter)

    scale = sample_size(m) * m / (sample_size(few) * few)
    return _best(cluster, Auto().n_iter, 2, clock) * scale


def _make_rows(n: int, p: int, density: float | None, dtype: np.dtype, rng: np.random.Generator) -> Matrix:
    if density is None:
        # A decaying spectrum, as in real data: the kernel is smooth, so the pass includes whitening, as usual.
        return (rng.normal(size=(n, p)) / np.arange(1, p + 1)).astype(dtype)
    return sp.random(n, p, density=density, format="csr", dtype=dtype, random_state=np.random.RandomState(0))


def _resident_bytes() -> float:
    """Return the memory of this process."""
    try:
        with open("/proc/self/statm") as file:
            pages = int(file.read().split()[1])
    except OSError:
        return 150e6  # the interpreter, NumPy, SciPy and scikit-learn on Linux
    return pages * 4096.0
