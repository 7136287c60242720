"""The same bits on a cluster as in this process, whoever computes what and whoever dies."""

import os
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
import scipy.sparse as sp

import nystrom
from nystrom import KernelRidge, Nystroem, kernel_eigh, open_rows
from nystrom.engine import LocalEngine, Silent, Sums
from nystrom.exceptions import ClusterLostError, ClusterVersionError
from nystrom.landmarks import SketchedKMeans, select_landmarks
from nystrom.rows import as_blocks

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")
engine_dask = pytest.importorskip("nystrom.engine.dask")
collection_rows = pytest.importorskip("nystrom.engine.dask").collection_rows

CHUNK = 700
N_ROWS = 5000


def start_cluster(n_workers, **options):
    return distributed.LocalCluster(
        n_workers=n_workers, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0", **options
    )


@pytest.fixture(scope="module")
def client():
    with start_cluster(2) as cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    centers = 3 * rng.normal(size=(12, 25))
    return centers[rng.integers(12, size=N_ROWS)] + rng.normal(size=(N_ROWS, 25))


def to_sparse(block):
    return sp.csr_matrix(np.where(block > 1.5, block, 0))


def in_memory_and_on_cluster(X, container, chunk=CHUNK):
    lazy = da.from_array(X, chunks=(chunk, -1))
    if container == "csr":
        return as_blocks(to_sparse(X), block_rows=chunk), lazy.map_blocks(to_sparse)
    return as_blocks(X, block_rows=chunk), lazy


def make(landmarks="auto", **parameters):
    return Nystroem(n_components=10, n_landmarks=30, landmarks=landmarks, random_state=0, **parameters)


def assert_same_bits(a, b):
    if sp.issparse(a) or sp.issparse(b):
        assert type(a) is type(b)
        a, b = a.toarray(), b.toarray()
    assert a.dtype == b.dtype
    np.testing.assert_array_equal(a, b)


def assert_same_fit(a, b):
    assert_same_bits(a.landmarks_, b.landmarks_)
    assert_same_bits(a.projection_, b.projection_)
    assert_same_bits(a.eigenvalues_, b.eigenvalues_)
    assert a.kernel_ == b.kernel_


@pytest.mark.parametrize("container", ["dense", "csr"])
@pytest.mark.parametrize(
    "landmarks", ["auto", SketchedKMeans(sample=2000), "sketched-kmeans", "rpcholesky", "leverage"]
)
def test_a_fit_on_the_cluster_has_the_bits_of_a_local_fit(client, X, container, landmarks):
    rows, lazy = in_memory_and_on_cluster(X, container)
    local, remote = make(landmarks).fit(rows), make(landmarks).fit(lazy)
    assert_same_fit(local, remote)
    assert_same_bits(local.transform(rows), remote.transform(lazy).compute())


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_dtypes_are_those_of_a_local_fit(client, X, dtype):
    X = X.astype(dtype)
    rows, lazy = in_memory_and_on_cluster(X, "dense")
    local, remote = make().fit(rows), make().fit(lazy)
    assert_same_fit(local, remote)
    assert_same_bits(local.transform(rows), remote.transform(lazy).compute())


def test_small_blocks_of_a_sketch_are_joined_as_in_memory(client):
    X = np.random.default_rng(1).normal(size=(3000, 600))
    rows, lazy = in_memory_and_on_cluster(X, "dense", chunk=256)
    assert_same_fit(make("sketched-kmeans").fit(rows), make("sketched-kmeans").fit(lazy))


def test_features_are_lazy_with_the_chunks_and_meta_of_the_rows(client, X):
    _, lazy = in_memory_and_on_cluster(X.astype(np.float32), "dense")
    features = make().fit(lazy).transform(lazy)
    assert dask.is_dask_collection(features)
    assert features.chunks == (lazy.chunks[0], (10,))
    assert features.dtype == features.compute().dtype == np.float32
    assert isinstance(features._meta, np.ndarray)


