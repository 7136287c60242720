"""Gaussian processes: scikit-learn's at m = n, deviations that are never negative, parameters by likelihood."""

import warnings

import numpy as np
import pytest
from sklearn import gaussian_process
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, CompoundKernel, ConstantKernel, RationalQuadratic, WhiteKernel
from sklearn.gaussian_process.kernels import Matern as SklearnMatern
from sklearn.utils.estimator_checks import parametrize_with_checks

from nystrom.estimators import GaussianProcessRegressor
from nystrom.kernels import Gaussian, Matern
from nystrom.rows import as_blocks
from nystrom.solvers.ridge import Choice


@parametrize_with_checks([GaussianProcessRegressor(), GaussianProcessRegressor(gamma="scale", normalize_y=True)])
def test_scikit_learn_accepts_the_estimator(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    y = np.column_stack([np.sin(2 * X[:, 0]), X[:, 1] ** 2]) + 0.1 * rng.normal(size=(120, 2))
    return X, y, 1.5 * rng.normal(size=(40, 2))


PAIRS = [
    # Narrow enough that no direction of the kernel matrix is lost in rounding.
    (Gaussian(8.0), RBF(0.25)),
    (Matern(1.5, 0.25), SklearnMatern(length_scale=2.0, nu=1.5)),
    (Matern(2.5, 1.0), SklearnMatern(length_scale=1.0, nu=2.5)),
]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
@pytest.mark.parametrize("normalize_y", [False, True])
@pytest.mark.parametrize("columns", [0, slice(None)])
def test_all_rows_as_landmarks_give_scikit_learns_process(data, ours, theirs, normalize_y, columns):
    X, y, new = data
    y = y[:, columns]
    mine = GaussianProcessRegressor(ours, alpha=0.05, amplitude=2.0, normalize_y=normalize_y, landmarks=X).fit(X, y)
    reference = gaussian_process.GaussianProcessRegressor(
        ConstantKernel(2.0) * theirs, alpha=0.05, optimizer=None, normalize_y=normalize_y
    ).fit(X, y)
    assert mine.n_components_ == len(X)
    for keyword in ("return_std", "return_cov"):
        expected = reference.predict(new, **{keyword: True})
        for value, wanted in zip(mine.predict(new, **{keyword: True}), expected, strict=True):
            np.testing.assert_allclose(value, wanted, atol=1e-8)
    likelihood = reference.log_marginal_likelihood_value_
    assert mine.log_marginal_likelihood_value_ == pytest.approx(likelihood, rel=1e-8)
    assert mine.log_marginal_likelihood() == mine.log_marginal_likelihood_value_


def test_a_full_optimum_is_scikit_learns():
    rng = np.random.default_rng(1)
    X = rng.uniform(-3, 3, size=(150, 1))
    y = 2 * np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=150)
    mine = GaussianProcessRegressor(Gaussian(0.7), landmarks=X).fit(X, y)
    kernel = ConstantKernel(1.0) * RBF(np.sqrt(0.5 / 0.7), "fixed") + gaussian_process.kernels.WhiteKernel(0.1)
    reference = gaussian_process.GaussianProcessRegressor(kernel, alpha=1e-12).fit(X, y)
    assert mine.likelihood_bound_ == pytest.approx(reference.log_marginal_likelihood_value_, abs=1e-3)
    assert mine.alpha_ == pytest.approx(reference.kernel_.k2.noise_level, rel=0.02)


def test_the_bound_is_never_above_the_exact_likelihood(data):
    X, y, _ = data
    exact = GaussianProcessRegressor(alpha=0.05, amplitude=1.0, gamma=0.5, landmarks=X).fit(X, y)
    previous = -np.inf
    for m in (5, 20, 60):
        model = GaussianProcessRegressor(alpha=0.05, amplitude=1.0, gamma=0.5, landmarks=X[:m]).fit(X, y)
        assert previous <= model.likelihood_bound_ <= exact.log_marginal_likelihood_value_ + 1e-8
        previous = model.likelihood_bound_


@pytest.mark.parametrize("given", [{"alpha": 0.02}, {"amplitude": 0.5}, {}])
def test_the_optimum_is_no_worse_than_its_neighbours(data, given):
    X, y, _ = data
    model = GaussianProcessRegressor(gamma=0.5, n_landmarks=60, random_state=0, **given).fit(X, y)
    best = model.likelihood_bound_
    for name, value in given.items():
        assert getattr(model, f"{name}_") == pytest.approx(value)
    for name in {"alpha", "amplitude"} - set(given):
        for factor in (0.9, 1.1):
            near = {"alpha": model.alpha_, "amplitude": model.amplitude_}
            near[name] *= factor
            other = GaussianProcessRegressor(gamma=0.5, n_landmarks=60, random_state=0, **near).fit(X, y)
            assert other.likelihood_bound_ <= best + 1e-6 * abs(best)


