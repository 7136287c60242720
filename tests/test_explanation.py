"""Importances, dependence and neighbours: by original column, as their definitions say."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import accuracy_score, r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import nystrom
from nystrom.explanation import interactions, leading_columns, nearest, partial_dependence, permutation_importance
from nystrom.kernels import Gaussian, Overlap
from nystrom.preprocessing import TableEncoder


def make_table(n=400):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "area": rng.gamma(5, 20, n),
            "city": rng.choice(["Bern", "Oslo", "Rome"], n),
            "sold": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 1500, n), "D"),
            "noise": rng.normal(size=n),
        }
    )
    table["price"] = table.area / 50 + table.city.map({"Bern": 2.0, "Oslo": 1.0, "Rome": 0.0})
    table.loc[::9, "area"] = np.nan
    return table


@pytest.fixture(scope="module")
def table():
    return make_table()


@pytest.fixture(scope="module")
def model(table):
    machine = nystrom.KernelRidge(alpha=1.0, n_landmarks=100, fit_intercept=True, random_state=0)
    return make_pipeline(TableEncoder("price"), machine).fit(table)


def test_importances_are_by_original_column_and_rank_what_matters_first(model, table):
    found = permutation_importance(model, table)
    assert found.columns == ("area", "city", "sold", "noise")
    assert set(found.order[:2]) == {0, 1}
    assert np.all(found.low[:2] > found.high[2:].max())
    assert found.score == pytest.approx(model.score(table))
    assert found.to_frame().column.tolist()[2:] == [found.columns[j] for j in found.order[2:]]
    assert repr(found).splitlines()[1].startswith(found.columns[found.order[0]])


def test_an_importance_is_the_loss_of_score_of_a_shuffled_table(model, table):
    """One-hot columns and gaps move together: the same as shuffling the column of the table itself."""
    losses = []
    for seed in range(20):
        shuffled = table.copy()
        shuffled["city"] = table.city.to_numpy()[np.random.default_rng(seed).permutation(len(table))]
        losses.append(model.score(table) - model.score(shuffled))
    found = permutation_importance(model, table, n_repeats=20)
    assert found.values[1] == pytest.approx(np.mean(losses), abs=4 * np.std(losses) / np.sqrt(10))


@pytest.mark.parametrize("classes", [False, True])
def test_scores_are_those_of_scikit_learn(classes):
    X = np.random.default_rng(0).normal(size=(200, 3))
    y = np.where(X[:, 0] > 0, "a", "b") if classes else np.column_stack([X[:, 0], 2 * X[:, 1]])
    kind = nystrom.KernelRidgeClassifier if classes else nystrom.KernelRidge
    model = kind(n_landmarks=30, random_state=0).fit(X, y)
    found = permutation_importance(model, X, y)
    score = accuracy_score if classes else lambda a, b: r2_score(a, b, multioutput="variance_weighted")
    assert found.score == pytest.approx(score(y, model.predict(X)))
    assert found.score_name == ("accuracy" if classes else "R²")
    assert found.values[2] < found.values[0]


def test_an_interval_covers_the_loss_on_many_rows():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(20_000, 2))
    y = X[:, 0] + 0.2 * X[:, 1] + 0.5 * rng.normal(size=len(X))
    model = nystrom.KernelRidge(alpha=1.0, n_landmarks=50, random_state=0).fit(X[:2000], y[:2000])
    truth = permutation_importance(model, X, y, max_rows=20_000, n_repeats=20)
    inside = 0
    for seed in range(20):
        few = permutation_importance(model, X, y, max_rows=200, n_repeats=20, random_state=seed)
        assert few.n_rows == 200
        inside += np.sum((few.low <= truth.values) & (truth.values <= few.high))
    assert inside >= 32  # of 40, at 95 %: fewer has a chance below 0.1 %


def test_shares_of_the_metric_are_summed_by_column(table):
    scales = np.arange(1.0, 12.0)
    machine = nystrom.KernelRidge(alpha=1.0, n_landmarks=50, metric=scales, random_state=0)
    model = make_pipeline(TableEncoder("price"), machine).fit(table)
    found = permutation_importance(model, table, n_repeats=1)
    # area and its gaps; three cities; the day and two cycles as sine and cosine; noise
    spread = scales**2 * np.var(model[-1].landmarks_, axis=0)
    sums = np.add.reduceat(spread, [0, 2, 5, 10])
    np.testing.assert_allclose(found.metric, sums / sums.sum())


def test_leading_columns_are_known_without_rows(model):
    found = leading_columns(model)
    assert {name for name, _ in found[:2]} == {"area", "city"}
    assert sum(share for _, share in found) == pytest.approx(1.0)
    assert sum(share for _, share in found[2:]) < 0.1
    assert leading_columns(nystrom.Nystroem(n_components=3, random_state=0).fit(np.eye(5))) == []


def test_names_come_from_the_frame_and_through_a_scaler():
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(80, 2)), columns=["u", "v"])
    plain = nystrom.KernelRidge(alpha=1.0, n_landmarks=20, random_state=0).fit(X, X.u)
    scaled = make_pipeline(StandardScaler(), plain).fit(X, X.u)
    for model in (nystrom.KernelRidge(alpha=1.0, n_landmarks=20, random_state=0).fit(X, X.u), scaled):
        assert permutation_importance(model, X, X.u).columns == ("u", "v")
    with pytest.raises(ValueError, match="those of the fit, in their order: 'u', 'v'"):
        permutation_importance(nystrom.KernelRidge(alpha=1.0, n_landmarks=20).fit(X, X.u), X[["v", "u"]], X.u)


def test_a_file_gives_what_its_rows_give(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(200, 2)), columns=["a", "b"])
    y = frame["a"] ** 2
    frame.assign(y=y).to_csv(tmp_path / "rows.csv", index=False)
    machine = nystrom.KernelRidge(n_landmarks=20, random_state=0).fit(frame, y)
    found = permutation_importance(machine, tmp_path / "rows.csv", "y")
    np.testing.assert_allclose(found.values, permutation_importance(machine, frame, y).values, rtol=1e-9)
    expected = partial_dependence(machine, frame, "a").values
    np.testing.assert_allclose(partial_dependence(machine, tmp_path / "rows.csv", "a").values, expected, rtol=1e-9)


def test_what_cannot_be_judged_is_refused(model, table):
    X = np.random.default_rng(0).normal(size=(50, 2))
    plain = nystrom.KernelRidge(alpha=1.0, n_landmarks=20, random_state=0).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="give y"):
        permutation_importance(plain, X)
    with pytest.raises(ValueError, match="one target for each of the 50 rows"):
        permutation_importance(plain, X, X[:9, 0])
    with pytest.raises(ValueError, match="the same in every row"):
        permutation_importance(plain, X, np.ones(50))
    with pytest.raises(ValueError, match="column must be one of 'area', 'city'"):
        partial_dependence(model, table, "size")


def test_dependence_is_the_mean_prediction_of_a_changed_table(model, table):
    for column in ("city", "area", "sold"):
        found = partial_dependence(model, table, column, n_points=4, max_rows=len(table))
        for at, value in zip(found.grid, found.values[:, 0], strict=True):
            changed = table.drop(columns="price")
            changed[column] = at
            assert value == pytest.approx(model.predict(changed).mean(), rel=1e-6), column
    assert partial_dependence(model, table, "city").grid.tolist() == list(model[0].columns_[1].categories)
    assert partial_dependence(model, table, "sold").grid.dtype.kind == "M"


def test_dependence_on_codes_is_by_category(table):
    kernel = Gaussian(0.1).on([0, 1, 3, 4, 5, 6, 7, 8]) * Overlap(0.5).on([2])
    encoder = TableEncoder("price", categories="codes")
    coded = make_pipeline(encoder, nystrom.KernelRidge(alpha=1.0, n_landmarks=100, kernel=kernel, random_state=0)).fit(
        table
    )
    found = partial_dependence(coded, table, "city", max_rows=len(table))
    for at, value in zip(found.grid, found.values[:, 0], strict=True):
        assert value == pytest.approx(coded.predict(table.drop(columns="price").assign(city=at)).mean())
    assert sorted(found.grid) == ["Bern", "Oslo", "Rome"]


def test_dependence_of_classes_is_in_probabilities():
    X = np.random.default_rng(0).normal(size=(200, 2))
    y = np.digitize(X[:, 0], [-0.5, 0.5])
    found = partial_dependence(
        nystrom.KernelLogisticRegression(C=1.0, n_landmarks=30, random_state=0).fit(X, y), X, "x0"
    )
    assert found.outputs == ("0", "1", "2")
    np.testing.assert_allclose(found.values.sum(axis=1), 1.0)
    assert found.values[0, 0] > 0.8 > 0.2 > found.values[-1, 0]
    assert found.lines.shape == (200, 20, 3)
    assert found.to_frame().shape == (20, 4)


def test_the_nearest_row_of_a_row_is_itself(model, table):
    found = nearest(model, table[5:8], table, count=3)
    assert found.indices[:, 0].tolist() == [5, 6, 7]
    np.testing.assert_allclose(found.similarities[:, 0], 1.0)
    assert np.all(np.diff(found.similarities, axis=1) <= 0)
    kernel, rows = model[-1].kernel_, np.asarray(model[0].transform(table))
    np.testing.assert_allclose(found.similarities[0], np.sort(kernel(rows[5:6], rows)[0])[::-1][:3])
    assert nearest(model, table[:2]).indices.max() < 100


def test_pictures(model, table):
    pytest.importorskip("matplotlib").use("agg")
    found = permutation_importance(model, table)
    bars = found.plot(most=2)
    assert [bar.get_width() for bar in bars.patches] == [found.values[j] for j in found.order[:2]]
    city = partial_dependence(model, table, "city").plot()
    assert [tick.get_text() for tick in city.get_yticklabels()] == list(model[0].columns_[1].categories)
    area = partial_dependence(model, table, "area")
    np.testing.assert_allclose(area.plot(lines=False).lines[0].get_ydata(), area.values[:, 0])


def test_columns_that_act_together_are_named():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(600, 4))
    model = nystrom.KernelRidge(alpha=0.01, n_landmarks=150, random_state=0)
    model.fit(X, X[:, 0] ** 2 + X[:, 1] * X[:, 2])
    found = interactions(model, X)
    assert set(found.pairs[0]) == {"x1", "x2"}
    assert found.values[0] > 0.8 > 0.25 > found.values[1]
    assert interactions(model, X, ["x0", "x3"]).values.shape == (1,)
    with pytest.raises(ValueError, match="columns must be among"):
        interactions(model, X, ["x9"])
