"""What a fit will cost, before it starts: passes, bytes, memory and time, from a model calibrated on this machine.

Times come from :mod:`nystrom.plan_timing`; all else follows by counting.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from nystrom.checks import check_choice, check_count, check_optional_count, check_positive
from nystrom.landmarks.auto import sample_size
from nystrom.machine import machine_memory
from nystrom.memory import room_for_values
from nystrom.plan_timing import Calibration, calibrate
from nystrom.progress import format_seconds
from nystrom.rows import default_block_rows
from nystrom.solvers.choice import STEPS, choose_solver
from nystrom.threads import resolve_n_jobs

# Measured on a cluster of this machine (docs/cluster.md): what a block costs a worker beside its work.
_SECONDS_A_BLOCK = 0.006
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
        What was assumed, what lies outside of what was measured here, and whether the memory will do.
    workers : int or None
        Worker processes; None where the fit is made in this process.
    """

    stages: tuple[Stage, ...]
    memory: float
    client_memory: float
    n_blocks: int
    notes: tuple[str, ...]
    workers: int | None = None

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
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


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
    worker_memory: float | None = None,
    read_bandwidth: float | None = None,
    network_bandwidth: float = 1e9,
    solver: str = "factor",
    calibration: Calibration | None = None,
) -> Plan:
    """Predict what a fit with ``landmarks="auto"`` and ``factor="optimal"`` costs.

    Parameters
    ----------
    n_rows, n_features, n_landmarks : int
        n, p and m. The rank does not matter: all directions are summed, and cut at the end.
    nnz : int, optional
        Entries that are not zero, for sparse rows; None for dense ones.
    dtype : dtype
        float64 or float32.
    block_rows : int, optional
        Rows of a block, or of a chunk of a Dask array; by default those of the local engine.
    workers : int, optional
        Worker processes of a Dask cluster; None for a fit in this process.
    threads : int, optional
        Threads of each worker; 1 by default, and all cores for a fit in this process.
    worker_memory : float, optional
        Bytes that each worker has; a plan that needs more says so.
    read_bandwidth : float, optional
        Bytes per second at which each process reads rows; None if they are in memory.
    network_bandwidth : float
        Bytes per second into each worker.
    solver : {"factor", "cg", "auto"}
        Of :class:`nystrom.KernelRidge`: the closed form, which is also what every other fit costs; conjugate gradients,
        for one regularisation; or whichever it would take itself.
    calibration : Calibration, optional
        Of the same p, m, dtype and block; measured here, in some seconds, if None.

    Returns
    -------
    Plan
        Print it for a table.

    Examples
    --------
    >>> from nystrom import plan
    >>> print(plan(100_000, 20, 50))  # doctest: +SKIP
    >>> plan(10_000, 5, 20).n_passes
    2
    """
    for name, value in (("n_rows", n_rows), ("n_features", n_features), ("n_landmarks", n_landmarks)):
        check_count(value, name)
    for name, count in (("block_rows", block_rows), ("workers", workers), ("threads", threads)):
        check_optional_count(count, name)
    for name, size in (("worker_memory", worker_memory), ("read_bandwidth", read_bandwidth)):
        if size is not None:
            check_positive(size, name)
    check_positive(network_bandwidth, "network_bandwidth")
    check_choice(solver, "solver", _SOLVERS)
    dtype = _float_dtype(dtype)
    m = min(n_landmarks, n_rows)
    row_bytes = _row_bytes(n_rows, n_features, nnz, dtype)
    block_rows = min(block_rows or default_block_rows(row_bytes, n_rows), n_rows)
    density = None if nnz is None else nnz / (n_rows * n_features)
    n_jobs = (threads or 1) if workers else resolve_n_jobs(threads)
    choice = choose_solver(n_rows, n_features, m)
    taken = choice.solver if solver == "auto" else solver
    if calibration is None:
        calibration = calibrate(
            n_features, m, dtype=dtype, density=density, block_rows=block_rows, n_jobs=n_jobs, solver=taken
        )
    job = _Job(n_rows, n_features, m, dtype.itemsize, row_bytes, block_rows, workers, n_jobs, taken)
    stages = _stages(job, calibration, read_bandwidth, network_bandwidth)
    memory, client_memory = _memory(job, calibration, in_memory=read_bandwidth is None)
    notes = (
        f"KernelRidge(solver='auto') takes {choice.solver!r} here: {choice.reason}",
        *_notes(job, calibration, memory, worker_memory, network_bandwidth),
    )
    return Plan(stages, memory, client_memory, job.n_blocks, notes, workers)