@pytest.mark.parametrize("size", [1e-6, 1e-3, 1.0, 1e4])
@pytest.mark.parametrize(
    "given", [{"amplitude": 1.0}, {"amplitude": 1e-4}, {"amplitude": 1e6}, {"alpha": 1.0}, {"alpha": 1e-6}, {}]
)
def test_noise_and_amplitude_are_optima_whatever_the_units_of_the_target(size, given):
    rng = np.random.default_rng(4)
    x = np.sort(rng.uniform(0, 10, 100))[:, None]
    y = size * (np.sin(x[:, 0]) + 0.1 * rng.normal(size=100))
    # Rough enough that every direction is far above rounding.
    model = GaussianProcessRegressor("laplacian", gamma=0.3, landmarks=x, **given).fit(x, y)
    K = np.exp(-0.3 * abs(x - x.T))
    values, vectors = np.linalg.eigh(K)
    squares = (vectors.T @ y) ** 2

    def likelihood(alpha, amplitude):
        spectrum = amplitude * values + alpha
        return -0.5 * (squares / spectrum + np.log(2 * np.pi * spectrum)).sum()

    free = np.geomspace(1e-24, 1e24, 2000)
    if "amplitude" in given:
        best = max(likelihood(alpha, given["amplitude"]) for alpha in free)
    elif "alpha" in given:
        best = max(likelihood(given["alpha"], amplitude) for amplitude in free)
    else:
        best = max(likelihood(size**2 * a, size**2 * s) for a in np.geomspace(1e-6, 1, 61) for s in free[900:1100])
    assert likelihood(model.alpha_, model.amplitude_) >= best - 1e-6 * abs(best)


def test_a_target_of_one_column_is_one_target(data):
    X, y, new = data
    model = GaussianProcessRegressor(gamma=0.5, alpha=0.1, n_landmarks=20).fit(X, y[:, :1])
    mean, std = model.predict(new, return_std=True)
    assert mean.shape == std.shape == (40,)
    assert model.predict(new, return_cov=True)[1].shape == (40, 40)
    assert model.sample_y(new, 3).shape == (40, 3)


def test_parameters_of_a_known_process_are_found():
    rng = np.random.default_rng(3)
    X = rng.uniform(0, 10, size=(1500, 1))
    K = 4.0 * np.exp(-3.0 * (X - X.T) ** 2)
    y = np.linalg.cholesky(K + 1e-9 * np.eye(1500)) @ rng.normal(size=1500) + 0.2 * rng.normal(size=1500)
    model = GaussianProcessRegressor(n_landmarks=200, random_state=0).fit(X, y)
    assert 1.0 < model.kernel_.gamma < 9.0
    assert model.alpha_ == pytest.approx(0.04, rel=0.15)
    assert 1.5 < model.amplitude_ < 10.0


@pytest.mark.parametrize("m", [3, 20, 120])
@pytest.mark.parametrize("alpha", [1e-10, 1e-4, 1.0])
def test_deviations_are_never_negative_or_above_the_prior(data, m, alpha):
    X, y, new = data
    model = GaussianProcessRegressor(gamma=0.5, alpha=alpha, amplitude=2.0, landmarks=X[:m]).fit(X, y)
    for rows in (X, new, X + 1e3, X[:1]):
        _, std = model.predict(rows, return_std=True)
        assert np.isfinite(std).all()
        assert (std >= 0).all()
        assert (std <= np.sqrt(2.0) * (1 + 1e-6)).all()


def test_a_noiseless_fit_is_sure_at_its_rows_and_knows_nothing_far_away():
    X = np.linspace(0, 4, 25)[:, None]
    y = np.cos(X).ravel()
    model = GaussianProcessRegressor(gamma=1.0, alpha=1e-8, amplitude=1.0, landmarks=X).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean, y, atol=1e-4)
    assert std.max() < 1e-3
    mean, std = model.predict(np.array([[1e3]]), return_std=True)
    np.testing.assert_allclose([mean[0], std[0]], [0.0, 1.0], atol=1e-10)


