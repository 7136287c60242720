"""The memory contract: amounts, budgets that do and do not suffice, the same bits whatever the budget."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from nystrom import (
    KernelKMeans,
    KernelRidge,
    Nystroem,
    SpectralClustering,
    best_possible,
    compare,
    kernel_eigh,
    open_rows,
    select_landmarks,
)
from nystrom.engine import LocalEngine, local
from nystrom.engine.memory import Footprint, emit_footprint, fit_footprint, format_memory, hold, parse_memory
from nystrom.exceptions import MemoryBudgetError
from nystrom.rows import as_blocks
from nystrom.rows.binary import BinaryRows

X = np.random.default_rng(0).normal(size=(20_000, 5)).astype(np.float32)


@pytest.fixture
def rows(tmp_path: Path) -> Any:
    np.save(tmp_path / "X.npy", X)
    return open_rows(tmp_path / "X.npy", target=np.sin(X[:, 0]))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("2GB", 2 * 10**9),
        ("500 MB", 5 * 10**8),
        ("1.5GiB", 3 * 2**29),
        ("64k", 64_000),
        ("10B", 10),
        (7, 7),
        (None, None),
    ],
)
def test_amounts_are_read_as_written(text: Any, count: int | None) -> None:
    assert parse_memory(text) == count


@pytest.mark.parametrize("wrong", ["lots", "-2GB", "0MB", 0, True, "2iB", [1]])
def test_other_amounts_are_refused_by_name(wrong: Any) -> None:
    with pytest.raises(ValueError, match="max_memory must be None, a positive number of bytes"):
        parse_memory(wrong)


def test_amounts_are_shown_rounded_up() -> None:
    assert parse_memory(format_memory(123_456_789)) >= 123_456_789
    assert parse_memory(format_memory(999_999_999)) >= 999_999_999


def test_a_budget_buys_threads() -> None:
    work = Footprint(fixed=100, per_thread=50)
    assert [work.threads(budget, 8, advice="") for budget in (150, 199, 200, 10_000)] == [1, 1, 2, 8]
    assert work.room(1000, 2) == 800


def test_an_impossible_budget_fails_at_once_with_the_smallest_that_would_do(rows: Any) -> None:
    model = Nystroem(n_components=10, max_memory="1MB", random_state=0)
    reads: list[int] = []
    rows.rows.block = reads.append
    with pytest.raises(
        MemoryBudgetError, match=r"max_memory=1MB is too small: this needs at least max_memory='"
    ) as error:
        model.fit(rows)
    assert not reads
    del rows.rows.block
    enough = str(error.value).split("max_memory='")[1].split("'")[0]
    model.set_params(max_memory=enough).fit(rows)


def test_a_selector_that_holds_much_is_counted(rows: Any) -> None:
    need = fit_footprint(rows, 100).least + 20_000 * 100 * 4
    Nystroem(n_components=50, landmarks="uniform", max_memory=need, random_state=0).fit(rows)
    with pytest.raises(MemoryBudgetError, match="too small"):
        Nystroem(n_components=50, landmarks="rpcholesky", max_memory=need, random_state=0).fit(rows)


@pytest.mark.parametrize("landmarks", ["auto", "sketched-kmeans", "uniform"])
def test_results_have_the_same_bits_whatever_the_budget(landmarks: str, rows: Any) -> None:
    settings: dict[str, Any] = {"n_landmarks": 20, "landmarks": landmarks, "random_state": 0}
    free = KernelRidge(**settings).fit(rows)
    least = fit_footprint(rows, 20, 2 * 10_000 * (20 + 160)).least
    for budget in (least, 2 * least, "1GB"):
        bound = KernelRidge(max_memory=budget, **settings).fit(rows)
        assert np.array_equal(bound.landmarks_, free.landmarks_)
        assert np.array_equal(bound.landmark_coef_, free.landmark_coef_)


def test_rows_made_in_a_pass_go_to_a_file_where_memory_has_no_room(rows: Any) -> None:
    def double(block: Any) -> np.ndarray:
        return 2 * block.X

    held = LocalEngine(2).map_rows(rows, double, 5, np.float32, label="double")
    stored = LocalEngine(2, room=1000).map_rows(rows, double, 5, np.float32, label="double")
    assert isinstance(stored, BinaryRows)
    for mine, other in zip(stored.iterate(), held.iterate(), strict=True):
        assert np.array_equal(mine.X, other.X)
    path = stored._file.path
    wide = stored.widened(16_384)
    del stored
    assert path.exists()  # the widened rows still need it
    del wide
    assert not path.exists()


def test_a_result_that_does_not_fit_says_how_to_write_it(rows: Any, tmp_path: Path) -> None:
    model = Nystroem(n_components=20, random_state=0).fit(rows)
    model.max_memory = emit_footprint(rows, 40, 20).least
    with pytest.raises(MemoryBudgetError, match=r"transform\(X, out='features.npy'\)"):
        model.transform(rows)
    assert model.transform(rows, out=tmp_path / "F.npy").shape == (20_000, 20)


_MEASURE = """
import sys, threading, resource
import numpy as np, psutil
from nystrom import KernelRidge, open_rows
rows = open_rows(sys.argv[1], target=0)
warm = np.random.default_rng(0).normal(size=(9000, 2))
KernelRidge(alpha=1.0, n_landmarks=5, max_memory="300MB", random_state=0).fit(warm, warm[:, 0])
me = psutil.Process()
base = peak = me.memory_info().rss
limit = me.memory_info().vms + 150_000_000
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
model = KernelRidge(alpha=1.0, n_landmarks=50, max_memory="150MB", landmarks=sys.argv[2], n_jobs=2, random_state=0)
done = threading.Event()
def watch():
    global peak
    while not done.wait(0.001):
        peak = max(peak, me.memory_info().rss)
