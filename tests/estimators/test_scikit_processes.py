"""Gaussian processes with the kernels of scikit-learn: its process where each row is a landmark, and its interface."""

import warnings

import numpy as np
import pytest
from sklearn import gaussian_process
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    Matern,
    PairwiseKernel,
    RationalQuadratic,
    WhiteKernel,
)

import nystrom
from nystrom import GaussianProcessRegressor, KernelRidge

RNG = np.random.default_rng(0)
X = RNG.uniform(0, 6, size=(80, 2))
y = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.2 * RNG.normal(size=80)
NEW = RNG.uniform(0, 6, size=(30, 2))
White = WhiteKernel(0.1)

KERNELS = {
    "a length per column": ConstantKernel() * RBF([1.0, 2.0]) + White,
    "matern 0.7": ConstantKernel() * Matern(nu=0.7) + White,
    "matern 3/2": Matern([1.0, 2.0], nu=1.5) + White,
    "rational quadratic": ConstantKernel() * RationalQuadratic() + White,
    "periodic": ConstantKernel() * ExpSineSquared(1.0, 5.0) * RBF(3.0) + White,
    "dot product": DotProduct() + White,
    "constant": RBF() + ConstantKernel() + White,
    "power": (ConstantKernel() * RBF(2.0)) ** 2 + White,
    "power of a sum with noise": (RBF(2.0) + WhiteKernel(0.1, "fixed")) ** 2,
    "sum": 2.0 * RBF(0.7) + 0.5 * DotProduct(2.0) + White + WhiteKernel(0.01, "fixed"),
    "noise times a constant": RBF() + ConstantKernel(0.5) * White,
    "noise that grows": RBF() + WhiteKernel(0.01) * DotProduct(1.0, "fixed"),
    "fixed": ConstantKernel(2.0, "fixed") * RBF(1.5, "fixed") + WhiteKernel(0.05, "fixed"),
    "no noise": Matern(nu=0.5),
    "pairwise": PairwiseKernel(metric="laplacian") + White,
    "scikit-learn's default": None,
}