def test_what_the_landmarks_do_not_explain_counts_as_unknown(data):
    X, y, new = data
    for m in (5, 20, 60):
        model = GaussianProcessRegressor(gamma=0.5, alpha=0.01, amplitude=2.0, landmarks=X[:m]).fit(X, y[:, 0])
        _, std = model.predict(new, return_std=True)
        assert (std**2 >= 2.0 * model.residual(new) - 1e-12).all()


@pytest.mark.parametrize("joint", [True, False])
def test_draws_have_the_predicted_mean_and_deviation(data, joint, monkeypatch):
    if not joint:
        monkeypatch.setattr("nystrom.estimators.gp._JOINT_ROWS", 0)
    X, y, new = data
    model = GaussianProcessRegressor(gamma=0.5, n_landmarks=20, random_state=0, normalize_y=True).fit(X, y)
    draws = model.sample_y(new, 4000)
    mean, std = model.predict(new, return_std=True)
    assert draws.shape == (40, 2, 4000)
    np.testing.assert_allclose(draws.mean(axis=2), mean, atol=6 * std.max() / np.sqrt(4000))
    np.testing.assert_allclose(draws.std(axis=2), std, rtol=0.1)
    np.testing.assert_array_equal(model.sample_y(new, 3, random_state=5), model.sample_y(new, 3, random_state=5))
    if joint:
        _, covariance = model.predict(new, return_cov=True)
        np.testing.assert_allclose(np.cov(draws[:, 0]), covariance[..., 0], atol=0.1 * covariance[..., 0].max())


def test_rows_in_blocks_with_their_target_give_the_same_process(data):
    X, y, new = data
    model = GaussianProcessRegressor(gamma=0.5, landmarks=X[:30])
    mean, std = model.fit(X, y[:, 0]).predict(new, return_std=True)
    rows = as_blocks(X, y[:, 0], block_rows=16)
    again = model.fit(rows).predict(as_blocks(new, block_rows=8), return_std=True)
    np.testing.assert_allclose(again[0], mean, atol=1e-8)
    np.testing.assert_allclose(again[1], std, atol=1e-8)
    assert model.score(rows) == pytest.approx(model.score(X, y[:, 0]))


def test_kernels_without_a_bandwidth_are_taken_as_they_are(data):
    X, y, _ = data
    model = GaussianProcessRegressor("linear").fit(X, X @ np.array([1.0, -2.0]))
    np.testing.assert_allclose(model.predict(X), X @ np.array([1.0, -2.0]), atol=1e-4)
    assert GaussianProcessRegressor(Gaussian(0.123)).fit(X, y).kernel_ == Gaussian(0.123)


@pytest.mark.parametrize("name", ["alpha", "amplitude"])
@pytest.mark.parametrize("value", [0.0, -1.0, "best", None])
def test_a_wrong_variance_is_named(data, name, value):
    with pytest.raises(ValueError, match=f"{name} must be a positive number or 'auto'"):
        GaussianProcessRegressor(**{name: value}).fit(data[0], data[1])


@pytest.mark.parametrize("alpha", [np.ones(7), -np.ones(120), np.ones((120, 2)), ["a"] * 120, np.zeros(120)])
@pytest.mark.parametrize("kernel", ["gaussian", RBF()])
def test_a_noise_per_row_of_no_use_is_named(data, alpha, kernel):
    with pytest.raises(ValueError, match="alpha"):
        GaussianProcessRegressor(kernel, alpha=alpha).fit(data[0], data[1])


def test_std_and_covariance_are_not_given_together(data):
    model = GaussianProcessRegressor(gamma=0.5).fit(data[0], data[1])
    with pytest.raises(ValueError, match="cannot both be True"):
        model.predict(data[2], return_std=True, return_cov=True)


WAVES = np.random.default_rng(5).uniform(0, 30, size=(200, 1))
HEIGHTS = 3 * np.sin(WAVES[:, 0] / 2) + 0.5 * np.random.default_rng(6).normal(size=200)

TRANSLATED = [
    ConstantKernel() * RBF() + WhiteKernel(),
    RBF() + WhiteKernel(),
    WhiteKernel() + SklearnMatern(nu=2.5) * ConstantKernel(2.0),
    ConstantKernel() * SklearnMatern(length_scale=[1.0], nu=0.5) + WhiteKernel(),
    ConstantKernel() * SklearnMatern(nu=np.inf) + WhiteKernel(0.1) + WhiteKernel(0.1, "fixed"),
    ConstantKernel(4, "fixed") * RBF(2, "fixed") + WhiteKernel(0.25, "fixed"),
    ConstantKernel(1, (1, 2)) * RBF(3.0, (2.9, 3.1)) + WhiteKernel(1, (0.5, 2)),
    ConstantKernel() * RationalQuadratic(2.0, 1.0, "fixed", "fixed") + WhiteKernel(),
    RBF(2.0, "fixed") + RBF(4.0, "fixed") + WhiteKernel(0.25),
]


