"""The rows held out of a fit by conjugate gradients, where they are too many to hold a key of each."""

import tracemalloc

import numpy as np
import pytest

from nystrom import KernelRidge
from nystrom.engine import LocalEngine
from nystrom.rows import as_blocks
from nystrom.tuning import landmark_fit


def held(X, weight=None, seed=0):
    rows = as_blocks(X, block_rows=128).with_target(np.zeros(len(X)), weight)
    return landmark_fit._held_of_many(rows, LocalEngine(1), np.random.default_rng(seed))


def test_equal_rows_are_held_out_together_however_often_they_are_written_down():
    X = np.random.default_rng(0).normal(size=(3_000, 4))
    X[0] = 0.0
    numbers = held(X)
    assert len(numbers) == 500  # the least number, 5 % being fewer
    order = np.random.default_rng(1).permutation(9_000)
    again = np.tile(X, (3, 1))[order]
    again[again == 0] = -0.0
    repeated = held(again)
    assert len(repeated) == 1_500
    np.testing.assert_array_equal(np.unique(order[repeated] % 3_000), numbers)
    weight = np.where(np.arange(9_000) < 3_000, 2.0, 0.0)
    np.testing.assert_array_equal(held(np.tile(X, (3, 1)), weight), numbers)
    assert set(held(X, seed=1)) != set(numbers)


def test_few_distinct_rows_among_many_are_counted():
    X = np.tile(np.arange(50.0)[:, None], (200, 1))
    assert len(np.unique(held(X) % 50)) == 10  # a fifth
    with pytest.raises(ValueError, match="at least 2 distinct rows of positive weight"):
        held(np.ones((500, 2)))


def test_many_rows_choose_alpha_as_few_do(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(4_000, 3))
    y = np.sin(2 * X).sum(axis=1) + 0.1 * rng.normal(size=4_000)
    weight = rng.integers(1, 3, 4_000)
    for given in (None, weight):
        few = KernelRidge("auto", solver="cg", n_landmarks=100, random_state=0).fit(X, y, sample_weight=given)
        monkeypatch.setattr(landmark_fit, "_FEW_ROWS", 100)
        many = KernelRidge("auto", solver="cg", n_landmarks=100, random_state=0).fit(X, y, sample_weight=given)
        monkeypatch.undo()
        # The scores are flat towards small alpha, so that two good choices may be far apart: the score decides.
        order = np.argsort(few.alphas_)
        taken = np.interp(np.log(many.alpha_), np.log(few.alphas_[order]), few.alpha_scores_[order])
        assert taken <= 1.02 * few.alpha_scores_.min()
        assert many.alpha_scores_.min() == pytest.approx(few.alpha_scores_.min(), rel=0.15)
        np.testing.assert_allclose(many.predict(X), few.predict(X), atol=0.1)


def test_what_is_held_does_not_grow_with_the_rows():
    X = np.random.default_rng(0).normal(size=(400_000, 2))
    rows = as_blocks(X).with_target(np.zeros(len(X)))
    tracemalloc.start()
    try:
        landmark_fit._held_of_many(rows, LocalEngine(1), np.random.default_rng(0))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 30 * len(X)  # keys and all that was made of them took 90 bytes per row