def both(kernel, target=y, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        machines = (gaussian_process.GaussianProcessRegressor, GaussianProcessRegressor)
        return [machine(kernel, random_state=0, **parameters).fit(X, target) for machine in machines]


def same(theirs, ours, atol=1e-6):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for keyword in ("return_std", "return_cov"):
            pairs = zip(theirs.predict(NEW, **{keyword: True}), ours.predict(NEW, **{keyword: True}), strict=True)
            for wanted, found in pairs:
                np.testing.assert_allclose(found, wanted, atol=atol)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_each_row_as_a_landmark_gives_scikit_learns_process(kernel, tmp_path):
    theirs, ours = both(kernel)
    assert ours.kernel_ == theirs.kernel_
    assert ours.log_marginal_likelihood_value_ == pytest.approx(theirs.log_marginal_likelihood_value_)
    same(theirs, ours, atol=1e-5)
    value, gradient = ours.log_marginal_likelihood(ours.kernel_.theta, eval_gradient=True)
    wanted, slope = theirs.log_marginal_likelihood(theirs.kernel_.theta, eval_gradient=True)
    np.testing.assert_allclose(value, wanted)
    np.testing.assert_allclose(gradient, slope, atol=1e-8)
    ours.save(tmp_path / "process")
    loaded = nystrom.load(tmp_path / "process")
    assert loaded.kernel_ == ours.kernel_
    for name in ("return_std", "return_cov"):
        pairs = zip(loaded.predict(NEW, **{name: True}), ours.predict(NEW, **{name: True}), strict=True)
        assert all(np.array_equal(*pair) for pair in pairs)
    with pytest.raises(ValueError, match="full=True"):
        loaded.log_marginal_likelihood(ours.kernel_.theta)
    ours.save(tmp_path / "process", full=True)
    assert nystrom.load(tmp_path / "process").log_marginal_likelihood(ours.kernel_.theta) == pytest.approx(value)


@pytest.mark.parametrize("normalize_y", [False, True])
@pytest.mark.parametrize("kernel", [RBF(1.5) + White, ConstantKernel() * Matern(nu=2.5)])
def test_a_noise_per_row_is_scikit_learns(kernel, normalize_y):
    alpha = np.random.default_rng(1).uniform(0.01, 0.5, size=80)
    theirs, ours = both(kernel, alpha=alpha, normalize_y=normalize_y)
    same(theirs, ours, atol=1e-5)
    assert ours.log_marginal_likelihood() == pytest.approx(theirs.log_marginal_likelihood_value_)
    with pytest.raises(ValueError, match="none for new rows"):
        ours.predict(NEW, return_std=True, include_noise=True)


def test_a_noise_per_row_works_for_kernels_by_name():
    alpha = np.random.default_rng(1).uniform(0.01, 0.5, size=80)
    theirs = gaussian_process.GaussianProcessRegressor(2.0 * RBF(1.0), alpha=alpha, optimizer=None).fit(X, y)
    ours = GaussianProcessRegressor("gaussian", gamma=0.5, amplitude=2.0, alpha=alpha, landmarks=X).fit(X, y)
    same(theirs, ours)
    assert ours.log_marginal_likelihood() == pytest.approx(theirs.log_marginal_likelihood_value_)
    assert np.isfinite(GaussianProcessRegressor(alpha=alpha, n_landmarks=20, random_state=0).fit(X, y).predict(X)).all()


def test_several_targets_share_the_parameters():
    target = np.column_stack([y, np.cos(X[:, 0]) + 3])
    same(*both(ConstantKernel() * RBF() + White, target, normalize_y=True), atol=1e-5)


def test_the_band_holds_the_noise_of_a_white_kernel():
    rng = np.random.default_rng(2)
    A, B = rng.uniform(0, 5, size=(2, 600, 1))
    targets = [np.sin(3 * rows[:, 0]) + 0.5 * rng.normal(size=600) for rows in (A, B)]
    model = GaussianProcessRegressor(ConstantKernel() * RBF() + WhiteKernel(), n_landmarks=60, random_state=0)
    mean, std = model.fit(A, targets[0]).predict(B, return_std=True)
    assert 0.92 < np.mean(abs(targets[1] - mean) < 1.96 * std) < 0.98
    draws = model.sample_y(B[:50], 4000)
    np.testing.assert_allclose(draws.std(axis=1), std[:50], rtol=0.1)


def test_optimizers_and_restarts_are_scikit_learns():
    kernel = ConstantKernel(1.0, (1e-2, 1e2)) * RBF(100.0, (1e-2, 1e3)) + White
    plain = [model.log_marginal_likelihood_value_ for model in both(kernel)]
    restarted = [model.log_marginal_likelihood_value_ for model in both(kernel, n_restarts_optimizer=2)]
    assert plain[1] == pytest.approx(plain[0])
    assert restarted[1] == pytest.approx(restarted[0])
    assert restarted[1] >= plain[1]

    def first_corner(objective, theta, bounds):
        return bounds[:, 0], objective(bounds[:, 0], eval_gradient=False)

    theirs, ours = both(kernel, optimizer=first_corner)
    np.testing.assert_array_equal(ours.kernel_.theta, theirs.kernel_.theta)
    with pytest.raises(ValueError, match="optimizer must be"):
        GaussianProcessRegressor(kernel, optimizer="adam").fit(X, y)
    with pytest.raises(ValueError, match="A function is for kernels of"):
        GaussianProcessRegressor(optimizer=first_corner).fit(X, y)


def test_more_rows_than_the_exact_likelihood_takes_refine_noise_and_amplitude_on_all(monkeypatch):
    monkeypatch.setattr("nystrom.estimators.scikit_kernels.MOST_EXACT_ROWS", 150)
    monkeypatch.setattr("nystrom.estimators.scikit_kernels._FIRST_ROWS", 60)
    rng = np.random.default_rng(3)
    A = rng.uniform(0, 20, size=(3000, 1))
    target = 2 * np.sin(A[:, 0]) + 0.3 * rng.normal(size=3000)

    def many(kernel):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-learn's own: an optimum at a bound
            return GaussianProcessRegressor(kernel, n_landmarks=100, random_state=0).fit(A, target)

    kernel = 1.5**2 * RBF(2.0) + 0.1 * RationalQuadratic(5.0, 1.0, "fixed", "fixed") + WhiteKernel(1.0)
    model = many(kernel)
    assert model.alpha_ == pytest.approx(0.09, rel=0.1)
    assert model.kernel_.k2.noise_level == pytest.approx(model.alpha_, rel=1e-6)
    # The covariance that the map and the amplitude make is that of the kernel which is reported.
    signal = model.kernel_.k1(A[:50], A[50:80])
    np.testing.assert_allclose(model.amplitude_ * model.map_.kernel(A[:50], A[50:80]), signal, rtol=1e-8)
    np.testing.assert_array_equal(many(kernel).predict(A), model.predict(A))
    found = many(1.5**2 * RBF(2.0) + WhiteKernel(1.0, (0.5, 2.0)))
    assert found.kernel_.k2.noise_level == pytest.approx(0.5)


def test_the_prior_is_there_before_a_fit():
    kernel = 2.0 * RBF(1.5) + White
    ours = GaussianProcessRegressor(kernel, n_targets=2)
    theirs = gaussian_process.GaussianProcessRegressor(kernel, n_targets=2)
    same(theirs, ours)
    draws = ours.sample_y(NEW, 5000)
    assert draws.shape == (30, 2, 5000)
    np.testing.assert_allclose(np.cov(draws[:, 0]), kernel(NEW), atol=0.25)
    with pytest.raises(NotFittedError):
        GaussianProcessRegressor().predict(NEW)
    assert GaussianProcessRegressor().sample_y(NEW, 3).shape == (30, 3)
    with pytest.raises(ValueError, match="The number of targets seen"):
        ours.fit(X, y)


@pytest.mark.parametrize("before", [False, True])
def test_draws_at_many_rows_are_functions(before, monkeypatch):
    monkeypatch.setattr("nystrom.estimators.gp._JOINT_ROWS", 100)
    monkeypatch.setattr("nystrom.estimators.gp._DRAWN_ROWS", 80)
    line = np.linspace(0, 10, 400)[:, None]
    model = GaussianProcessRegressor(RBF(1.0), landmarks=line[::100], alpha=0.01, optimizer=None)
    if not before:
        model.fit(line[::40], np.sin(line[::40, 0]))
    draws = model.sample_y(line, 2000)
    mean, covariance = model.predict(line, return_cov=True)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=0.15)
    np.testing.assert_allclose(np.cov(draws), covariance, atol=0.15)
    # Neighbours move together, also where the landmarks explain nothing.
    assert abs(np.diff(draws, axis=0)).max() < 0.25


