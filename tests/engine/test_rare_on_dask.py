"""Rare clusters are given landmarks on a cluster as they are here."""

import numpy as np
import pytest

from nystrom import Nystroem
from nystrom.rows import as_blocks

da = pytest.importorskip("dask.array")


def test_rare_clusters_get_the_same_landmarks_on_dask():
    rng = np.random.default_rng(0)
    common = rng.normal(size=(20_000, 3))
    rare = np.concatenate([rng.normal(size=(40, 3)) * 0.1 + 40 * (1 + i) for i in range(5)])
    X = np.concatenate([common, rare])[rng.permutation(20_200)]
    settings = {"gamma": 0.5, "n_components": 50, "n_landmarks": 100, "random_state": 0}
    local = Nystroem(**settings).fit(as_blocks(X, block_rows=4000))
    remote = Nystroem(**settings).fit(da.from_array(X, chunks=(4000, -1)))
    np.testing.assert_array_equal(local.landmarks_, remote.landmarks_)
    np.testing.assert_array_equal(local.projection_, remote.projection_)
    assert float(np.max(local.residual(rare))) < 0.9
