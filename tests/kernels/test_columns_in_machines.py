"""Kernels of some columns in machines: names, files, clusters, grid search, and landmarks of codes that are codes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_selector
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import nystrom
from nystrom import KernelRidge, Nystroem
from nystrom.kernels import Gaussian, Laplacian, Linear, Overlap
from nystrom.landmarks import SELECTORS
from nystrom.preprocessing import TableEncoder

rng = np.random.default_rng(0)
N = 400
FRAME = pd.DataFrame(
    {
        "x": rng.normal(size=N),
        "y": 3 * rng.normal(size=N),
        "town": rng.integers(0, 8, N) * 7.0,
        "year": 2000 + 10 * rng.normal(size=N),
    }
)
EFFECT = rng.normal(size=8)
TARGET = np.sin(FRAME.x) + EFFECT[(FRAME.town / 7).astype(int)] * FRAME.y / 3
KERNEL = Gaussian().on(["x", "y"]) * Overlap().on("town") + 1e-6 * Linear().on("year")
BY_NUMBER = Gaussian().on([0, 1]) * Overlap().on(2) + 1e-6 * Linear().on(3)


def ridge(kernel=KERNEL, **parameters):
    return KernelRidge(kernel=kernel, n_landmarks=60, random_state=0, **parameters)


@pytest.mark.parametrize("machine", ["KernelRidge", "KernelSVR", "GaussianProcessRegressor"])
def test_names_mean_what_numbers_do(machine):
    build = getattr(nystrom, machine)
    named = build(kernel=KERNEL, n_landmarks=60, random_state=0).fit(FRAME, TARGET)
    numbered = build(kernel=BY_NUMBER, n_landmarks=60, random_state=0).fit(FRAME.to_numpy(), TARGET)
    np.testing.assert_array_equal(named.predict(FRAME), numbered.predict(FRAME.to_numpy()))
    assert named.kernel_ == numbered.kernel_
    assert named.kernel_.left.left.kernel.gamma == pytest.approx(1 / FRAME[["x", "y"]].var(ddof=0).sum())


def test_other_columns_at_predict_are_refused_and_a_missing_name_is_named():
    fitted = ridge().fit(FRAME, TARGET)
    with pytest.raises(ValueError, match="same order"):
        fitted.predict(FRAME[["y", "x", "town", "year"]])
    with pytest.raises(ValueError, match="'z', which the rows lack"):
        ridge(Gaussian().on("z")).fit(FRAME, TARGET)
    with pytest.raises(ValueError, match="the rows have no names of columns"):
        ridge().fit(FRAME.to_numpy(), TARGET)


@pytest.mark.parametrize("kind", ["csv", "parquet", "dask"])
def test_files_and_clusters_know_their_columns(kind, tmp_path):
    direct = ridge().fit(FRAME, TARGET).predict(FRAME)
    if kind == "dask":
        rows = pytest.importorskip("dask.dataframe").from_pandas(FRAME, npartitions=1)
    else:
        path = tmp_path / f"rows.{kind}"
        FRAME.to_csv(path, index=False) if kind == "csv" else FRAME.to_parquet(path)
        rows = nystrom.open_rows(path)
    np.testing.assert_allclose(ridge().fit(rows, TARGET).predict(FRAME), direct, rtol=1e-10)


def test_a_callable_chooses_from_the_frame():
    chosen = ridge(Gaussian().on(make_column_selector(pattern="^[xy]$"))).fit(FRAME, TARGET)
    assert chosen.kernel_.columns == (0, 1)
    with pytest.raises(ValueError, match="chooses from a table: give a data frame"):
        ridge(Gaussian().on(lambda table: [0])).fit(FRAME.to_numpy(), TARGET)


def test_it_is_saved_and_loaded(tmp_path):
    fitted = ridge().fit(FRAME, TARGET)
    nystrom.save(fitted, tmp_path / "model.nystrom")
    again = nystrom.load(tmp_path / "model.nystrom")
    assert (again.kernel, again.kernel_) == (KERNEL, fitted.kernel_)
    np.testing.assert_array_equal(again.predict(FRAME), fitted.predict(FRAME))


def test_grid_search_reaches_the_parts():
    found = GridSearchCV(
        ridge(Gaussian().on(["x", "y"]) * Overlap().on("town")),
        {"kernel__left__kernel__gamma": [1e-3, 0.1], "kernel__right__gamma": [0.5, 2.0]},
        cv=2,
    ).fit(FRAME, TARGET)
    best, scores = found.best_estimator_.kernel_, found.cv_results_["mean_test_score"]
    assert [best.left.kernel.gamma, best.right.kernel.gamma] == list(found.best_params_.values())
    assert len(set(scores)) == 4
    machine = ridge()
    other = machine.set_params(kernel=Gaussian() + Linear(), kernel__left__gamma=3.0)
    assert other.kernel == Gaussian(3.0) + Linear()
    assert KERNEL.left.left.kernel == Gaussian()
    with pytest.raises(ValueError, match="has no parameter 'width'; it has gamma"):
        machine.set_params(kernel__left__width=1.0)


@pytest.mark.parametrize("landmarks", sorted(SELECTORS))
@pytest.mark.parametrize("weighted", [False, True])
def test_landmarks_of_codes_are_codes(landmarks, weighted):
    weight = rng.integers(0, 3, N).astype(float) if weighted else None
    kernel = Gaussian(0.1).on(["x", "y"]) * Overlap(1.0).on("town")
    fitted = KernelRidge(kernel=kernel, landmarks=landmarks, n_landmarks=40, random_state=0)
    Z = fitted.fit(FRAME, TARGET, sample_weight=weight).landmarks_
    assert len(Z) == 40
    assert set(Z[:, 2]) <= set(FRAME.town)
    if weighted and fitted.landmark_indices_ is not None:
        assert (weight[fitted.landmark_indices_] > 0).all()


def test_clusters_in_the_kernels_space_beat_rows_at_random():
    codes = rng.integers(0, 3, (2000, 5))
    X = np.column_stack([rng.normal(size=(2000, 3)), codes]).astype(float)
    kernel = Gaussian(0.3).on(slice(0, 3)) * Overlap(0.3).on(slice(3, None))

    def error(landmarks):
        fits = [Nystroem(kernel=kernel, landmarks=landmarks, n_landmarks=80, random_state=s) for s in range(3)]
        return np.mean([fit.fit(X).approximation_error(X, "trace").value for fit in fits])

    assert error("auto") < 0.97 * error("uniform")


def test_codes_of_a_table_go_to_the_kernel_by_name_and_unseen_ones_are_unlike_all():
    table = FRAME.assign(town=np.array(list("abcdefgh"))[(FRAME.town / 7).astype(int)])
    kernel = Gaussian(0.5).on(["x", "y"]) * Overlap(1.0).on("town")
    model = make_pipeline(TableEncoder(categories="codes"), ridge(kernel, alpha=1.0)).fit(table, TARGET)
    assert model.score(table, TARGET) > 0.8
    coded = model[0].transform(table)
    np.testing.assert_array_equal(model[1].predict(coded), model.predict(table))
    unseen = model[1]._kernel().bind(("x", "y", "town", "year"), 4)
    strange = model[0].transform(table.assign(town="elsewhere"))
    expected = np.exp(-1.0) * unseen.left(np.asarray(strange), model[1].landmarks_)
    np.testing.assert_allclose(unseen(np.asarray(strange), model[1].landmarks_), expected)


def test_a_small_part_of_a_sum_is_not_rounded_away_in_float32():
    kernel = Gaussian().on(["x", "y"]) + Linear().on("year") + 0.5 * Laplacian().on("town")
    single = FRAME.astype("float32")
    # The same rows as landmarks: means of float32 rows are rounded themselves.
    rows = np.arange(60)
    wide, narrow = (
        ridge(kernel, alpha=0.1, landmarks=rows).fit(each, TARGET) for each in (single.astype(float), single)
    )
    np.testing.assert_allclose(narrow.predict(single), wide.predict(single.astype(float)), atol=1e-3)