def test_residuals_are_lazy_too(client, X):
    rows, lazy = in_memory_and_on_cluster(X, "dense")
    fitted = make().fit(rows)
    residual = fitted.residual(lazy)
    assert residual.chunks == (lazy.chunks[0],)
    assert_same_bits(fitted.residual(rows), residual.compute())


@pytest.mark.parametrize("norm", ["trace", "fro"])
def test_errors_are_measured_on_the_cluster(client, norm, monkeypatch):
    monkeypatch.setattr("nystrom.errors.frobenius.EXACT_ROWS", 100)
    X = np.random.default_rng(3).normal(size=(2_000, 5))
    rows, lazy = in_memory_and_on_cluster(X, "dense")
    fitted = make().fit(rows)
    here, there = (fitted.approximation_error(A, norm, n_pairs=10_000) for A in (rows, lazy))
    assert here == there


@pytest.mark.parametrize("factor", ["optimal", "standard", "naive"])
def test_eigenvectors_are_lazy_and_those_of_a_local_fit(client, X, factor):
    rows, lazy = in_memory_and_on_cluster(X, "dense")
    here, there = (kernel_eigh(A, n_components=5, n_landmarks=30, factor=factor, random_state=0) for A in (rows, lazy))
    assert_same_bits(here[0], there[0])
    assert there[1].chunks[0] == lazy.chunks[0]
    U = there[1].compute()
    np.testing.assert_allclose(U, here[1], atol=1e-9)
    if factor != "naive":
        np.testing.assert_allclose(U.T @ U, np.eye(5), atol=1e-13)


@pytest.mark.parametrize("container", ["dense", "csr"])
def test_rows_in_memory_are_sent_to_the_cluster_in_the_same_blocks(client, X, container):
    rows, _ = in_memory_and_on_cluster(X, container)
    assert_same_fit(make().fit(rows), make(engine="dask").fit(rows))


def test_partitions_of_a_dataframe_are_counted_once_and_may_be_empty(client, X):
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    frame = dd.from_pandas(pd.DataFrame(X, columns=[f"c{i}" for i in range(X.shape[1])]), npartitions=3)
    lengths = frame.map_partitions(len).compute()
    kept = frame[frame.c0 > 1.0]  # lengths of partitions are now unknown
    array = kept.to_dask_array(lengths=True)
    fitted = make().fit(kept)
    assert lengths.sum() == N_ROWS
    assert_same_fit(make().fit(kept.compute()), fitted)
    features = fitted.transform(kept)
    assert features.numblocks[0] == kept.npartitions
    np.testing.assert_allclose(features.compute(), fitted.transform(kept.compute()), rtol=0, atol=1e-13)
    gone = dd.concat([kept, kept[kept.c0 < -1e9]])
    assert_same_fit(fitted, make().fit(gone))
    assert fitted.transform(gone).compute().shape == (array.shape[0], 10)


def test_columns_in_several_chunks_are_joined(client, X):
    assert_same_fit(make().fit(da.from_array(X, chunks=(CHUNK, -1))), make().fit(da.from_array(X, chunks=(CHUNK, 7))))


def test_targets_follow_their_rows(client, X):
    y = np.arange(N_ROWS, dtype=float)
    lazy = da.from_array(X, chunks=(CHUNK, -1))

    def step(block):
        return Sums(block.y @ block.X, block.weight.sum())

    local = LocalEngine(1).fold(as_blocks(X, y, weight=2 * y, block_rows=CHUNK), step, label="target")
    for target, weight in ((y, 2 * y), (da.from_array(y, chunks=123), da.from_array(2 * y, chunks=CHUNK))):
        rows = collection_rows(lazy).with_target(target, weight)
        remote = engine_dask.DaskEngine().fold(rows, step, label="target")
        assert_same_bits(local[0], remote[0])
        assert local[1] == remote[1]
    with pytest.raises(ValueError, match="y has 3 rows but X has 5000"):
        collection_rows(lazy).with_target(y[:3])