@pytest.mark.parametrize("kernel", TRANSLATED, ids=str)
def test_a_kernel_of_scikit_learn_is_optimised_as_scikit_learn_does(kernel):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's own: an optimum at a bound
        theirs = gaussian_process.GaussianProcessRegressor(kernel, n_restarts_optimizer=1, random_state=0)
        theirs.fit(WAVES, HEIGHTS)
        ours = GaussianProcessRegressor(kernel, landmarks=WAVES).fit(WAVES, HEIGHTS)
    best = theirs.log_marginal_likelihood_value_
    assert ours.log_marginal_likelihood_value_ == pytest.approx(best, abs=0.2)
    np.testing.assert_allclose(ours.predict(WAVES), theirs.predict(WAVES), atol=0.05)


REFUSED = [
    (WhiteKernel(), "is noise alone"),
    (WhiteKernel() * RBF(), "is noise alone"),
    (CompoundKernel([RBF(), RBF()]), "several values per pair of rows"),
]


@pytest.mark.parametrize(("kernel", "message"), REFUSED, ids=lambda value: str(value)[:30])
def test_a_kernel_of_scikit_learn_that_makes_no_process_is_refused(kernel, message):
    with pytest.raises(ValueError, match=message):
        GaussianProcessRegressor(kernel).fit(WAVES, HEIGHTS)


def test_an_amplitude_given_twice_is_refused():
    with pytest.raises(ValueError, match="both set the amplitude"):
        GaussianProcessRegressor(ConstantKernel() * RBF(), amplitude=2.0).fit(WAVES, HEIGHTS)


def test_the_noise_of_a_scikit_learn_kernel_is_added_to_alpha():
    model = GaussianProcessRegressor(RBF() + WhiteKernel(0.2, "fixed"), alpha=0.1).fit(WAVES, HEIGHTS)
    assert model.alpha_ == pytest.approx(0.3)
    with pytest.warns(ConvergenceWarning, match="close to the specified lower bound"):
        model = GaussianProcessRegressor(RBF() + WhiteKernel(), alpha=2.0).fit(WAVES, HEIGHTS)
    assert model.alpha_ >= 2.0


@pytest.mark.parametrize("value", [0, -1.0, np.inf, np.nan, "auto"])
@pytest.mark.parametrize("name", ["alpha", "amplitude"])
def test_a_likelihood_of_no_variance_is_refused(value, name):
    model = GaussianProcessRegressor(gamma=0.1, alpha=0.1, n_landmarks=20, random_state=0).fit(WAVES, HEIGHTS)
    with pytest.raises(ValueError, match=f"{name} must be a positive finite number"):
        model.log_marginal_likelihood(**{name: value})


def test_many_landmarks_give_the_mean_of_all_and_mostly_a_larger_variance(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(900, 2))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=900) + 50
    settings = {"gamma": 1.0, "alpha": 0.05, "amplitude": 1.0, "normalize_y": True, "landmarks": X[:300]}
    whole = GaussianProcessRegressor(**settings).fit(X, y)
    monkeypatch.setattr("nystrom.estimators.gp.choose_solver", lambda *_, **__: Choice("cg", "for the test"))
    monkeypatch.setattr("nystrom.estimators.gp._VARIANCE_LANDMARKS", 80)
    apart = GaussianProcessRegressor(**settings).fit(X, y)
    assert len(apart.landmarks_) == 80
    assert len(apart.mean_map_.landmarks) == 300
    new = rng.uniform(-3, 3, size=(200, 2))
    (mean, std), (expected, least) = (model.predict(new, return_std=True) for model in (apart, whole))
    np.testing.assert_allclose(mean, expected, atol=1e-5 * np.std(y))
    assert np.median(std / least) > 1
    assert (std > 0.8 * least).all()
    monkeypatch.undo()
    assert not hasattr(apart.set_params(gamma=0.5).fit(X, y), "mean_map_")


@pytest.mark.parametrize("n_samples", [0, -1, 2.5, "3", None, True])
def test_a_number_of_draws_of_no_use_is_named(n_samples):
    X = np.random.default_rng(0).normal(size=(30, 2))
    process = GaussianProcessRegressor(alpha=0.1, amplitude=1.0, landmarks=X[:5]).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="n_samples must be"):
        process.sample_y(X, n_samples)
