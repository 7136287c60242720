"""Shapley values: those of the definition, whatever the kernel, the machine and the columns."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline

import nystrom
from nystrom.kernels import Gaussian, InMetric, Laplacian, Linear, Overlap
from nystrom.preprocessing import TableEncoder

ROWS = np.random.default_rng(0).normal(size=(120, 5))
TARGET = np.sin(ROWS[:, 0]) * ROWS[:, 1] + 0.3 * ROWS[:, 2]


def brute_force(function, rows, background, groups):
    """Return the values by their definition: the weighted gains of each group, over all subsets of the others."""
    p, (b, columns), means = len(groups), background.shape, {}
    for size in range(p + 1):
        for chosen in itertools.combinations(range(p), size):
            mixed = np.repeat(background[None], len(rows), axis=0)
            for i in chosen:
                mixed[:, :, groups[i]] = rows[:, None, groups[i]]
            found = function(mixed.reshape(-1, columns))
            means[frozenset(chosen)] = found.reshape(len(rows), b, *found.shape[1:]).mean(axis=1)
    values = []
    for j in range(p):
        gains = [
            (means[chosen | {j}] - mean) / (p * math.comb(p - 1, len(chosen)))
            for chosen, mean in means.items()
            if j not in chosen
        ]
        values.append(np.sum(gains, axis=0))
    return np.stack(values, axis=1)


KERNELS = {
    "gaussian": {"kernel": "gaussian"},
    "one per column": {"gamma": [0.1, 0.2, 0.3, 0.0, 0.5]},
    "gamma None": {"gamma": None},
    "laplacian": {"kernel": "laplacian"},
    "laplacian of p = q": {"kernel": Laplacian(0.4, 1.5, 1.5)},
    "sum": {"kernel": Gaussian(0.1) + 2.0 * Laplacian(0.2)},
    "product": {"kernel": 3.0 * (Gaussian(0.1) + Gaussian(0.5)) * Laplacian(0.2)},
    "overlap": {"kernel": Overlap(0.3)},
    "of some columns": {"kernel": Gaussian(0.2).on([3, 0]) * Laplacian(0.1).on([1]) + Overlap(0.5).on([4, 2])},
    "in a metric": {"kernel": InMetric(Gaussian(1.0), np.array([0.5, 0.4, 0.3, 0.2, 0.1]))},
    "a metric per column": {"metric": np.array([0.5, 0.4, 0.3, 0.2, 0.1])},
}
WEIGHTS = np.random.default_rng(1).uniform(0.1, 3.0, size=120)
MACHINES = {
    "ridge": (nystrom.KernelRidge, TARGET, {"fit_intercept": True}),
    "two targets": (nystrom.KernelRidge, np.column_stack([TARGET, ROWS[:, 3]]), {}),
    "conjugate gradients": (nystrom.KernelRidge, TARGET, {"solver": "cg", "alpha": 0.1}),
    "exact": (nystrom.KernelRidge, TARGET, {"solver": "exact", "alpha": 0.1, "fit_intercept": True}),
    "three classes, exact": (nystrom.KernelRidgeClassifier, np.digitize(TARGET, [-0.3, 0.3]), {"solver": "exact"}),
    "support vectors": (nystrom.KernelSVR, TARGET, {}),
    "gaussian process": (nystrom.GaussianProcessRegressor, TARGET, {"normalize_y": True}),
    "two classes": (nystrom.KernelLogisticRegression, TARGET > 0, {}),
    "three classes, log-odds": (nystrom.KernelLogisticRegression, np.digitize(TARGET, [-0.3, 0.3]), {}),
    "support vectors, classes": (nystrom.KernelSVC, np.digitize(TARGET, [-0.3, 0.3]), {}),
    "three classes": (nystrom.KernelRidgeClassifier, np.digitize(TARGET, [-0.3, 0.3]), {}),
}


def check(model, rows, background):
    found = nystrom.explain(model, rows, background)
    function = model.decision_function if hasattr(model, "classes_") else model.predict
    exact = brute_force(function, rows, background, [slice(j, j + 1) for j in range(rows.shape[1])])
    assert found.errors is None
    np.testing.assert_allclose(found.values, exact, rtol=0, atol=1e-8)
    np.testing.assert_allclose(found.base_values, function(background).mean(axis=0), rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.base_values + found.values.sum(axis=1), function(rows), rtol=0, atol=1e-8)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_are_exact_for_every_machine_and_kernel_that_is_a_product_over_columns(kernel, machine):
    kind, y, parameters = MACHINES[machine]
    model = kind(n_landmarks=20, random_state=0, **parameters, **KERNELS[kernel])
    weights = {} if machine == "gaussian process" else {"sample_weight": WEIGHTS}
    check(model.fit(ROWS, y, **weights), ROWS[:3], ROWS[50:54])


@pytest.mark.parametrize("parameters", [{"n_landmarks": 700}, {"solver": "exact"}])
def test_are_exact_for_many_landmarks_and_from_a_file(parameters, tmp_path):
    X = np.random.default_rng(3).normal(size=(1100, 3))
    model = nystrom.KernelRidge(alpha=1.0, gamma=0.2, random_state=0, **parameters).fit(X, np.sin(X).sum(axis=1))
    check(model, X[:3], X[10:14])
    model.save(tmp_path / "model")
    check(nystrom.load(tmp_path / "model"), X[:3], X[10:14])


@pytest.mark.parametrize("p", [1, 2, 7, 10])
def test_are_exact_for_any_number_of_columns(p):
    X = np.random.default_rng(p).normal(size=(60, p))
    check(nystrom.KernelRidge(alpha=1.0, n_landmarks=20, random_state=0).fit(X, X.sum(axis=1) ** 2), X[:3], X[10:13])


def test_the_encoded_columns_of_one_column_count_as_one():
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"a": rng.normal(size=90), "city": rng.choice(["x", "y", "z"], 90), "b": rng.normal(size=90)})
    frame.loc[::7, "b"] = np.nan
    frame["y"] = frame.a + (frame.city == "x") + frame.b.fillna(2.0)
    model = make_pipeline(TableEncoder("y"), nystrom.KernelRidge(alpha=1.0, n_landmarks=30, random_state=0)).fit(frame)
    found = nystrom.explain(model, frame[:3], background=frame[40:46])
    encoder, machine = model[0], model[1]
    rows, beside = (np.asarray(encoder.transform(part)) for part in (frame[:3], frame[40:46]))
    exact = brute_force(machine.predict, rows, beside, [slice(0, 1), slice(1, 4), slice(4, 6)])
    assert found.columns == ("a", "city", "b")
    np.testing.assert_allclose(found.values, exact, rtol=0, atol=1e-8)
    assert found.to_frame().columns.tolist() == ["a", "city", "b"]


@pytest.mark.parametrize(
    "parameters", [{"kernel": "matern"}, {"metric": np.eye(5) + 0.1}, {"kernel": Gaussian(0.1) + Linear()}]
)
def test_are_sampled_with_an_error_for_other_kernels(parameters):
    model = nystrom.KernelRidge(n_landmarks=30, random_state=0, **parameters).fit(ROWS, TARGET)
    rows, background = ROWS[:4], ROWS[50:90]
    found = nystrom.explain(model, rows, background)
    exact = brute_force(model.predict, rows, background, [slice(j, j + 1) for j in range(5)])
    np.testing.assert_allclose(found.base_values + found.values.sum(axis=1), model.predict(rows), atol=1e-8)
    assert np.all(np.abs(found.values - exact) <= 4 * found.errors + 1e-10)
    assert found.errors.max() < np.abs(exact).max()
    assert "sampled" in repr(found)


def test_few_rows_need_a_background():
    model = nystrom.KernelRidge(alpha=1.0, n_landmarks=30, random_state=0).fit(ROWS, TARGET)
    with pytest.raises(ValueError, match="background=X_train"):
        nystrom.explain(model, ROWS[:3])
    assert nystrom.explain(model, ROWS).values.shape == (120, 5)


def test_a_machine_that_predicts_nothing_is_refused():
    model = nystrom.Nystroem(n_components=5, random_state=0).fit(ROWS)
    with pytest.raises(TypeError, match="predicts nothing"):
        nystrom.explain(model, ROWS)


def test_the_plots_of_shap_take_them():
    shap = pytest.importorskip("shap")
    pytest.importorskip("matplotlib").use("agg")
    model = nystrom.KernelRidge(n_landmarks=30, random_state=0).fit(ROWS, TARGET)
    found = nystrom.explain(model, ROWS).to_shap()
    shap.plots.beeswarm(found, show=False)
    shap.plots.bar(found, show=False)
    shap.plots.waterfall(found[0], show=False)


def test_a_swarm_has_a_point_per_row_and_column():
    pytest.importorskip("matplotlib").use("agg")
    model = nystrom.KernelRidge(n_landmarks=30, random_state=0).fit(ROWS, TARGET)
    found = nystrom.explain(model, ROWS)
    drawn = found.plot(kind="swarm", most=3)
    order = np.argsort(-np.abs(found.values).mean(axis=0))
    assert len(drawn.collections) == 3
    np.testing.assert_allclose(drawn.collections[0].get_offsets()[:, 0], found.values[:, order[0]])
    with pytest.raises(ValueError, match="kind"):
        found.plot(kind="bees")


def test_pictures():
    pytest.importorskip("matplotlib").use("agg")
    model = nystrom.KernelRidge(alpha=1.0, n_landmarks=30, random_state=0).fit(ROWS, TARGET)
    found = nystrom.explain(model, ROWS)
    bars = found.plot()
    sizes = np.sort(np.abs(found.values).mean(axis=0))[::-1]
    np.testing.assert_allclose([bar.get_width() for bar in bars.patches], sizes)
    row = found.plot(3, most=2)
    assert [tick.get_text() for tick in row.get_yticklabels()][-1] == "3 others"
    last = row.patches[-1]
    assert last.get_x() + last.get_width() == pytest.approx(model.predict(ROWS[3:4])[0])
