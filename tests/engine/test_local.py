"""Passes in this process: the result depends on the blocks, not on the threads."""

import copy
import os
import pickle
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nystrom import Nystroem, open_rows
from nystrom.engine import LocalEngine, Sums, TreeMerger, local
from nystrom.engine.threads import resolve_n_jobs
from nystrom.rows import as_blocks

X = np.random.default_rng(0).normal(size=(1000, 4)).astype(np.float32)


def gram(block):
    return Sums(block.X.T @ block.X, block.X.shape[0])


def test_a_fold_has_the_same_bits_for_any_number_of_threads():
    one, *others = (LocalEngine(jobs).fold(as_blocks(X, block_rows=64), gram, label="gram") for jobs in (1, 2, 7))
    for other in others:
        np.testing.assert_array_equal(one[0], other[0])
        assert other[1] == 1000


def test_a_map_yields_every_block_in_order():
    found = list(LocalEngine(3).map(as_blocks(X, block_rows=64), lambda block: block.X[:, 0], label="first"))
    assert [start for start, _ in found] == list(range(0, 1000, 64))
    np.testing.assert_array_equal(np.concatenate([part for _, part in found]), X[:, 0])


def test_a_block_that_ends_as_patience_does_is_no_error():
    class Late(Future):
        def result(self, timeout=None):
            if timeout is not None:
                raise TimeoutError  # and the block is done before anybody looks
            return super().result()

    class Pool:
        def submit(self, function, argument):
            future = Late()
            future.set_running_or_notify_cancel()
            future.set_result(function(argument))
            return future

    assert local._Job(Pool(), lambda value: value + 1, 2).result(0.0) == 3


def test_a_timeout_of_the_step_itself_reaches_the_caller():
    def step(block):
        raise TimeoutError("the file server does not answer")

    with pytest.raises(TimeoutError, match="file server"):
        LocalEngine(2).fold(as_blocks(X, block_rows=64), step, label="gram")


@pytest.mark.parametrize("n_columns", [None, 2])
def test_emitted_rows_are_those_of_the_blocks(n_columns):
    def step(block):
        return block.X[:, 0] if n_columns is None else block.X[:, :2]

    out = LocalEngine(2).emit(as_blocks(X, block_rows=64), step, n_columns, np.float32, label="emit")
    np.testing.assert_array_equal(out, X[:, 0] if n_columns is None else X[:, :2])


def test_rows_made_and_sums_taken_in_one_pass_are_those_of_two():
    rows, engine = as_blocks(X, block_rows=64), LocalEngine(2)
    made, folded = engine.map_rows_and_fold(
        rows, lambda block: (block.X[:, :2], gram(block)), 2, np.float32, label="both"
    )
    alone = engine.map_rows(rows, lambda block: block.X[:, :2], 2, np.float32, label="rows")
    numbers = np.arange(1000)
    np.testing.assert_array_equal(made.take(numbers), alone.take(numbers))
    np.testing.assert_array_equal(folded[0], engine.fold(rows, gram, label="gram")[0])


def test_results_of_a_file_beyond_the_limit_are_stored_on_disk_without_a_budget_too(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "HELD_BYTES", 100)
    X = np.random.default_rng(0).normal(size=(50, 3))
    np.save(tmp_path / "X.npy", X)
    for rows, stays in ((open_rows(tmp_path / "X.npy"), False), (as_blocks(X), True)):
        made = LocalEngine().map_rows(rows, lambda block: 2 * block.X, 3, np.float64, label="twice")
        assert made.in_memory is stays
        np.testing.assert_array_equal(made.take(np.arange(50)), 2 * X)


def test_an_error_in_a_step_ends_the_pass_and_leaves_the_engine_usable():
    begun = []

    def step(block):
        begun.append(block.index)
        if block.index == 3:
            raise ZeroDivisionError("in block 3")
        return Sums(1)

    engine, rows = LocalEngine(2), as_blocks(X, block_rows=64)
    assert rows.n_blocks > 10
    with pytest.raises(ZeroDivisionError, match="in block 3"):
        engine.fold(rows, step, label="fails")
    assert max(begun) <= 6  # block 3, and those that were in flight with it
    assert engine.fold(rows, lambda block: Sums(1), label="works")[0] == rows.n_blocks