def test_rows_are_taken_in_the_order_asked_for(client, X):
    for container in ("dense", "csr"):
        rows, lazy = in_memory_and_on_cluster(X, container)
        numbers = np.array([4999, 0, 701, 700, 700, 3])
        assert_same_bits(rows.take(numbers), collection_rows(lazy).take(numbers))


@pytest.mark.parametrize("landmarks", ["auto", "sketched-kmeans"])
def test_persisted_chunks_are_read_where_they_are(client, X, landmarks):
    rows, lazy = in_memory_and_on_cluster(X, "dense")
    held = lazy.persist()
    assert_same_fit(make(landmarks).fit(rows), make(landmarks).fit(held))
    assert_same_fit(make(landmarks).fit(as_blocks(X + 1, block_rows=CHUNK)), make(landmarks).fit(held + 1))
    np.testing.assert_array_equal(make().fit(held).transform(held).compute(), make().fit(rows).transform(rows))


def test_select_landmarks_reads_dask_collections(client, X):
    rows, lazy = in_memory_and_on_cluster(X, "dense")
    local, remote = (select_landmarks(data, 20, random_state=3) for data in (rows, lazy))
    assert_same_bits(local.points, remote.points)


def test_a_fold_does_not_overwrite_results_of_tasks(client):
    held = Sums(np.ones(3))
    merged = engine_dask._merge(held, Sums(np.ones(3)))
    np.testing.assert_array_equal(held[0], np.ones(3))
    np.testing.assert_array_equal(merged[0], 2 * np.ones(3))


@pytest.mark.parametrize("n_blocks", [1, 2, 7, 64])
def test_the_graph_is_linear_in_blocks_and_carries_constants_once(n_blocks, monkeypatch):
    constant = np.random.default_rng(0).normal(size=200_000)
    graphs = []
    submit = engine_dask.submit
    monkeypatch.setattr(engine_dask, "submit", lambda graph, keys: graphs.append(graph) or submit(graph, keys))
    rows = collection_rows(da.ones((10 * n_blocks, 2), chunks=(10, 2)))
    engine_dask.DaskEngine().fold(rows, lambda block: Sums(block.X.sum() + constant[0]), label="factor")
    (graph,) = graphs
    assert len(graph) <= 4 * n_blocks + 1
    shipped = len(engine_dask.cloudpickle.dumps(graph))
    assert shipped < constant.nbytes + 20_000 + 4_000 * n_blocks


def test_task_names_say_what_they_do(client, X):
    _, lazy = in_memory_and_on_cluster(X, "dense")
    rows = collection_rows(lazy)
    engine_dask.DaskEngine().fold(rows, lambda block: Sums(1), label="Lloyd step 2 of 3")
    names = client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.task_prefixes))
    assert {"lloyd-step", "merge-lloyd-step"} <= set(names)


class Recorder(Silent):
    """Progress that remembers, and may do something when a pass is under way."""

    listens = True

    def __init__(self, act=None):
        self.passes, self.act = [], act

    def start(self, label, total):
        self.passes.append([label, total, 0])

    def advance(self, rows):
        self.passes[-1][2] += rows
        if self.act is not None:
            self.act(self.passes[-1][0])


def test_progress_counts_every_row_of_every_pass(client, X, monkeypatch):
    recorder = Recorder()
    monkeypatch.setattr("nystrom.engine.make_progress", lambda verbose: recorder)
    make("sketched-kmeans").set_params(verbose=1).fit(in_memory_and_on_cluster(X, "dense")[1])
    assert recorder.passes[0][0] == "sketch"
    assert recorder.passes[-1][0] == "factor"
    assert all(done == total for _, total, done in recorder.passes)


