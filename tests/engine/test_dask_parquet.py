"""From Parquet to a fit and back to Parquet on two workers, as one would write it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nystrom

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
dd = pytest.importorskip("dask.dataframe")
distributed = pytest.importorskip("distributed")
engine_dask = pytest.importorskip("nystrom.engine.dask")

COLUMNS = ["a", "b", "c"]


@pytest.fixture(scope="module")
def client():
    options = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, **options) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("table")
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(40_000, 3)), columns=COLUMNS)
    table["y"] = np.sin(table["a"]) + table["b"]
    table["kind"] = np.where(table["y"] > 0, "up", "down")
    for i, part in enumerate((table[:30_000], table[30_000:])):
        part.to_parquet(place / f"{i}.parquet", index=False)
    return place


def machine(**parameters) -> nystrom.KernelRidge:
    return nystrom.KernelRidge(n_landmarks=60, alpha=1e-3, random_state=0, **parameters)


def test_a_frame_is_fitted_scored_predicted_and_written(client, folder: Path, tmp_path: Path) -> None:
    frame, table = dd.read_parquet(folder), pd.read_parquet(folder)
    model = machine().fit(frame[COLUMNS], frame["y"])
    local = machine().fit(table[COLUMNS], table["y"])
    assert model.score(frame[COLUMNS], frame["y"]) == pytest.approx(local.score(table[COLUMNS], table["y"]), abs=1e-3)
    lazy = model.predict(frame[COLUMNS])
    assert hasattr(lazy, "compute")
    expected = model.predict(table[COLUMNS])
    np.testing.assert_allclose(lazy.compute(), expected, rtol=1e-10)
    for _ in range(2):  # the second takes the place of the first
        written = model.predict(frame[COLUMNS], out=tmp_path / "predicted.parquet")
        np.testing.assert_allclose(written.whole()[:, 0], expected, rtol=1e-10)
    assert [path.name for path in tmp_path.iterdir()] == ["predicted.parquet"]
    with pytest.raises(ValueError, match=r"out must end in \.parquet"):
        model.predict(frame[COLUMNS], out=tmp_path / "predicted.npy")


def test_large_partitions_are_split_for_a_fit(client, folder: Path) -> None:
    rows = engine_dask.collection_rows(dd.read_parquet(folder)[COLUMNS])
    assert rows.block_rows >= 30_000
    split = engine_dask.split_partitions(rows)
    assert split.block_rows <= 8192
    assert split.shape == rows.shape
    np.testing.assert_array_equal(split.take(np.array([3, 29_999, 35_000])), rows.take(np.array([3, 29_999, 35_000])))


def test_a_path_is_read_by_the_workers(client, folder: Path) -> None:
    rows = nystrom.open_rows(folder, columns=COLUMNS, target="y")
    table = pd.read_parquet(folder)
    model = machine(engine="dask").fit(rows)
    assert model.score(table[COLUMNS], table["y"]) > 0.99
    assert engine_dask.ship_rows(rows).block_rows <= 8192


def test_classes_of_a_frame_are_scored(client, folder: Path) -> None:
    frame = dd.read_parquet(folder)
    model = nystrom.KernelRidgeClassifier(n_landmarks=60, random_state=0).fit(frame[COLUMNS], frame["kind"])
    assert model.score(frame[COLUMNS], frame["kind"]) > 0.95
