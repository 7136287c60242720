"""From Parquet to a fit and back to Parquet on two workers, as one would write it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nystrom
from nystrom.rows import as_blocks

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
cloudpickle = pytest.importorskip("cloudpickle")
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
    assert len(cloudpickle.dumps(lazy.dask)) < model.projection_.nbytes  # the landmarks, no m × m matrix
    expected = model.predict(table[COLUMNS])
    np.testing.assert_array_equal(lazy.compute(), expected)
    for _ in range(2):  # the second takes the place of the first
        written = model.predict(frame[COLUMNS], out=tmp_path / "predicted.parquet")
        np.testing.assert_allclose(written.whole()[:, 0], expected, rtol=1e-10)
    assert [path.name for path in tmp_path.iterdir()] == ["predicted.parquet"]
    with pytest.raises(ValueError, match=r"out must end in \.parquet"):
        model.predict(frame[COLUMNS], out=tmp_path / "predicted.npy")


def test_partitions_become_the_blocks_of_memory_for_a_fit(client, folder: Path) -> None:
    frame, table = dd.read_parquet(folder), pd.read_parquet(folder)
    for pieces in (frame, dd.from_pandas(table, npartitions=13)):
        rows = engine_dask.collection_rows(pieces[COLUMNS])
        usual = engine_dask.in_usual_blocks(rows)
        assert rows.block_rows != usual.block_rows == as_blocks(table[COLUMNS]).block_rows
        chosen = np.array([3, 29_999, 35_000])
        np.testing.assert_array_equal(usual.take(chosen), rows.take(chosen))
        remote, local = machine().fit(pieces[COLUMNS], pieces["y"]), machine().fit(table[COLUMNS], table["y"])
        np.testing.assert_array_equal(remote.landmark_coef_, local.landmark_coef_)


def test_empty_partitions_are_no_blocks(client, folder: Path) -> None:
    frame, table = dd.read_parquet(folder), pd.read_parquet(folder)[:30_000]
    few = frame.map_partitions(lambda part: part if len(part) > 20_000 else part[:0])
    remote, local = machine().fit(few[COLUMNS], few["y"]), machine().fit(table[COLUMNS], table["y"])
    np.testing.assert_array_equal(remote.landmark_coef_, local.landmark_coef_)


@pytest.mark.parametrize(
    ("estimator", "target"), [(nystrom.KernelRidge, "y"), (nystrom.KernelRidgeClassifier, "class")]
)
def test_a_path_is_read_by_the_workers(client, folder: Path, tmp_path: Path, estimator, target: str) -> None:
    table = pd.read_parquet(folder)[[*COLUMNS, "y"]]
    table["class"] = (table["y"] > 0).astype(int)
    table = table[[*COLUMNS, target]]
    (tmp_path / "parts").mkdir()
    for i, part in enumerate((table[:30_000], table[30_000:])):
        part.to_parquet(tmp_path / "parts" / f"{i}.parquet", index=False, row_group_size=7_000)
    table.to_parquet(tmp_path / "one.parquet", index=False)
    local = estimator(n_landmarks=60, random_state=0).fit(table[COLUMNS], table[target])
    expected = local.predict(table[COLUMNS])
    for path in (tmp_path / "parts", tmp_path / "one.parquet"):
        model = estimator(n_landmarks=60, random_state=0, engine="dask").fit(str(path), target)
        np.testing.assert_array_equal(model.landmark_coef_, local.landmark_coef_)
        lazy = model.predict(path)
        assert hasattr(lazy, "compute")
        np.testing.assert_array_equal(lazy.compute(), expected)
        written = model.predict(path, out=tmp_path / "predicted.parquet")
        np.testing.assert_array_equal(written.whole()[:, 0], expected)
        assert model.score(path, target) == local.score(table[COLUMNS], table[target])


def test_rows_of_files_keep_their_blocks(client, folder: Path) -> None:
    rows = nystrom.open_rows(folder, columns=COLUMNS, target="y", block_rows=3_000)
    shipped = engine_dask.ship_rows(rows)
    assert (shipped.block_rows, shipped.n_blocks) == (3_000, rows.n_blocks)
    remote, local = machine(engine="dask").fit(rows), machine().fit(rows)
    np.testing.assert_array_equal(remote.landmark_coef_, local.landmark_coef_)


def test_classes_of_a_frame_are_scored(client, folder: Path) -> None:
    frame = dd.read_parquet(folder)
    model = nystrom.KernelRidgeClassifier(n_landmarks=60, random_state=0).fit(frame[COLUMNS], frame["kind"])
    assert model.score(frame[COLUMNS], frame["kind"]) > 0.95


@pytest.mark.parametrize(
    "estimator", [nystrom.Nystroem, nystrom.KernelPCA, nystrom.KernelKMeans, nystrom.SpectralClustering]
)
def test_a_column_that_y_names_is_no_feature_of_machines_without_a_target(client, folder: Path, estimator) -> None:
    table = pd.read_parquet(folder)[[*COLUMNS, "kind"]]
    table.to_parquet(folder.parent / "kinds.parquet", index=False)
    local = estimator(n_landmarks=60, random_state=0).fit(table[COLUMNS])
    remote = estimator(n_landmarks=60, random_state=0, engine="dask").fit(folder.parent / "kinds.parquet", "kind")
    assert list(remote.feature_names_in_) == COLUMNS
    np.testing.assert_array_equal(remote.landmarks_, local.landmarks_)
    np.testing.assert_array_equal(remote.eigenvalues_, local.eigenvalues_)