def test_without_a_client_passes_run_in_threads(X):
    rows, lazy = in_memory_and_on_cluster(X, "dense")
    assert_same_fit(make("sketched-kmeans").fit(rows), make("sketched-kmeans").fit(lazy))


@pytest.mark.parametrize("landmarks", ["auto", "sketched-kmeans", "uniform"])
@pytest.mark.parametrize("known", [True, False], ids=["known chunks", "unknown chunks"])
def test_nan_is_found_on_the_cluster_and_named_by_its_row(client, X, landmarks, known):
    X[1234, 3] = np.nan
    X[2000:, 4] = np.inf  # most workers meet these first
    _, lazy = in_memory_and_on_cluster(X, "dense")
    with pytest.raises(ValueError, match=r"contains NaN \(first in row 1234\)"):
        make(landmarks).fit(lazy if known else lazy[lazy[:, 0] > -np.inf])


def test_nan_in_a_lazy_result_of_unknown_chunks_is_named_by_row(client, X):
    fitted = make().fit(X)
    X[1234, 3] = np.nan
    _, lazy = in_memory_and_on_cluster(X, "dense")
    with pytest.raises(ValueError, match=r"NaN \(first in row 1234\)"):
        fitted.transform(lazy).compute()
    with pytest.raises(ValueError, match=r"NaN \(first in row 1234\)"):
        fitted.transform(lazy[lazy[:, 0] > -np.inf]).compute()


@pytest.mark.parametrize("kind", [OSError, TimeoutError, FileNotFoundError, ConnectionError])
@pytest.mark.parametrize("landmarks", ["sketched-kmeans", "uniform"])
def test_an_error_of_a_chunk_is_reported_as_itself(client, X, kind, landmarks):
    def broken(block, block_info=None):
        if block_info and block_info[0]["chunk-location"][0] == 3:
            raise kind("the user's own disk")
        return block

    lazy = in_memory_and_on_cluster(X, "dense")[1].map_blocks(broken, dtype=float, meta=np.empty((0, 0)))
    with pytest.raises(kind, match="the user's own disk") as raised:
        make(landmarks).fit(lazy)
    assert not isinstance(raised.value, ClusterLostError)


class Cluster:
    """A client whose workers answer as told."""

    status = "running"

    def __init__(self, answers):
        self.answers, self.asked = answers, []

    def nthreads(self):
        return dict.fromkeys(self.answers, 1)

    def run(self, function, *, workers, on_error):
        self.asked += workers
        return {worker: self.answers[worker] for worker in workers}


def test_workers_of_another_version_are_named_before_the_first_pass():
    cluster = pytest.importorskip("nystrom.engine.dask.cluster")
    right = f"version {nystrom.__version__}"
    with pytest.raises(ClusterVersionError, match=r"1 of 2 Dask workers .*: the worker b has version 9"):
        cluster.require_package(Cluster({"a": right, "b": "version 9"}))
    good = Cluster({"a": right})
    cluster.require_package(good)
    good.answers["c"] = right
    cluster.require_package(good)
    assert good.asked == ["a", "c"]