def test_engines_share_their_threads():
    def names(engine):
        found = engine.map(as_blocks(X, block_rows=64), lambda block: threading.current_thread().name, label="names")
        return {name for _, name in found}

    used = names(LocalEngine(2)) | names(LocalEngine(2)) | names(LocalEngine(2))
    assert 1 <= len(used) <= 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_child_process_makes_threads_of_its_own():
    rows = as_blocks(X, block_rows=64)
    LocalEngine(2).fold(rows, lambda block: Sums(1), label="parent")
    child = os.fork()
    if child == 0:
        count = LocalEngine(2).fold(rows, lambda block: Sums(1), label="child")[0]
        os._exit(0 if count == rows.n_blocks else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@given(st.integers(min_value=1, max_value=70))
def test_the_tree_keeps_the_order_and_its_shape_depends_on_the_count_alone(count):
    merger = TreeMerger(lambda a, b: f"({a} {b})")
    for i in range(count):
        merger.push(str(i))
    tree = merger.result()
    assert tree.replace("(", "").replace(")", "").split() == [str(i) for i in range(count)]
    depth = max(tree[:i].count("(") - tree[:i].count(")") for i in range(len(tree) + 1))
    assert depth <= np.ceil(np.log2(count)) + 1


def test_no_blocks_is_a_clear_error():
    with pytest.raises(ValueError, match="X has 0 samples"):
        TreeMerger(max).result()


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda sums: pickle.loads(pickle.dumps(sums))])
def test_sums_survive_copying_and_pickling(duplicate):
    sums = Sums(np.ones(3), 2)
    twin = duplicate(sums)
    np.testing.assert_array_equal(twin.merge(sums)[0], 2 * np.ones(3))
    assert (len(twin), twin[1]) == (2, 2)


@pytest.mark.parametrize("n_jobs", [0, 1.5, True, "two"])
def test_wrong_numbers_of_threads_are_named(n_jobs):
    with pytest.raises(ValueError, match="n_jobs must be None, a positive number of threads"):
        resolve_n_jobs(n_jobs)


def fitted_map(n_jobs):
    rows = np.random.default_rng(1).normal(size=(4_500, 3))
    return Nystroem(n_components=5, gamma=0.5, landmarks=rows[:10], n_jobs=n_jobs).fit(rows)


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("in_thread", [False, True], ids=["in the step", "in a thread of the step"])
def test_a_kernel_that_uses_a_fitted_map_does_not_wait_for_itself(n_jobs, in_thread):
    inner = fitted_map(n_jobs)
    X = np.random.default_rng(0).normal(size=(4_500, 3))

    def features(A):
        tall = np.tile(A, (4500 // len(A) + 1, 1))  # rows enough for several blocks
        return inner.transform(tall)[: len(A)]

    def kernel(A, B):
        if not in_thread:
            return features(A) @ features(B).T
        with ThreadPoolExecutor(1) as own:
            return own.submit(lambda: features(A) @ features(B).T).result()

    done = []

    def fit():
        fitted = Nystroem(kernel, n_components=3, landmarks=X[:6], n_jobs=n_jobs).fit(as_blocks(X, block_rows=1_500))
        done.append(fitted.transform(X[:50]))

    thread = threading.Thread(target=fit, daemon=True)
    thread.start()
    thread.join(60)
    assert done, "the pass waits for itself"
    L = inner.transform(X[:50])
    assert done[0].shape[1] <= 3
    assert np.linalg.norm(done[0] @ done[0].T) <= np.linalg.norm(L @ L.T) * (1 + 1e-8)


def test_a_timeout_of_the_step_is_the_steps_own():
    def step(block):
        raise TimeoutError("the user's own")

    with pytest.raises(TimeoutError, match="the user's own"):
        LocalEngine(2).fold(as_blocks(np.zeros((100, 2)), block_rows=10), step, label="slow")
