"""Machines in a metric: learned, given or one bandwidth per column; saved, on Dask and from files."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.utils.estimator_checks import parametrize_with_checks

import nystrom
from nystrom import (
    GaussianProcessRegressor,
    KernelLogisticRegression,
    KernelRidge,
    KernelRidgeClassifier,
    KernelSVC,
    KernelSVR,
    Nystroem,
    open_rows,
)
from nystrom.kernels import Gaussian, InMetric, Laplacian, Matern
from nystrom.rows import as_blocks

RNG = np.random.default_rng(0)
X = RNG.normal(size=(900, 8))
VALUES = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * RNG.normal(size=900)
CLASSES = np.digitize(VALUES, [-0.7, 0.7])
NEW = RNG.normal(size=(400, 8))
TRUTH = np.sin(2 * NEW[:, 0]) + NEW[:, 1]
REGRESSORS = [
    KernelRidge(alpha="auto", fit_intercept=True),
    GaussianProcessRegressor(),
    KernelSVR(100.0, epsilon=0.01),
]
CLASSIFIERS = [KernelRidgeClassifier(), KernelLogisticRegression(10.0), KernelSVC(10.0)]
SETTINGS = {"n_landmarks": 120, "random_state": 0}


@parametrize_with_checks(
    [
        KernelRidge(alpha=1.0, kernel="auto", metric="auto"),
        KernelSVR("auto", metric="full"),
        # Weights of 1e3 beside 1e-4, which one check gives, take more than its 1,000 passes to 1e-12.
        KernelLogisticRegression([0.1, 1.0], kernel="auto", metric="diagonal", tol=1e-10),
    ]
)
def test_scikit_learn_accepts_a_learned_metric(estimator, check):
    check(estimator)


@pytest.mark.parametrize("machine", REGRESSORS, ids=lambda machine: type(machine).__name__)
def test_a_learned_metric_finds_the_columns_and_lowers_the_error(machine):
    plain = machine.set_params(metric=None, **SETTINGS).fit(X, VALUES)
    before = np.sqrt(np.mean((plain.predict(NEW) - TRUTH) ** 2))
    learned = machine.set_params(metric="diagonal", **SETTINGS).fit(X, VALUES)
    assert np.sqrt(np.mean((learned.predict(NEW) - TRUTH) ** 2)) < 0.7 * before
    assert learned.feature_importances_[:2].sum() > 0.8
    assert learned.metric_.shape == (8,)
    np.testing.assert_allclose(learned.feature_importances_.sum(), 1.0)
    machine.set_params(metric=None)


@pytest.mark.parametrize("machine", CLASSIFIERS, ids=lambda machine: type(machine).__name__)
def test_classifiers_learn_a_metric_too(machine):
    truth = np.digitize(TRUTH, [-0.7, 0.7])
    plain = machine.set_params(metric=None, **SETTINGS).fit(X, CLASSES).score(NEW, truth)
    learned = machine.set_params(metric="auto", **SETTINGS).fit(X, CLASSES)
    assert learned.score(NEW, truth) > plain
    assert learned.feature_importances_[:2].sum() > 0.6
    assert set(learned.metric_losses_) == {"diagonal", "full"}
    machine.set_params(metric=None)


def test_a_given_metric_is_a_change_of_columns():
    M = np.diag(np.arange(1.0, 9.0)) + 0.5
    values, vectors = np.linalg.eigh(M)
    A = vectors * np.sqrt(values) @ vectors.T
    inside = KernelRidge(0.1, metric=M, landmarks=X[:100]).fit(X, VALUES)
    outside = KernelRidge(0.1, landmarks=X[:100] @ A).fit(X @ A, VALUES)
    np.testing.assert_allclose(inside.predict(NEW), outside.predict(NEW @ A), atol=1e-8)
    np.testing.assert_allclose(inside.metric_, M, atol=1e-10)
    scales = np.linspace(0.5, 2, 8)
    inside = KernelRidge(0.1, metric=scales, landmarks=X[:100]).fit(X, VALUES)
    outside = KernelRidge(0.1, landmarks=X[:100] * scales).fit(X * scales, VALUES)
    np.testing.assert_allclose(inside.predict(NEW), outside.predict(NEW * scales), atol=1e-8)
    np.testing.assert_array_equal(inside.metric_, scales)


@pytest.mark.parametrize("landmarks", ["auto", "uniform", "kmeans", "rpcholesky"])
def test_landmarks_are_chosen_in_the_metric_and_kept_in_the_columns(landmarks):
    scales = np.array([1.0, 1, 1, 1, 1, 1, 0.1, 0.0])
    inside = KernelRidge(0.1, metric=scales, n_landmarks=60, landmarks=landmarks, random_state=0).fit(X, VALUES)
    outside = KernelRidge(0.1, n_landmarks=60, landmarks=landmarks, random_state=0).fit(X * scales, VALUES)
    np.testing.assert_allclose(inside.landmarks_ * scales, outside.landmarks_, atol=1e-10)
    np.testing.assert_allclose(inside.predict(NEW), outside.predict(NEW * scales), atol=1e-7)


def test_a_learned_metric_given_back_gives_the_same_machine():
    learned = KernelRidge(0.1, metric="full", gamma=0.1, landmarks=X[:80], random_state=0).fit(X, VALUES)
    given = KernelRidge(0.1, metric=learned.metric_, gamma=0.1, landmarks=X[:80]).fit(X, VALUES)
    np.testing.assert_allclose(given.predict(NEW), learned.predict(NEW), atol=1e-8)


def test_a_bandwidth_for_each_column_is_a_diagonal_metric():
    gamma = np.linspace(0.05, 0.4, 8)
    listed = KernelRidge(0.1, gamma=list(gamma), landmarks=X[:80]).fit(X, VALUES)
    given = KernelRidge(0.1, gamma=1.0, metric=np.sqrt(gamma), landmarks=X[:80]).fit(X, VALUES)
    np.testing.assert_allclose(listed.predict(NEW), given.predict(NEW), atol=1e-10)
    features = Nystroem(gamma=list(gamma), n_components=40, random_state=0).fit(X)
    assert isinstance(features.kernel_, InMetric)
    assert features.transform(X).shape == (900, 40)


@pytest.mark.parametrize("metric", ["diagonal", "full"])
def test_memory_files_and_dask_give_the_same_bits(metric, tmp_path):
    da = pytest.importorskip("dask.array")
    settings = {"metric": metric, "n_landmarks": 40, "random_state": 0}
    np.save(tmp_path / "rows.npy", X)
    here = KernelRidge(0.1, **settings).fit(as_blocks(X, block_rows=250), VALUES)
    filed = KernelRidge(0.1, **settings).fit(open_rows(tmp_path / "rows.npy", block_rows=250), VALUES)
    lazy = KernelRidge(0.1, **settings).fit(da.from_array(X, chunks=(250, -1)), da.from_array(VALUES, chunks=250))
    np.testing.assert_array_equal(here.landmark_coef_, filed.landmark_coef_)
    np.testing.assert_array_equal(here.landmark_coef_, lazy.landmark_coef_)


def test_a_saved_model_carries_its_metric(tmp_path):
    for metric in ("diagonal", "full", np.linspace(1, 2, 8)):
        model = KernelLogisticRegression(metric=metric, **SETTINGS).fit(X, CLASSES)
        model.save(tmp_path / "model.nystrom")
        loaded = nystrom.load(tmp_path / "model.nystrom")
        np.testing.assert_array_equal(loaded.predict_proba(NEW), model.predict_proba(NEW))
        np.testing.assert_array_equal(loaded.metric_, model.metric_)


def test_sparse_rows_take_the_diagonal_metric():
    S = sp.csr_matrix(np.where(RNG.random(X.shape) < 0.5, X, 0.0))
    y = np.sin(3 * S[:, [0]].toarray().ravel())
    model = KernelRidge(0.1, metric="auto", **SETTINGS).fit(S, y)
    assert model.feature_importances_.argmax() == 0
    np.testing.assert_allclose(model.predict(S), model.predict(S.toarray()), atol=1e-8)
    with pytest.raises(ValueError, match="needs dense rows"):
        KernelRidge(alpha=1.0, metric="full").fit(S, y)


def test_the_kernel_is_chosen():
    smooth = KernelRidge("auto", kernel="auto", **SETTINGS).fit(X[:, :2], VALUES)
    assert isinstance(smooth.kernel_, Gaussian)
    rough = KernelRidge("auto", kernel="auto", **SETTINGS).fit(X[:, :2], np.sign(X[:, 0] * X[:, 1]))
    assert isinstance(rough.kernel_, (Matern, Laplacian))
    both = KernelRidge("auto", kernel="auto", metric="diagonal", **SETTINGS).fit(X[:, :4], np.sign(X[:, 0] * X[:, 1]))
    assert isinstance(both.kernel_, InMetric)
    assert isinstance(both.kernel_.kernel, (Matern, Laplacian))


def test_the_kernel_is_chosen_in_the_metric_that_is_given():
    # What matters in the first column is too fine for a kernel that sees the second, a thousand times as wide.
    rng = np.random.default_rng(8)
    rows = rng.uniform(-1, 1, size=(600, 2)) * [1.0, 1000.0]
    for target in (np.abs(3 * rows[:, 0] % 2 - 1), np.cos(3 * rows[:, 0])):
        scales = np.array([1.0, 0.0])
        inside = KernelRidge("auto", kernel="auto", n_landmarks=100, random_state=0).fit(rows * scales, target)
        given = KernelRidge("auto", kernel="auto", metric=scales, n_landmarks=100, random_state=0).fit(rows, target)
        assert given.kernel_.kernel == inside.kernel_
    matrix = KernelRidge("auto", kernel="auto", metric=np.diag(scales), n_landmarks=100, random_state=0)
    assert not isinstance(matrix.fit(rows, target).kernel_.kernel, Laplacian)


def test_a_learned_width_suits_the_regularisation_that_is_given():
    # A plane is best fitted by a very wide kernel with next to no regularisation: useless with alpha=1 or C=1.
    rng = np.random.default_rng(6)
    rows = rng.normal(size=(900, 8))
    y = rows[:, 0] + 0.5 * rows[:, 1] + 0.1 * rng.normal(size=900)
    scores, losses = {}, {}
    for metric in (None, "diagonal", "full"):
        options = {"metric": metric, "n_landmarks": 200, "random_state": 0}
        ridge = KernelRidge(1.0, fit_intercept=True, **options).fit(rows[:600], y[:600])
        scores[metric] = ridge.score(rows[600:], y[600:])
        logistic = KernelLogisticRegression(1.0, **options).fit(rows[:600], y[:600] > 0)
        chances = logistic.predict_log_proba(rows[600:])
        losses[metric] = -chances[np.arange(300), (y[600:] > 0).astype(int)].mean()
    assert min(scores["diagonal"], scores["full"]) > 0.95 > scores[None]
    assert max(losses["diagonal"], losses["full"]) < 0.8 * losses[None]


def test_a_width_that_is_given_is_kept():
    for options in ({"gamma": 0.3}, {"kernel": Gaussian(0.3)}):
        assert KernelRidge(metric="diagonal", **SETTINGS, **options).fit(X, VALUES).kernel_.kernel.gamma == 0.3


def test_without_a_metric_there_is_none_to_look_at():
    model = KernelRidge(alpha=1.0, n_landmarks=20).fit(X, VALUES)
    assert not hasattr(model, "metric_")
    with pytest.raises(AttributeError, match="fit it with metric="):
        _ = model.feature_importances_


def test_noise_keeps_the_plain_metric_and_says_so():
    model = KernelRidge(metric="diagonal", **SETTINGS).fit(X, np.random.default_rng(5).normal(size=900))
    assert model.kernel_ == Gaussian(model.kernel_.gamma)
    np.testing.assert_array_equal(model.metric_, np.ones(8))


def test_wrong_metrics_are_named():
    for metric in ("round", [1.0], np.eye(3)):
        with pytest.raises(ValueError, match="metric must be one of"):
            KernelRidge(alpha=1.0, metric=metric).fit(X, VALUES)
    with pytest.raises(ValueError, match="leave metric=None"):
        KernelRidge(alpha=1.0, gamma=[1.0] * 8, metric="diagonal").fit(X, VALUES)
    with pytest.raises(ValueError, match="a metric is learned for the kernels"):
        KernelRidge(alpha=1.0, kernel="polynomial", metric="diagonal").fit(X, VALUES)
    with pytest.raises(ValueError, match="rows of 3 columns; these have 8"):
        KernelRidge(alpha=1.0, gamma=[1.0] * 3).fit(X, VALUES)
    with pytest.raises(ValueError, match="Laplacian kernel sums over columns, which metric as a matrix would mix"):
        KernelRidge(alpha=1.0, kernel="laplacian", metric=np.eye(8)).fit(X, VALUES)
    with pytest.raises(ValueError, match="kernel='precomputed' has none"):
        KernelRidge(alpha=1.0, kernel="precomputed", metric=np.ones(900)).fit(X @ X.T, VALUES)


@pytest.mark.parametrize("offset", [0, 1e4, 1e6])
@pytest.mark.parametrize("given", [{"gamma": [0.3, 0.6, 0.1]}, {"metric": np.diag([2.0, 1.0, 0.8]) + 0.3}])
def test_float32_rows_far_from_the_origin_give_the_predictions_of_float64_rows(offset, given):
    rng = np.random.default_rng(0)
    near = rng.normal(size=(400, 3))
    narrow = (near + offset).astype(np.float32)
    wide, y = narrow.astype(np.float64), np.sin(2 * near[:, 0])
    # Rows as landmarks: means of rows would be rounded to float32, as the rows are.
    machine = KernelRidge(0.1, landmarks="uniform", n_landmarks=50, random_state=0, **given)
    one, other = (machine.fit(rows, y).predict(rows) for rows in (narrow, wide))
    np.testing.assert_allclose(one, other, atol=1e-4)


@pytest.mark.parametrize("metric", ["diagonal", "full"])
def test_importances_do_not_follow_the_units_of_the_columns(metric):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 4))
    y = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.05 * rng.normal(size=500)
    for unit in (1e-3, 0.1, 1.0, 10.0, 1e3):
        for units in ([unit, 1, 1, 1], [1, unit, 1, 1], [1, 1, unit, 1], [unit, 1, 1 / unit, unit**0.5]):
            model = KernelRidge("auto", fit_intercept=True, metric=metric, n_landmarks=150, random_state=0)
            importances = model.fit(X * units, y).feature_importances_
            assert importances[0] > 0.8, units
            assert importances[2:].sum() < 0.1, units
            assert importances.sum() == pytest.approx(1.0)


def test_importances_of_a_given_metric_are_shares_of_its_distances():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3)) * [1.0, 100.0, 0.0]
    model = KernelRidge(1.0, metric=[1.0, 0.01, 5.0], landmarks=X).fit(X, X[:, 0])
    np.testing.assert_allclose(model.feature_importances_, [0.5, 0.5, 0.0], atol=0.1)