def test_the_probe_needs_no_package_to_be_read():
    cluster = pytest.importorskip("nystrom.engine.dask.cluster")
    sent = engine_dask.cloudpickle.dumps(cluster._make_probe())
    script = f"""
        import sys
        sys.modules["nystrom"] = None
        import pickle
        print(pickle.loads({sent!r})())
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith("none that it can import (ModuleNotFoundError"), done.stderr


def test_wrong_engines_and_containers_are_named(client, X):
    _, lazy = in_memory_and_on_cluster(X, "dense")
    with pytest.raises(ValueError, match=r"engine must be one of .* got 'spark'"):
        make(engine="spark").fit(X)
    with pytest.raises(ValueError, match="engine='local' cannot read a Dask collection"):
        make(engine="local").fit(lazy)
    with pytest.raises(ValueError, match="X must have two dimensions"):
        make().fit(lazy[:, 0])
    with pytest.raises(ValueError, match="chunk of X is sparse"):
        make().fit(lazy.map_blocks(to_sparse, meta=np.empty((0, 0))))


def test_the_client_holds_no_collection(client):
    psutil = pytest.importorskip("psutil")
    process, stop, peak = psutil.Process(), threading.Event(), [0]

    def watch():
        while not stop.wait(0.005):
            peak[0] = max(peak[0], process.memory_info().rss)

    lazy = da.random.default_rng(0).normal(size=(60_000, 800), chunks=(5_000, 800))  # 384 MB
    make("uniform").fit(lazy[:5_000])  # what is imported and allocated once is no growth
    before = process.memory_info().rss
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        make(SketchedKMeans(sketch_dim=5)).fit(lazy)
    finally:
        stop.set()
        watcher.join()
    assert peak[0] > 0
    assert peak[0] - before < 120e6


def test_everything_else_works_without_dask():
    script = """
        import sys
        for name in ("dask", "distributed"):
            sys.modules[name] = None  # importing it now raises ImportError
        import numpy as np
        from nystrom import KernelRidge, Nystroem, kernel_eigh, open_rows
        X = np.random.default_rng(0).normal(size=(100, 3))
        assert Nystroem(n_components=5).fit_transform(X).shape == (100, 5)
        try:
            Nystroem(n_components=5, engine="dask").fit(X)
        except ImportError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True, timeout=120
    )
    assert 'pip install "dask[distributed]"' in done.stdout


@pytest.mark.slow
def test_a_scheduler_that_closes_is_a_clear_error(X, monkeypatch):
    _, lazy = in_memory_and_on_cluster(X, "dense", chunk=100)
    with start_cluster(1) as cluster, distributed.Client(cluster, timeout=5):
        closing = threading.Thread(target=cluster.close)

        def close(label):
            if label == "sketch" and closing.ident is None:
                closing.start()

        monkeypatch.setattr("nystrom.engine.make_progress", lambda verbose: Recorder(close))

        with pytest.raises(ClusterLostError, match="connection to the Dask scheduler was lost during"):
            make("sketched-kmeans").set_params(verbose=1).fit(lazy)
        closing.join()


@pytest.mark.slow
@pytest.mark.parametrize("n_workers", [1, 2, 4])
@pytest.mark.parametrize("container", ["dense", "csr"])
def test_bits_do_not_depend_on_the_number_of_workers(X, container, n_workers):
    rows, lazy = in_memory_and_on_cluster(X, container)
    with start_cluster(n_workers) as cluster, distributed.Client(cluster):
        remote = make("sketched-kmeans").fit(lazy)
        features = remote.transform(lazy).compute()
    local = make("sketched-kmeans").fit(rows)
    assert_same_fit(local, remote)
    assert_same_bits(local.transform(rows), features)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["sketch", "k-means", "assign", "means of clusters", "factor"])
def test_a_worker_killed_in_a_stage_changes_no_bit(X, stage, monkeypatch):
    rows, lazy = in_memory_and_on_cluster(X, "dense", chunk=100)
    local = make("sketched-kmeans").fit(rows)
    with start_cluster(2) as cluster, distributed.Client(cluster) as client:
        pids = client.run(os.getpid)
        killed = []

        def kill(label):
            if label == stage and not killed:
                killed.append(next(iter(pids.values())))
                os.kill(killed[0], signal.SIGKILL)

        monkeypatch.setattr("nystrom.engine.make_progress", lambda verbose: Recorder(kill))

        remote = make("sketched-kmeans").set_params(verbose=1).fit(lazy)
        assert killed
    assert_same_fit(local, remote)


