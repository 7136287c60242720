"""The sums over a block, and the memory that blocks share."""

import pickle

import numpy as np
import pytest

from nystrom import Nystroem, block_memory
from nystrom.block_memory import Room, Rooms
from nystrom.feature_sums import BlockSums
from nystrom.rows.base import Block


def test_blocks_use_the_same_memory_one_after_another(monkeypatch):
    made = []

    class Counted(Room):
        def __init__(self):
            super().__init__()
            made.append(self)

    monkeypatch.setattr(block_memory, "Room", Counted)
    X = np.random.default_rng(0).normal(size=(20_000, 3)).astype(np.float32)
    Nystroem(n_components=20, landmarks="uniform", n_jobs=1, random_state=0).fit(X)
    assert len(made) == 1


def test_a_room_is_lent_to_one_block_at_a_time_and_arrives_empty_elsewhere():
    rooms = Rooms()
    with rooms.one() as first, rooms.one() as second:
        assert first is not second
        held = first.array("values", (3, 2), np.float32)
        assert np.shares_memory(held, first.array("values", (2, 2), np.float32))
        assert not np.shares_memory(held, first.array("others", (2, 2), np.float32))
        assert not np.shares_memory(held, second.array("values", (3, 2), np.float32))
    assert len(rooms._free) == 2
    sent = pickle.loads(pickle.dumps(rooms))
    assert not sent._free
    with sent.one() as room:
        held = room.array("values", (3, 2), np.float32)
    with sent.one() as room:
        assert np.shares_memory(held, room.array("values", (3, 2), np.float32))
    rooms.clear()
    assert not rooms._free


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("k", [5, 300, 700])
def test_leading_features_apart_from_the_others_have_the_sums_of_all_together(k, weighted):
    rng = np.random.default_rng(k)
    n, j = 40, 3
    F, y = rng.normal(size=(n, k)), rng.normal(size=(n, 2))
    w = rng.integers(0, 3, n).astype(float) if weighted else None
    block, diagonal = Block(0, 0, F, y, w), rng.random(n)
    together, apart = BlockSums(block, k, Room()), BlockSums(block, k, Room())
    for rows in (slice(0, 25), slice(25, n)):
        together.add(F[rows].copy(), diagonal[rows], rows.start)
        apart.add(F[rows, j:].copy(), diagonal[rows], rows.start, leading=F[rows, :j].copy())
    one, other = together.statistics(), apart.statistics()
    assert np.array_equal(other.scatter, other.scatter.T)
    for name in ("scatter", "mean", "cross", "trace", "weight"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-12, atol=1e-12)
