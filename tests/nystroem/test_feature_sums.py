"""The sums over a block, and the memory that blocks share."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from nystrom import Nystroem
from nystrom.engine.memory import Room
from nystrom.nystroem.fit_pass import BlockSums
from nystrom.rows.base import Block


def test_blocks_use_the_same_memory_one_after_another(monkeypatch):
    places, array = set(), Room.array

    def noted(self, use, shape, dtype):
        made = array(self, use, shape, dtype)
        if use == "features":
            places.add(made.ctypes.data)
        return made

    monkeypatch.setattr(Room, "array", noted)
    X = np.random.default_rng(0).normal(size=(20_000, 3)).astype(np.float32)
    Nystroem(n_components=20, landmarks="uniform", n_jobs=1, random_state=0).fit(X)
    assert len(places) == 1


def test_a_room_is_each_threads_own_and_arrives_empty_elsewhere():
    room = Room()
    held = room.array("values", (3, 2), np.float32)
    assert np.shares_memory(held, room.array("values", (2, 2), np.float32))
    assert not np.shares_memory(held, room.array("others", (2, 2), np.float32))
    with ThreadPoolExecutor(1) as pool:
        assert not np.shares_memory(held, pool.submit(room.array, "values", (3, 2), np.float32).result())
    assert not vars(pickle.loads(pickle.dumps(room)))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("k", [5, 300, 700])
def test_tiles_add_up_to_the_sums_about_the_means(k, weighted):
    rng = np.random.default_rng(k)
    n = 40
    F, y = 3 + rng.normal(size=(n, k)), rng.normal(size=(n, 2))
    w = rng.integers(0, 3, n).astype(float) if weighted else np.ones(n)
    block, diagonal = Block(0, 0, F, y, w if weighted else None), rng.random(n)
    sums = BlockSums(block, k, Room())
    for rows in (slice(0, 25), slice(25, n)):
        sums.add(F[rows].copy(), diagonal[rows], rows.start)
    found, mean = sums.statistics().whole(), w @ F / w.sum()
    assert np.array_equal(found.scatter, found.scatter.T)
    exact = {
        "scatter": (w[:, None] * (F - mean)).T @ (F - mean),
        "mean": mean,
        "cross": (w[:, None] * (F - mean)).T @ (y - w @ y / w.sum()),
        "trace": w @ diagonal,
        "weight": w.sum(),
    }
    for name, value in exact.items():
        np.testing.assert_allclose(getattr(found, name), value, rtol=1e-10, atol=1e-10, err_msg=name)
