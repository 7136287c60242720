"""Workers reuse the memory of a pass from block to block, and give it back when the pass has ended."""

import gc
import time
import weakref

import numpy as np
import pytest

from nystrom import Nystroem
from nystrom.engine import memory

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")


@pytest.fixture
def client():
    """A client with one worker of one thread, in this process."""
    cluster = distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0", memory_limit=0
    )
    with cluster, distributed.Client(cluster) as client:
        yield client


def test_blocks_of_a_pass_share_memory_that_is_free_afterwards(client, monkeypatch):
    made, array = {}, memory.Room.array

    def noted(self, use, shape, dtype):
        made.setdefault(id(self), weakref.ref(self))
        return array(self, use, shape, dtype)

    monkeypatch.setattr(memory.Room, "array", noted)
    X = da.from_array(np.random.default_rng(0).normal(size=(4000, 3)), chunks=(200, -1))
    Nystroem(n_components=5, landmarks=np.arange(10.0)[:, None] * np.ones(3), gamma=0.1).fit(X)
    assert 1 <= len(made) <= 2
    deadline = time.monotonic() + 30
    while any(room() is not None for room in made.values()):
        assert time.monotonic() < deadline, "a worker holds memory of a pass that has ended"
        gc.collect()
        time.sleep(0.05)