def test_a_column_in_other_partitions_than_the_rows_is_their_target(client, tmp_path):
    pd = pytest.importorskip("pandas")
    dd = pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(300, 3)), columns=list("abc"))
    frame["y"] = frame["a"] ** 2
    parts = dd.from_pandas(frame, npartitions=4)
    parts.to_parquet(tmp_path / "t", write_index=False)
    read = dd.read_parquet(tmp_path / "t")
    other = dd.from_pandas(frame, npartitions=3)["y"]
    points = frame[list("abc")].to_numpy()[:40]
    expected = KernelRidge(0.1, gamma=0.3, landmarks=points).fit(frame[list("abc")], frame["y"])
    for y in (read["y"], other, other.to_dask_array()):
        model = KernelRidge(0.1, gamma=0.3, landmarks=points).fit(read[list("abc")], y)
        np.testing.assert_allclose(model.predict(frame[list("abc")]), expected.predict(frame[list("abc")]), rtol=1e-8)
    with pytest.raises(ValueError, match="y has 299 rows but X has 300"):
        KernelRidge(0.1).fit(read[list("abc")], dd.from_pandas(frame["y"][:299], npartitions=3))


def test_a_file_with_a_target_column_keeps_it_on_the_cluster(client, tmp_path):
    from nystrom.engine.dask.rows import ship_rows

    stored = np.random.default_rng(1).normal(size=(200, 4))
    np.save(tmp_path / "t.npy", stored)
    rows = open_rows(tmp_path / "t.npy", target=3, block_rows=64)
    shipped = ship_rows(rows)
    assert shipped.has_target
    np.testing.assert_array_equal(np.concatenate([shipped.block(i).y for i in range(shipped.n_blocks)]), stored[:, 3])
    wide = shipped.widened(128)
    assert wide.n_blocks == 2
    np.testing.assert_array_equal(wide.block(1).y, stored[128:, 3])


@pytest.mark.parametrize("n_chunks", [1, 16, 17, 61, 64])
@pytest.mark.parametrize("threads", [1, 2])
def test_runs_of_blocks_are_subtrees_of_the_merges(n_chunks, threads, monkeypatch):
    class Nested:
        def __init__(self, text):
            self.text = text

        def merge(self, other):
            return Nested(f"({self.text} {other.text})")

    monkeypatch.setattr("nystrom.engine.dask.rows.cluster_threads", lambda: threads)
    X = np.arange(3.0 * n_chunks).reshape(-1, 1)
    lazy = da.from_array(X, chunks=(3, 1))

    def step(block):
        return Nested(str(block.index))

    remote = engine_dask.DaskEngine().fold(collection_rows(lazy), step, label="nested")
    assert remote.text == LocalEngine(1).fold(as_blocks(X, block_rows=3), step, label="nested").text
    runs = collection_rows(lazy).runs
    assert sum(map(len, runs)) == n_chunks
    assert len(runs) == 1 or max(map(len, runs)) * threads * 8 <= n_chunks


def test_a_fit_reads_lazy_rows_once_if_the_workers_can_hold_them(client, X, monkeypatch):

    def read(block_info=None):
        distributed.get_worker().log_event("rows-read", block_info[None]["chunk-location"])
        i = block_info[None]["chunk-location"][0]
        return X[i * CHUNK : (i + 1) * CHUNK]

    lengths = tuple(min(CHUNK, N_ROWS - start) for start in range(0, N_ROWS, CHUNK))
    lazy = da.map_blocks(read, chunks=(lengths, (X.shape[1],)), dtype=X.dtype, meta=np.empty((0, 0)))
    rows, _ = in_memory_and_on_cluster(X, "dense")

    def reads():
        return len(client.get_events("rows-read") or ())

    before = reads()
    assert_same_fit(make("sketched-kmeans").fit(rows), make("sketched-kmeans").fit(lazy))
    assert reads() - before == len(lengths)
    monkeypatch.setattr("nystrom.engine.dask.rows.cluster_memory", lambda: 4 * X.nbytes - 1)
    before = reads()
    assert_same_fit(make("sketched-kmeans").fit(rows), make("sketched-kmeans").fit(lazy))
    assert reads() - before > 2 * len(lengths)