@dataclass(frozen=True)
class _Job:
    n: int
    p: int
    m: int
    itemsize: int
    row_bytes: float
    block_rows: int
    workers: int | None
    n_jobs: int
    solver: str = "factor"

    @property
    def holds_values(self) -> bool:
        """Whether kernel values are held from step to step, as the solver "cg" does where there is room."""
        return not self.workers and self.n * self.m * self.itemsize <= room_for_values(None)

    @property
    def n_blocks(self) -> int:
        return -(-self.n // self.block_rows)

    @property
    def n_sample(self) -> int:
        return min(sample_size(self.m), self.n)


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

    def one_pass(name: str, fixed: float, a_row: float, result_bytes: float, shipped: float) -> Stage:
        # Of the merges a share of 1 - 1/W meets a result that is on another worker.
        sent = (job.n_blocks * result_bytes * (W - 1) / W + W * shipped) if job.workers else 0.0
        # The last blocks leave some threads idle: the slowest thread has the ceiling of its share.
        a_thread = -(-job.n_blocks // (W * job.n_jobs)) * job.block_rows * job.n_jobs
        rows = max(min(a_thread, job.n), job.n / W)
        work = max(rows * a_row, reading) if reading else rows * a_row
        return Stage(name, 1, data, sent, fixed + work + overhead + sent / W / network)

    sample_bytes = job.n_sample * job.row_bytes
    if job.workers or read_bandwidth:
        sample = Stage("sample", 1, data, sample_bytes if job.workers else 0.0, reading + overhead)
    else:
        sample = Stage("sample", 0, sample_bytes, 0.0, 0.0)
    points = float(job.m * job.p * 8)
    gram = float(job.m * job.m * 8)
    before = (
        sample,
        Stage("cluster the sample", 0, 0.0, 0.0, measured.clustering * job.n_sample / sample_size(job.m)),
        one_pass("survey", *measured.survey, float(job.p * 8), 0.0),
    )
    if job.solver == "factor":
        return (*before, one_pass("factor", *measured.factor, gram, points + gram))
    vector = 8.0 * job.m
    first = one_pass("target", *measured.factor, vector, points + vector)
    step = one_pass("step", measured.factor[0], measured.held_step, vector, vector) if job.holds_values else first
    seconds = STEPS * (step.seconds + measured.solves)
    steps = Stage(f"{STEPS} steps", STEPS, STEPS * step.bytes_read, STEPS * step.bytes_sent, seconds)
    return (*before, first, Stage("preconditioner", 0, 0.0, 0.0, measured.preconditioner), steps)


def _memory(job: _Job, measured: Calibration, *, in_memory: bool) -> tuple[float, float]:
    """Return the peak bytes of a worker, and of the client."""
    gram = job.m * job.m * 8.0
    if job.solver == "cg":
        return _cg_memory(job, measured, in_memory=in_memory)
    waiting = (np.log2(job.n_blocks + 1) + job.n_jobs) * gram
    sample = 2.0 * job.n_sample * job.row_bytes
    algebra = 6 * gram
    held = job.n * job.row_bytes if in_memory else 0.0
    if not job.workers:
        threads = min(job.n_jobs, job.n_blocks)
        working = max(threads * measured.step_bytes + waiting, sample, algebra)
        total = measured.base_bytes + held + working
        return total, total
    chunk = job.block_rows * job.row_bytes
    worker = measured.base_bytes + held / job.workers + (job.n_jobs + 1) * chunk + job.n_jobs * measured.step_bytes
    return worker + 4 * gram, measured.base_bytes + max(sample, algebra)


def _cg_memory(job: _Job, measured: Calibration, *, in_memory: bool) -> tuple[float, float]:
    """Return the same for conjugate gradients: one m × m matrix, with the client, and no sums but vectors."""
    matrix = 8.0 * job.m * (job.m + 3 * 1024)
    held = job.n * job.row_bytes if in_memory else 0.0
    sample = 2.0 * job.n_sample * job.row_bytes
    tiles = job.n_jobs * measured.step_bytes
    if not job.workers:
        values = float(job.n * job.m * job.itemsize) if job.holds_values else 0.0
        total = measured.base_bytes + held + values + max(matrix + tiles, sample)
        return total, total
    return measured.base_bytes + held / job.workers + tiles, measured.base_bytes + max(matrix, sample)


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
    """Return whether a fit in this process has the memory that it needs, and what to do if not."""
    has = limit or machine_memory()
    if has is None:
        return "whether it fits is not known: this system does not tell its memory"
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
    """Return a number of bytes as a person would say it.

    Examples
    --------
    >>> [format_bytes(value) for value in (0, 2_048, 3.5e9, 8e12)]
    ['0 B', '2.05 kB', '3.5 GB', '8 TB']
    """
    for limit, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= limit:
            return f"{count / limit:.3g} {unit}"
    return f"{count:.0f} B"