def test_alpha_may_be_zero_where_the_kernel_has_noise():
    same(*both(RBF() + White, alpha=0))
    with pytest.raises(ValueError, match="leave no noise"):
        GaussianProcessRegressor(RBF(), alpha=0).fit(X, y)


@pytest.mark.parametrize("kernel", [RationalQuadratic(), RBF([1.0, 2.0]) + White, ExpSineSquared(1.0, 5.0) * RBF(2.0)])
def test_kernels_of_scikit_learn_work_in_every_machine(kernel, tmp_path):
    dense = np.linalg.solve(kernel(X, X) + 0.1 * np.eye(80), y)
    model = KernelRidge(kernel=kernel, alpha=0.1, landmarks=X).fit(X, y)
    np.testing.assert_allclose(model.predict(NEW), kernel(NEW, X) @ dense, atol=1e-6)
    model.save(tmp_path / "ridge")
    np.testing.assert_array_equal(nystrom.load(tmp_path / "ridge").predict(NEW), model.predict(NEW))
    single = KernelRidge(kernel=kernel, alpha=0.1, landmarks=X.astype(np.float32)).fit(X.astype(np.float32), y)
    np.testing.assert_allclose(single.predict(NEW.astype(np.float32)), model.predict(NEW), atol=0.02)


def test_a_merged_process_is_that_of_all_rows():
    kernel = ConstantKernel() * RBF(1.0, "fixed") + White
    parts = [GaussianProcessRegressor(kernel, landmarks=X[:20], random_state=0) for _ in range(3)]
    halves = [part.fit(X[rows], y[rows]) for part, rows in zip(parts, (slice(40), slice(40, 80)), strict=False)]
    merged = halves[0].merge(halves[1])
    whole = parts[2].fit(X, y)
    assert merged.alpha_ == pytest.approx(whole.alpha_, rel=1e-3)
    np.testing.assert_allclose(merged.predict(NEW), whole.predict(NEW), atol=1e-3)


def test_names_of_scikit_learn_without_a_value_say_where_to_look():
    model = GaussianProcessRegressor(RBF() + White, optimizer=None, n_landmarks=10, random_state=0).fit(X, y)
    for name, said in (("X_train_", "rows are not kept"), ("L_", "no n × n factor")):
        with pytest.raises(AttributeError, match=said):
            getattr(model, name)
