"""The moments of the rows: exact, and taken beside other work where a thread is to spare."""

import threading
import time

import numpy as np
import pytest
import scipy.sparse as sp

from nystrom import select_landmarks
from nystrom.engine import LocalEngine
from nystrom.engine.passes import Passes
from nystrom.engine.progress import make_progress
from nystrom.kernels import Gaussian
from nystrom.rows import as_blocks


@pytest.fixture
def rows():
    return as_blocks(np.random.default_rng(0).normal(3.0, 2.0, size=(4000, 7)), block_rows=100)


def test_moments_beside_other_work_have_the_bits_of_moments_alone(rows):
    alone = Passes(rows, LocalEngine(1)).moments
    passes = Passes(rows, LocalEngine(3))
    with passes.moments_meanwhile():
        # A pass inside need not take them along.
        total = passes.fold(lambda block: Count(len(block.X)), label="count")
    beside = passes.moments
    assert total.count == 4000
    assert passes.n_passes == 2
    assert beside.scatter == alone.scatter
    np.testing.assert_array_equal(beside.mean, alone.mean)
    np.testing.assert_allclose(beside.spread, np.var(rows.take(np.arange(4000)), axis=0).sum(), rtol=1e-12)


class Count:
    def __init__(self, count):
        self.count = count

    def merge(self, other):
        return Count(self.count + other.count)


@pytest.mark.parametrize(
    "engine", [LocalEngine(1), LocalEngine(2, make_progress(1))], ids=["one thread", "a bar is shown"]
)
def test_without_a_thread_to_spare_they_are_left_for_later(rows, engine, capsys):
    passes = Passes(rows, engine)
    with passes.moments_meanwhile():
        assert passes.n_passes == 0
    assert passes.moments.count == 4000


def test_an_error_meanwhile_stops_the_pass_and_leaves_no_thread():
    seen = []

    class Slow(type(as_blocks(np.zeros((2, 2))))):
        def block(self, index):
            seen.append(index)
            time.sleep(0.005)
            return super().block(index)

    passes = Passes(Slow(np.ones((1000, 2)), block_rows=1), LocalEngine(2))
    with pytest.raises(KeyError), passes.moments_meanwhile():
        raise KeyError
    assert len(seen) < 100
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("nystrom-passes")]


def test_nan_is_found_beside_other_work():
    X = np.zeros((3000, 3))
    X[1234, 1] = np.nan
    passes = Passes(as_blocks(X, block_rows=100), LocalEngine(2))
    with passes.moments_meanwhile():
        pass
    with pytest.raises(ValueError, match=r"contains NaN \(first in row 1234\)"):
        _ = passes.moments


@pytest.mark.parametrize("p", [3, 80])
def test_nan_in_a_sample_is_named_by_its_row(p):
    X = np.random.default_rng(0).normal(size=(20_000, p))
    X[1234:1244] = np.inf
    with pytest.raises(ValueError, match=r"contains infinity \(first in row 12[34]\d\)"):
        select_landmarks(X, 10, random_state=0)


def test_entries_that_stand_twice_are_one():
    once = sp.random(50, 20, 0.3, format="csr", random_state=0)
    twice = sp.csr_matrix((np.repeat(once.data / 2, 2), np.repeat(once.indices, 2), once.indptr * 2), shape=once.shape)
    assert not twice.has_canonical_format
    one, two = (Passes(as_blocks(X), LocalEngine()).moments.spread for X in (once, twice))
    assert two == pytest.approx(one)
    np.testing.assert_allclose(Gaussian(0.5)(twice, twice[:5]), Gaussian(0.5)(once, once[:5]), rtol=1e-12)
    assert not twice.has_canonical_format
