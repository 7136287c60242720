"""Intervals, sets and probabilities: what leaving rows out says, without fitting again."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.pipeline import make_pipeline

import nystrom
from nystrom.conformal import leave_out
from nystrom.estimators.trust import JACKKNIFE_ROWS, SAMPLE_ROWS, calibrate
from nystrom.exceptions import ApproximationWarning
from nystrom.preprocessing import TableEncoder

RNG = np.random.default_rng(0)
ROWS = RNG.uniform(-2, 2, size=(120, 2))
TARGET = np.sin(2 * ROWS[:, 0]) + ROWS[:, 1] ** 2 + 0.2 * RNG.normal(size=120)
NEW = RNG.uniform(-2, 2, size=(15, 2))
FIXED = {"landmarks": ROWS[::4], "gamma": 0.5}

REGRESSORS = {
    "ridge": lambda: nystrom.KernelRidge(alpha=0.1, **FIXED),
    "with an intercept": lambda: nystrom.KernelRidge(alpha=0.1, fit_intercept=True, **FIXED),
    "conjugate gradients": lambda: nystrom.KernelRidge(alpha=0.1, solver="cg", tol=1e-12, **FIXED),
    "conjugate gradients with an intercept": lambda: nystrom.KernelRidge(
        alpha=0.1, solver="cg", tol=1e-12, fit_intercept=True, **FIXED
    ),
}


def without(model, kept, weight=None):
    """Return the predictions for NEW of a fit without some rows."""
    weight = np.ones(len(ROWS)) if weight is None else weight
    return model().fit(ROWS, TARGET, sample_weight=np.where(kept, weight, 0.0)).predict(NEW)


def left_out(model):
    """Return the predictions for NEW with the rows of each group left out, as the model stores them."""
    known = calibrate(model, "test")
    C = model.kernel_(NEW, model.landmarks_)
    return model.predict(NEW)[:, None] + C @ known.shift_coef[0] + known.shift_intercept[0]


@pytest.mark.parametrize("name", REGRESSORS)
def test_leaving_a_row_out_is_a_fit_without_it(name):
    found = left_out(REGRESSORS[name]().fit(ROWS, TARGET))
    for i in (0, 3, 50, 119):
        np.testing.assert_allclose(found[:, i], without(REGRESSORS[name], np.arange(120) != i), rtol=0, atol=2e-6)


def test_leaving_a_group_out_is_a_fit_without_it():
    groups = RNG.integers(0, 12, 120)
    found = left_out(REGRESSORS["with an intercept"]().fit(ROWS, TARGET, groups=groups))
    for group in (0, 5):
        expected = without(REGRESSORS["with an intercept"], groups != group)
        np.testing.assert_allclose(found[:, group], expected, rtol=0, atol=2e-6)


def test_a_group_of_one_row_is_that_row():
    rng = np.random.default_rng(7)
    phi, beyond = rng.normal(size=(20, 3)), rng.uniform(0, 9, 20)
    given = (phi, rng.normal(size=(20, 1)), np.ones((20, 1)), np.ones(20), (phi.T @ phi + np.eye(3))[None])
    alone = leave_out(*given, np.arange(20), beyond)
    paired = leave_out(*given, np.minimum(np.arange(20), 18), beyond)
    np.testing.assert_allclose(paired.change[:18], alone.change[:18], rtol=1e-12)


def test_a_weight_is_a_number_of_repetitions():
    times = RNG.integers(1, 4, 120)
    weighted = REGRESSORS["ridge"]().fit(ROWS, TARGET, sample_weight=times)
    repeated = REGRESSORS["ridge"]().fit(np.repeat(ROWS, times, axis=0), np.repeat(TARGET, times))
    ends = [model.predict_interval(NEW, 0.8) for model in (weighted, repeated)]
    np.testing.assert_allclose(ends[0], ends[1], rtol=0, atol=1e-5)


def test_rows_of_weight_0_do_not_count():
    more = np.vstack([ROWS, NEW]), np.append(TARGET, np.full(15, 1e3))
    weight = np.append(np.ones(120), np.zeros(15))
    ends = [
        REGRESSORS["ridge"]().fit(*more, sample_weight=weight).predict_interval(NEW),
        REGRESSORS["ridge"]().fit(ROWS, TARGET).predict_interval(NEW),
    ]
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-5)


def test_the_interval_is_that_of_the_jackknife_plus():
    model = REGRESSORS["ridge"]().fit(ROWS, TARGET)
    known = calibrate(model, "test")
    size = np.exp(model.kernel_(NEW, model.landmarks_) @ known.scale_coef + known.scale_intercept)[:, 0]
    others, halves = left_out(model), size[:, None] * known.scores[:, 0]
    # The ceil(0.9 · 121) = 109th of 120, as Barber and others (2021) define it.
    expected = np.column_stack([np.sort(others - halves)[:, 120 - 109], np.sort(others + halves)[:, 108]])
    np.testing.assert_allclose(model.predict_interval(NEW, 0.9), expected, rtol=0, atol=1e-9)


def test_several_targets_have_an_interval_each():
    both = np.column_stack([TARGET, -2 * TARGET])
    model = REGRESSORS["ridge"]().fit(ROWS, both)
    ends = model.predict_interval(NEW)
    assert ends.shape == (15, 2, 2)
    np.testing.assert_allclose(ends[:, 0], REGRESSORS["ridge"]().fit(ROWS, TARGET).predict_interval(NEW), rtol=1e-4)
    np.testing.assert_allclose(ends[:, 1], -2 * ends[:, 0, ::-1], rtol=1e-4)


def data(n, seed, kind="even"):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 2))
    noise = {
        "even": rng.normal(size=n) * 0.3,
        "uneven": rng.normal(size=n) * np.where(X[:, 0] > 0, 0.8, 0.1),
        "heavy": rng.standard_t(2, size=n) * 0.2,
    }[kind]
    return X, np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + noise


COVERED = {
    "ridge": lambda: nystrom.KernelRidge(alpha="auto", random_state=0),
    "few landmarks": lambda: nystrom.KernelRidge(alpha="auto", n_landmarks=60, random_state=0),
    "conjugate gradients": lambda: nystrom.KernelRidge(alpha=0.1, solver="cg", n_landmarks=100, random_state=0),
    "exact": lambda: nystrom.KernelRidge(alpha=0.1, solver="exact", random_state=0),
    "support vectors": lambda: nystrom.KernelSVR(C=10.0, n_landmarks=100, random_state=0),
    "gaussian process": lambda: nystrom.GaussianProcessRegressor(random_state=0, gamma=0.5),
}


@pytest.mark.filterwarnings("ignore:the band of this process")
@pytest.mark.parametrize(
    ("machine", "kind"), [*((name, "uneven") for name in COVERED), ("ridge", "even"), ("few landmarks", "heavy")]
)
def test_intervals_cover(machine, kind):
    inside = []
    for seed in range(6):
        X, y = data(1200, seed, kind)
        low, high = COVERED[machine]().fit(X[:200], y[:200]).predict_interval(X[200:], 0.9).T
        inside.append(np.mean((low <= y[200:]) & (y[200:] <= high)))
    assert 0.87 < np.mean(inside) < 0.94


@pytest.mark.parametrize("machine", ["few landmarks", "conjugate gradients", "support vectors"])
def test_intervals_of_more_rows_than_are_left_out_cover(machine):
    X, y = data(2 * SAMPLE_ROWS, 1, "uneven")
    model = COVERED[machine]().fit(X[: SAMPLE_ROWS + 500], y[: SAMPLE_ROWS + 500])
    low, high = model.predict_interval(X[SAMPLE_ROWS + 500 :], 0.9).T
    truth = y[SAMPLE_ROWS + 500 :]
    assert 0.87 < np.mean((low <= truth) & (truth <= high)) < 0.93


@pytest.mark.parametrize("ignored", [0, 2000])
@pytest.mark.parametrize("intercept", [False, True])
def test_conjugate_gradients_on_many_rows_have_the_intervals_of_the_factor(intercept, ignored):
    rng = np.random.default_rng(5)
    n = SAMPLE_ROWS + 500
    X = rng.normal(size=(n + ignored, 6))
    y = X[:, 0] * X[:, 1] + 0.5 * rng.normal(size=n + ignored)
    weight = np.repeat([1.0, 0.0], [n, ignored])
    widths = {}
    for solver in ("factor", "cg"):
        model = nystrom.KernelRidge(
            alpha=0.1, solver=solver, landmarks=X[:200], fit_intercept=intercept, random_state=0
        ).fit(X, y, sample_weight=weight)
        widths[solver] = np.ptp(model.predict_interval(X[:200]), axis=1).mean()
    assert widths["cg"] == pytest.approx(widths["factor"], rel=0.03)


def test_widths_follow_the_size_of_errors():
    X, y = data(1500, 2, "uneven")
    low, high = nystrom.KernelRidge(alpha="auto", n_landmarks=100, random_state=0).fit(X, y).predict_interval(X).T
    width, right = high - low, X[:, 0] > 0.3
    assert np.median(width[right]) > 4 * np.median(width[X[:, 0] < -0.3])


def test_repeated_measurements_leak_unless_they_are_left_out_together():
    rng = np.random.default_rng(3)
    subjects = np.repeat(np.arange(80), 10)
    covered = {"alone": [], "together": []}
    for _ in range(4):
        place, level = rng.uniform(-2, 2, size=(160, 2)), rng.normal(size=160)
        X = place[np.repeat(np.arange(160), 10)] + 0.01 * rng.normal(size=(1600, 2))
        y = np.repeat(level, 10) + 0.1 * rng.normal(size=1600)
        for name, groups in (("alone", None), ("together", subjects)):
            model = nystrom.KernelRidge(alpha=0.1, gamma=2.0, n_landmarks=100, random_state=0)
            low, high = model.fit(X[:800], y[:800], groups=groups).predict_interval(X[800:]).T
            covered[name].append(np.mean((low <= y[800:]) & (y[800:] <= high)))
    assert np.mean(covered["alone"]) < 0.6
    assert 0.87 < np.mean(covered["together"]) < 0.95


def test_too_few_rows_give_infinite_ends():
    model = nystrom.KernelRidge(alpha=1.0, random_state=0).fit(ROWS[:5], TARGET[:5])
    assert np.isinf(model.predict_interval(NEW, 0.9)).all()
    assert np.isfinite(model.predict_interval(NEW, 0.8)).all()


@pytest.mark.parametrize("coverage", [0, 1, 1.5, "0.9", None, np.nan])
def test_a_coverage_is_between_0_and_1(coverage):
    model = nystrom.KernelRidge(random_state=0).fit(ROWS, TARGET)
    with pytest.raises(ValueError, match="coverage must be a number between 0 and 1"):
        model.predict_interval(NEW, coverage)


def test_groups_are_one_per_row_and_more_than_one():
    with pytest.raises(ValueError, match="one entry for each of the 120 rows"):
        nystrom.KernelRidge().fit(ROWS, TARGET, groups=np.arange(5))
    with pytest.raises(ValueError, match="at least 2 groups"):
        nystrom.KernelRidge().fit(ROWS, TARGET, groups=np.ones(120))


def test_containers_give_the_same_interval(tmp_path):
    expected = REGRESSORS["ridge"]().fit(ROWS, TARGET).predict_interval(NEW)
    table = pd.DataFrame(ROWS, columns=["a", "b"]).assign(y=TARGET)
    table.to_csv(tmp_path / "rows.csv", index=False)
    np.save(tmp_path / "rows.npy", ROWS)
    sources = {
        "csv": (nystrom.open_rows(tmp_path / "rows.csv", target="y"), None),
        "npy": (nystrom.open_rows(tmp_path / "rows.npy"), TARGET),
        "frame": (table[["a", "b"]], TARGET),
    }
    for name, (X, y) in sources.items():
        model = REGRESSORS["ridge"]().fit(X, y)
        new = NEW if name == "npy" else pd.DataFrame(NEW, columns=["a", "b"])
        np.testing.assert_allclose(model.predict_interval(new), expected, rtol=1e-6, err_msg=name)
    thin = nystrom.KernelRidge(alpha=0.1, landmarks=sparse.csr_matrix(ROWS[::4]), gamma=0.5)
    found = thin.fit(sparse.csr_matrix(ROWS), TARGET).predict_interval(sparse.csr_matrix(NEW))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_file_is_read_no_more_often(tmp_path):
    n = SAMPLE_ROWS + 200
    X, y = data(n, 4)
    np.savetxt(tmp_path / "rows.csv", np.column_stack([X, y]), delimiter=",", header="a,b,y", comments="")

    class Counting(type(nystrom.open_rows(tmp_path / "rows.csv", target="y"))):
        passes = 0

        def iterate(self):
            Counting.passes += 1
            return super().iterate()

    rows = nystrom.open_rows(tmp_path / "rows.csv", target="y")
    rows.__class__ = Counting
    model = nystrom.KernelRidge(alpha=0.1, n_landmarks=20, random_state=0).fit(rows)
    read = Counting.passes
    model.predict_interval(nystrom.open_rows(tmp_path / "rows.csv", target="y"))
    assert Counting.passes == read
    in_memory = nystrom.KernelRidge(alpha=0.1, n_landmarks=20, landmarks=model.landmarks_, random_state=0).fit(X, y)
    new = pd.DataFrame(NEW, columns=["a", "b"])
    np.testing.assert_allclose(model.predict_interval(new), in_memory.predict_interval(NEW), rtol=1e-3)


def test_a_precomputed_kernel_has_intervals():
    K = np.exp(-0.5 * np.square(ROWS[:, None] - ROWS).sum(axis=2))
    new = np.exp(-0.5 * np.square(NEW[:, None] - ROWS).sum(axis=2))
    given = nystrom.KernelRidge(kernel="precomputed", alpha=0.1, landmarks=np.arange(0, 120, 4)).fit(K, TARGET)
    expected = nystrom.KernelRidge(alpha=0.1, gamma=0.5, landmarks=np.arange(0, 120, 4)).fit(ROWS, TARGET)
    np.testing.assert_allclose(given.predict_interval(new), expected.predict_interval(NEW), rtol=1e-6)
    unlike = given.unlike(new, diag=np.ones(15))
    assert np.array_equal(unlike, expected.unlike(NEW))


CLASSIFIERS = {
    "ridge": lambda: nystrom.KernelRidgeClassifier(n_landmarks=80, random_state=0),
    "support vectors": lambda: nystrom.KernelSVC(n_landmarks=80, random_state=0),
    "logistic": lambda: nystrom.KernelLogisticRegression(C=1.0, n_landmarks=80, random_state=0),
    "balanced": lambda: nystrom.KernelRidgeClassifier(class_weight="balanced", n_landmarks=80, random_state=0),
}


def classes(n, seed, kinds):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    scores = np.column_stack([np.zeros(n), 2 * X[:, 0] - 1, 2 * X[:, 1] - 1])[:, :kinds]
    return X, np.array(["no", "so", "yes"])[(scores + rng.gumbel(size=scores.shape)).argmax(axis=1)]


@pytest.mark.parametrize("kinds", [2, 3])
@pytest.mark.parametrize("machine", CLASSIFIERS)
def test_sets_cover_and_probabilities_are_calibrated(machine, kinds):
    inside, bias = [], []
    for seed in range(4):
        X, y = classes(2400, seed, kinds)
        model = CLASSIFIERS[machine]().fit(X[:400], y[:400])
        found = model.predict_set(X[400:], 0.9)
        truth = np.searchsorted(model.classes_, y[400:])
        assert found.dtype == bool
        assert found.shape == (2000, kinds)
        inside.append(found[np.arange(2000), truth].mean())
        proba = model.predict_proba(X[400:])
        np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-12)
        confidence = proba.max(axis=1)
        bias.append(confidence.mean() - np.mean(proba.argmax(axis=1) == truth))
        assert 0 <= model.calibration_error() < 0.1
    assert 0.87 < np.mean(inside) < 0.93
    assert abs(np.mean(bias)) < 0.02


def test_a_rare_class_has_its_frequency_among_probabilities():
    rng = np.random.default_rng(5)
    y = rng.random(6000) < 0.02
    X = rng.normal(size=(6000, 2)) + 1.5 * y[:, None]
    model = nystrom.KernelSVC(class_weight="balanced", n_landmarks=50, random_state=0).fit(X[:3000], y[:3000])
    assert 0.01 < model.predict_proba(X[3000:])[:, 1].mean() < 0.03


def test_rows_far_from_all_others_are_unlike_them():
    X, y = data(600, 6)
    for model in (
        nystrom.KernelRidge(alpha=0.1, random_state=0).fit(X, y),
        nystrom.KernelRidge(alpha=0.1, n_landmarks=60, random_state=0).fit(X, y),
        nystrom.KernelRidge(alpha=0.1, n_landmarks=60, solver="cg", random_state=0).fit(X, y),
        nystrom.KernelSVC(n_landmarks=60, random_state=0).fit(X, y > 1),
    ):
        assert model.unlike(X + 6).all()
        assert model.unlike(data(2000, 7)[0]).mean() < 0.03


def test_new_rows_of_the_same_kind_are_rarely_unlike():
    shares = []
    for seed in range(4):
        X = np.random.default_rng(seed).normal(size=(2500, 6))
        model = nystrom.KernelRidge(n_landmarks=100, random_state=0).fit(X[:500], X[:500, 0])
        shares.append(model.unlike(X[500:]).mean())
        assert model.unlike(X[500:600] + 6).all()
    assert np.mean(shares) < 0.02


@pytest.mark.parametrize("full", [False, True])
def test_models_in_files_give_the_same_answers(tmp_path, full):
    X, y = data(600, 8)
    codes = (y > 1).astype(int)
    for n in (JACKKNIFE_ROWS, 600):
        model = nystrom.KernelRidge(alpha=0.1, n_landmarks=40, random_state=0).fit(X[:n], y[:n])
        model.save(tmp_path / "model", full=full)
        loaded = nystrom.load(tmp_path / "model")
        assert np.array_equal(loaded.predict_interval(NEW), model.predict_interval(NEW))
        assert np.array_equal(pickle.loads(pickle.dumps(model)).predict_interval(NEW), model.predict_interval(NEW))
    model = nystrom.KernelSVC(n_landmarks=40, random_state=0).fit(X, codes)
    model.save(tmp_path / "model", full=full)
    loaded = nystrom.load(tmp_path / "model")
    assert np.array_equal(loaded.predict_proba(NEW), model.predict_proba(NEW))
    assert np.array_equal(loaded.predict_set(NEW), model.predict_set(NEW))


def test_a_file_holds_no_row_of_the_fit(tmp_path):
    model = nystrom.KernelRidge(n_landmarks=20, random_state=0).fit(ROWS, TARGET)
    model.save(tmp_path / "model", full=True)
    assert nystrom.load(tmp_path / "model")._held.sample is None


def test_fits_in_parts_say_that_there_is_no_interval():
    model = nystrom.KernelRidge(alpha=0.1, **FIXED)
    model.partial_fit(ROWS[:60], TARGET[:60]).partial_fit(ROWS[60:], TARGET[60:])
    with pytest.raises(ValueError, match="predict_interval needs rows that were left out"):
        model.predict_interval(NEW)


def test_a_band_that_is_too_narrow_is_warned_of():
    X, y = data(300, 9, "uneven")
    model = nystrom.GaussianProcessRegressor(alpha=1e-4, gamma=0.5, random_state=0).fit(X, y)
    with pytest.warns(ApproximationWarning, match="band of this process is too narrow"):
        model.predict_interval(NEW)
    X, y = data(300, 9)
    nystrom.GaussianProcessRegressor(gamma=0.5, random_state=0).fit(X, y).predict_interval(NEW)


def test_pipelines_of_tables_have_intervals():
    rng = np.random.default_rng(10)
    table = pd.DataFrame({"a": rng.normal(size=300), "city": rng.choice(["x", "y"], 300)})
    table["price"] = table.a + (table.city == "x") + 0.1 * rng.normal(size=300)
    model = make_pipeline(TableEncoder("price"), nystrom.KernelRidge(alpha="auto", random_state=0)).fit(table)
    low, high = model[-1].predict_interval(model[:-1].transform(table)).T
    assert 0.85 < np.mean((low <= table.price) & (table.price <= high)) < 0.97