thread = threading.Thread(target=watch, daemon=True); thread.start()
model.fit(rows)
done.set(); thread.join()
print(peak - base)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="address-space limits are Linux's")
@pytest.mark.parametrize("landmarks", ["auto", "sketched-kmeans"])
def test_a_fit_stays_within_its_budget_and_under_a_hard_limit(landmarks: str, tmp_path: Path) -> None:
    big = np.lib.format.open_memmap(tmp_path / "X.npy", "w+", np.float32, (1_000_000, 64))  # 256 MB
    big[:] = np.random.default_rng(0).normal(size=(1000, 64)).astype(np.float32).repeat(1000, axis=0)
    big += np.arange(64, dtype=np.float32)
    del big
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, str(tmp_path / "X.npy"), landmarks],
        # The limit is on addresses, and glibc sets 64 MB of them aside for each thread: one arena for all.
        env={**os.environ, "MALLOC_ARENA_MAX": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 150_000_000


MACHINES = [
    (KernelKMeans(5, n_components=50, n_init=1, max_iter=5, random_state=0), "tall", 130),
    (SpectralClustering(5, n_components=50, n_init=1, max_iter=5, random_state=0), "tall", 130),
    (KernelRidge(alpha=1.0, solver="exact", n_landmarks=300, random_state=0), "small", 130),
    (Nystroem(n_components=50, landmarks="column-norm", random_state=0), "small", 110),
    (KernelRidge(alpha=1.0, n_landmarks=100, random_state=0), "sparse", 150),
]
_MEASURE_MACHINE = """
import pickle, sys, threading
import numpy as np, psutil, scipy.sparse as sp
from nystrom import KernelRidge
rng = np.random.default_rng(0)
kind, budget, model = sys.argv[1], sys.argv[2], pickle.loads(bytes.fromhex(sys.argv[3]))
if kind == "tall":
    X = rng.normal(size=(400_000, 4)).astype("f4")
elif kind == "small":
    X = rng.normal(size=(6000, 8))
else:
    where = (rng.integers(0, 100_000, 600_000) * rng.random(600_000) ** 3).astype(int)
    X = sp.csr_matrix((np.ones(600_000, "f4"), (np.repeat(np.arange(20_000), 30), where)), shape=(20_000, 100_000))
y = np.asarray(X[:, 0].sum(axis=1)).ravel() if kind == "sparse" else X[:, 0]
warm = rng.normal(size=(9000, 2))
KernelRidge(alpha=1.0, n_landmarks=5, max_memory="300MB", random_state=0).fit(warm, warm[:, 0])
me = psutil.Process()
base = peak = me.memory_info().rss
done = threading.Event()
def watch():
    global peak
    while not done.wait(0.001):
        peak = max(peak, me.memory_info().rss)
thread = threading.Thread(target=watch, daemon=True); thread.start()
model.set_params(max_memory=budget).fit(X, y)
done.set(); thread.join()
print(peak - base)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("model", "data", "megabytes"), MACHINES, ids=lambda value: str(value)[:24])
def test_every_machine_stays_within_its_budget(model: Any, data: str, megabytes: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE_MACHINE, data, f"{megabytes}MB", pickle.dumps(model).hex()],
        env={**os.environ, "MALLOC_ARENA_MAX": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < megabytes * 1e6


def _sparse_rows() -> Any:
    rng = np.random.default_rng(0)
    where = np.repeat(np.arange(2000), 10), rng.integers(0, 10**6, 20_000)
    return sp.csr_matrix((np.ones(20_000), where), shape=(2000, 10**6))


def test_sparse_rows_count_as_they_are_stored() -> None:
    X = _sparse_rows()
    model = KernelRidge(alpha=1.0, n_landmarks=50, landmarks="uniform", max_memory="100MB", random_state=0)
    bound = model.fit(X, np.arange(2000.0))
    free = model.set_params(max_memory=None).fit(X, np.arange(2000.0))
    assert np.array_equal(bound.predict(X), free.predict(X))
    blocks = as_blocks(X, block_rows=300)
    assert blocks.block_bytes == max(
        block.X.data.nbytes + block.X.indices.nbytes + 301 * block.X.indptr.itemsize for block in blocks.iterate()
    )


@pytest.mark.parametrize("machine", [KernelKMeans, SpectralClustering])
def test_features_to_cluster_go_to_a_file_where_the_budget_has_no_room(machine: Any, monkeypatch: Any) -> None:
    settings = {"n_clusters": 3, "n_components": 20, "n_init": 1, "max_iter": 5, "random_state": 0}
    free = machine(**settings).fit(X)
    with pytest.raises(MemoryBudgetError, match="too small") as error:
        machine(max_memory="1MB", **settings).fit(X)
    enough = str(error.value).split("max_memory='")[1].split("'")[0]
    held: list[int | None] = []
    monkeypatch.setattr(local, "hold", lambda shape, dtype, room: held.append(room) or hold(shape, dtype, 0))
    bound = machine(max_memory=enough, **settings).fit(X)
    assert None not in held
    assert np.array_equal(bound.labels_, free.labels_)


def test_the_exact_solver_holds_no_features_that_the_budget_has_no_room_for() -> None:
    Z, y = X[:1500].astype(np.float64), np.sin(X[:1500, 0])
    settings = {"solver": "exact", "n_landmarks": 200, "random_state": 0}
    free = KernelRidge(**settings).fit(Z, y)
    with pytest.raises(MemoryBudgetError, match="too small") as error:
        KernelRidge(max_memory="1MB", **settings).fit(Z, y)
    enough = str(error.value).split("max_memory='")[1].split("'")[0]
    bound = KernelRidge(max_memory=enough, **settings).fit(Z, y)
    np.testing.assert_allclose(bound.predict(Z), free.predict(Z), atol=1e-6)


def test_a_fit_that_this_machine_cannot_hold_is_refused_and_auto_avoids_it(rows: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("nystrom.engine.memory.machine_memory", lambda: 2e8)
    monkeypatch.setattr("nystrom.engine.machine_memory", lambda: 2e8)
    X = np.random.default_rng(0).normal(size=(4000, 3))
    with pytest.raises(MemoryBudgetError, match=r"this machine has 200MB.*solver='cg'"):
        Nystroem(n_components=2, n_landmarks=2000).fit(X)
    model = KernelRidge(alpha=1.0, n_landmarks=2000, landmarks="uniform", tol=1e-3, random_state=0).fit(X, X[:, 0])
    assert (model.solver_, "this machine" in model.solver_reason_) == ("cg", True)


def wide_rows(n: int, columns: int) -> sp.csr_matrix:
    rng = np.random.default_rng(0)
    indptr = np.arange(0, 3 * n + 1, 3)
    return sp.csr_matrix((rng.random(3 * n), rng.integers(0, columns, 3 * n), indptr), shape=(n, columns))


@pytest.mark.parametrize("columns", [2**34, 2**62])
@pytest.mark.parametrize(
    "use",
    [
        lambda X, y: Nystroem(n_components=2).fit(X),
        lambda X, y: KernelRidge(alpha=1.0, landmarks="uniform", gamma=0.1).fit(X, y),
        lambda X, y: KernelRidge(alpha=1.0, solver="exact").fit(X, y),
        lambda X, y: KernelKMeans(2).fit(X),
        lambda X, y: select_landmarks(X, 3),
        lambda X, y: kernel_eigh(X, n_components=2),
        lambda X, y: best_possible(X, 2),
        lambda X, y: compare(X, y, sizes=[5]),
    ],
    ids=["features", "ridge", "exact", "clusters", "landmarks", "eigenvalues", "best", "compare"],
)
def test_more_columns_than_this_machine_has_memory_for_are_refused_by_name(use: Any, columns: int) -> None:
    with pytest.raises(MemoryBudgetError, match=rf"X has {columns} columns, .*Leave out columns without entries"):
        use(wide_rows(20, columns), np.arange(20.0))


def test_a_budget_counts_the_means_of_sparse_columns() -> None:
    with pytest.raises(MemoryBudgetError, match=r"at least max_memory='\d+MB'\. Most of it is for the columns: leave"):
        KernelRidge(alpha=1.0, max_memory="100MB").fit(wide_rows(300, 2**22), np.arange(300.0))


def test_the_exact_solver_does_not_count_sparse_rows_as_dense() -> None:
    KernelRidge(alpha=1.0, solver="exact", max_memory="500MB").fit(wide_rows(300, 2**21), np.arange(300.0))
