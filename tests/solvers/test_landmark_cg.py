"""Ridge regression on landmarks by conjugate gradients: the closed form's answer, for any W, weights and targets."""

import numpy as np
import pytest

from nystrom import KernelRidge, KernelRidgeClassifier
from nystrom.engine import LocalEngine
from nystrom.exceptions import ConvergenceWarning, NotPositiveSemidefiniteError
from nystrom.kernels import FromCallable, Gaussian, Laplacian, Linear, Matern, Polynomial
from nystrom.landmarks import Landmarks
from nystrom.rows import as_blocks
from nystrom.solvers import landmark_cg, preconditioner
from nystrom.solvers.landmark_cg import landmark_problem
from nystrom.solvers.preconditioner import FalkonPreconditioner
from nystrom.solvers.ridge import choose_solver
from nystrom.tuning.landmark_fit import HeldOut


def data(n=700, p=3, targets=2, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, p))
    Y = np.sin(X @ rng.normal(size=(p, targets))) + 0.1 * rng.normal(size=(n, targets))
    return X.astype(dtype), Y, rng


def landmarks_of(X, rng, kind):
    Z = X[rng.choice(len(X), 60, replace=False)].copy()
    if kind == "duplicates":
        Z[20:40] = Z[:20]
    elif kind == "nearly dependent":
        Z[20:40] = Z[:20] + 1e-6 * rng.normal(size=(20, Z.shape[1]))
    return Z


def direct(kernel, X, Y, Z, alpha, weight, intercept):
    """Return the fitted function at the rows, from a least-squares problem that squares no condition number."""
    W = kernel(Z, Z)
    values, vectors = np.linalg.eigh(W)
    kept = values > 1e-14 * values[-1]
    root = np.sqrt(values[kept])[:, None] * vectors[:, kept].T
    F = kernel(X, Z) @ np.linalg.pinv(root, rcond=1e-15)
    k = F.shape[1]
    roots = np.sqrt(np.ones(len(X)) if weight is None else weight)[:, None]
    columns = np.column_stack([F, np.ones(len(X))]) if intercept else F
    ridge = np.sqrt(alpha) * np.eye(k, columns.shape[1])
    w = np.linalg.lstsq(
        np.vstack([roots * columns, ridge]), np.vstack([roots * Y, np.zeros((k, Y.shape[1]))]), rcond=None
    )[0]
    return columns @ w


@pytest.mark.filterwarnings("ignore::nystrom.exceptions.AccuracyWarning")
@pytest.mark.parametrize("kind", ["distinct", "duplicates", "nearly dependent"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("gamma", [2.0, 0.3, 0.02])
def test_small_problems_have_the_answer_of_the_closed_form(kind, intercept, weighted, gamma):
    X, Y, rng = data()
    Y = Y + 5
    weight = rng.integers(0, 4, size=len(X)).astype(float) if weighted else None
    Z, kernel = landmarks_of(X, rng, kind), Gaussian(gamma)
    settings = {"kernel": kernel, "landmarks": Z, "fit_intercept": intercept, "tol": 1e-12}
    model = KernelRidge(0.01, solver="cg", max_iter=500, **settings).fit(X, Y, sample_weight=weight)
    if kind == "nearly dependent":
        # Which of the directions at the edge of rounding are kept is the whitening's choice.
        expected = KernelRidge(0.01, solver="factor", **settings).fit(X, Y, sample_weight=weight).predict(X)
    else:
        expected = direct(kernel, X, Y, Z, 0.01, weight, intercept)
    assert np.abs(model.predict(X) - expected).max() < 1e-8 * np.abs(expected).max()
    assert model.residuals_[-1] <= 1e-12


@pytest.mark.parametrize("kernel", [Gaussian(0.5), Matern(0.5, gamma=0.5), Polynomial(2, 1.0, 1.0), Linear()])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("held", [False, True])
def test_products_with_the_kernel_values_themselves_have_the_same_answer(kernel, intercept, held, monkeypatch):
    monkeypatch.setattr(landmark_cg, "_WHITENED_PRODUCTS", 0)
    X, Y, rng = data()
    Z = landmarks_of(X, rng, "distinct")
    rows = as_blocks(X, Y, block_rows=100)
    problem = landmark_problem(
        rows, LocalEngine(2), kernel, Landmarks(Z), fit_intercept=intercept, room=1e9 if held else 0
    )
    assert (problem.held is not None) == held
    solution, _ = problem.solve(0.1, tol=1e-10, max_iter=1000)
    expected = direct(kernel, X, Y, Z, 0.1, None, intercept)
    found = kernel(X, Z) @ solution.coefficients + solution.intercept
    assert np.abs(found - expected).max() < 1e-6 * np.abs(expected).max()


@pytest.mark.parametrize(("alpha", "gamma", "p"), [(0.1, 0.1, 2), (0.1, 0.1, 3), (1.0, 0.3, 2), (1.0, 0.1, 3)])
def test_float32_rows_of_a_known_alpha_have_nearly_the_answer_of_float64(alpha, gamma, p):
    rng = np.random.default_rng(1)
    X, new = rng.normal(size=(4000, p)).astype(np.float32), rng.normal(size=(500, p))
    y = np.sin(3 * X[:, 0]) * np.cos(2 * X[:, -1]) + 0.01 * rng.normal(size=4000)

    def predicted(dtype, known):
        rows, Z = as_blocks(X.astype(dtype)).with_target(y), X[:300].astype(dtype)
        problem = landmark_problem(rows, LocalEngine(2), Gaussian(gamma), Landmarks(Z), whitened=False, alpha=known)
        solution, _ = problem.solve(alpha, tol=1e-6, max_iter=500)
        return Gaussian(gamma)(new, Z.astype(np.float64)) @ solution.coefficients[:, 0]

    expected = predicted(np.float64, None)
    errors = [np.sqrt(np.mean((predicted(np.float32, known) - expected) ** 2)) for known in (alpha, None)]
    assert errors[0] < 1e-3
    assert errors[0] < 0.2 * errors[1]


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_sample_of_rows_saves_steps_and_changes_no_answer(intercept, weighted, monkeypatch):
    monkeypatch.setattr(landmark_cg, "_WHITENED_PRODUCTS", 0)
    X, Y, rng = data(n=3000, p=6)
    weight = rng.integers(0, 3, size=3000).astype(float) if weighted else None
    solutions = []
    for sampled in (True, False):
        monkeypatch.setattr(landmark_cg, "samples_gram", lambda n, m, sampled=sampled: sampled)
        rows = as_blocks(X, block_rows=500).with_target(Y, weight)
        problem = landmark_problem(
            rows, LocalEngine(2), Gaussian(0.1), Landmarks(X[:100]), fit_intercept=intercept, room=1e9
        )
        solutions.append(problem.solve(1e-3, tol=1e-9, max_iter=1000)[0])
    quick, slow = (solution.coefficients for solution in solutions)
    predicted = Gaussian(0.1)(X, X[:100])
    assert np.abs(predicted @ (quick - slow)).max() < 1e-5 * np.abs(predicted @ slow).max()
    assert len(solutions[0].residuals) < 0.5 * len(solutions[1].residuals)


def test_both_triangles_of_the_preconditioner_are_right(monkeypatch):
    monkeypatch.setattr("nystrom.solvers.preconditioner._PANEL", 17)
    X, _, rng = data(n=90)
    sizes = rng.uniform(1, 5, size=90)
    W = Gaussian(3.0)(X, X)
    inner = FalkonPreconditioner(Gaussian(3.0), Landmarks(X), np.float64)
    V = rng.normal(size=(90, 2))
    for alpha in (0.5, 1e-3):  # twice: the second use must find T whole
        for centred in (False, True):
            inner.regularise(alpha, sizes, centred=centred)
            share = centred * preconditioner._CENTRED_SHARE
            middle = np.diag(sizes) - share * np.outer(sizes, sizes) / sizes.sum()
            expected = W @ middle @ W + alpha * W
            once = inner.unwhiten(inner.unscale(inner.scale(inner.whiten(V))))
            np.testing.assert_allclose(expected @ once, V, atol=1e-8 * np.linalg.cond(expected) ** 0.5)
            np.testing.assert_allclose(inner.unscale(inner.rescale(V)), V, rtol=1e-9, atol=1e-10)


def test_float32_rows_reach_the_answer_of_float64(monkeypatch):
    monkeypatch.setattr(landmark_cg, "_WHITENED_PRODUCTS", 0)
    X, Y, rng = data(n=2000)
    Z = X[rng.choice(2000, 300, replace=False)]
    wide = KernelRidge(0.1, gamma=0.3, landmarks=Z, solver="factor").fit(X, Y).predict(X)
    model = KernelRidge(0.1, gamma=0.3, landmarks=Z.astype(np.float32), solver="cg", tol=1e-7)
    narrow = model.fit(X.astype(np.float32), Y).predict(X.astype(np.float32))
    assert np.sqrt(np.mean((narrow - wide) ** 2)) < 1e-3 * np.std(Y)


@pytest.mark.parametrize("jobs", [1, 3])
def test_bits_do_not_depend_on_threads_or_the_source(jobs, tmp_path):
    X, Y, _ = data(n=1200)
    np.save(tmp_path / "X.npy", X)
    from nystrom import open_rows

    def fit(rows, n_jobs):
        model = KernelRidge(0.1, gamma=0.5, landmarks=X[:80], solver="cg", fit_intercept=True, n_jobs=n_jobs)
        return model.fit(rows, Y).landmark_coef_

    np.testing.assert_array_equal(fit(X, jobs), fit(X, 2))
    np.testing.assert_array_equal(fit(open_rows(tmp_path / "X.npy"), jobs), fit(X, 2))


def test_alpha_is_chosen_on_held_out_rows():
    X, Y, rng = data(n=1500, targets=1)
    y = Y.ravel() + 0.3 * rng.normal(size=1500)
    model = KernelRidge("auto", gamma=1.0, landmarks=X[:200], solver="cg", random_state=0).fit(X, y)
    best = KernelRidge("auto", gamma=1.0, landmarks=X[:200], solver="factor").fit(X, y)
    new, clean, _ = data(n=1500, targets=1, seed=0)
    assert len(model.alphas_) == len(model.alpha_scores_) > 2
    assert model.alpha_ == model.alphas_[np.argmin(model.alpha_scores_)]
    errors = [np.mean((m.predict(new) - clean.ravel()) ** 2) for m in (model, best)]
    assert errors[0] < 1.5 * errors[1]
    listed = KernelRidge([1e-3, 10.0], gamma=1.0, landmarks=X[:200], solver="cg", random_state=0).fit(X, y)
    assert set(listed.alphas_) == {1e-3, 10.0}


def test_stopping_early_takes_fewer_steps_and_predicts_well():
    X, Y, rng = data(n=1500, targets=1)
    y = Y.ravel() + rng.normal(size=1500)
    settings = {"gamma": 2.0, "landmarks": X[:300], "solver": "cg"}
    late = KernelRidge(1e-6, max_iter=2000, tol=1e-6, **settings).fit(X, y)
    early = [KernelRidge(1e-6, early_stopping=True, random_state=seed, **settings).fit(X, y) for seed in range(4)]
    assert all(model.n_iter_ <= late.n_iter_ + 5 for model in early)
    errors = [np.mean((model.predict(X) - Y.ravel()) ** 2) for model in (late, *early)]
    # It learns from 95 % of the rows, which alone costs about 5 %: the error here is all variance.
    assert np.mean(errors[1:]) <= 1.1 * errors[0]


def test_classes_are_told_apart_as_by_the_closed_form():
    X, Y, _ = data(n=900)
    y = (Y[:, 0] > 0).astype(int) + 2 * (Y[:, 1] > 0)
    models = [
        KernelRidgeClassifier(0.1, gamma=0.5, landmarks=X[:100], solver=solver, tol=1e-12).fit(X, y)
        for solver in ("factor", "cg")
    ]
    np.testing.assert_allclose(*(m.decision_function(X) for m in models), atol=1e-8)


def test_too_few_steps_warn_with_the_true_residual(monkeypatch):
    monkeypatch.setattr(landmark_cg, "_WHITENED_PRODUCTS", 0)
    X, Y, _ = data(n=3000)
    with pytest.warns(ConvergenceWarning, match="stopped after 1 steps"):
        KernelRidge(1e-6, gamma=3.0, n_landmarks=500, landmarks="uniform", solver="cg", max_iter=1).fit(X, Y)


def test_what_needs_a_factor_says_so():
    X, Y, _ = data()
    model = KernelRidge(0.1, landmarks=X[:30], solver="cg").fit(X, Y)
    with pytest.raises(AttributeError, match="conjugate gradients solve for the coefficients"):
        _ = model.map_.eigenvalues
    with pytest.raises(ValueError, match="solver='cg' needs all rows at once"):
        model.partial_fit(X, Y)
    with pytest.raises(ValueError, match="leave n_components=None"):
        KernelRidge(0.1, n_components=5, solver="cg").fit(X, Y)
    with pytest.raises(ValueError, match="solver must be one of"):
        KernelRidge(0.1, solver="falkon").fit(X, Y)
    assert not hasattr(model, "certificate_")


def test_an_indefinite_kernel_is_refused(monkeypatch):
    monkeypatch.setattr(landmark_cg, "_WHITENED_PRODUCTS", 0)
    X, Y, _ = data(n=300)
    kernel = FromCallable(lambda A, B: np.tanh(A @ B.T - 1))
    with pytest.raises(NotPositiveSemidefiniteError, match="not positive semidefinite"):
        KernelRidge(0.1, kernel=kernel, landmarks=X[:50], solver="cg").fit(X, Y)


@pytest.mark.parametrize(
    ("n", "m", "solver", "reason"),
    [
        (1000, 1000, "factor", "operations"),
        (100_000, 1000, "factor", "operations"),
        (100_000, 6000, "cg", "operations"),
        (10**6, 20_000, "cg", "more than 40 GB"),
    ],
)
def test_the_cheapest_solver_is_chosen(n, m, solver, reason):
    choice = choose_solver(n, 10, m)
    assert choice.solver == solver
    assert reason in choice.reason


def test_the_choice_and_its_reason_are_told():
    X, Y, _ = data()
    model = KernelRidge(0.1).fit(X, Y)
    assert (model.solver_, "operations" in model.solver_reason_) == ("factor", True)
    assert KernelRidge(0.1, solver="cg").fit(X, Y).solver_reason_ == "it was asked for"


@pytest.mark.parametrize("kernel", [Linear(), Polynomial(2, 0.1, 1.0)])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_kernels_of_few_directions_have_the_answer_of_the_closed_form(kernel, intercept, dtype, monkeypatch):
    # More than ten landmarks are too many for whitened features here.
    monkeypatch.setattr(landmark_cg, "_WHITENED_PRODUCTS", 1e6)
    X, Y, _ = data(n=900)
    X = (X + 3).astype(dtype)
    settings = {"kernel": kernel, "landmarks": X[:200], "fit_intercept": intercept}
    model = KernelRidge(1e-3, solver="cg", **settings).fit(X, Y)
    expected = KernelRidge(1e-3, solver="factor", **settings).fit(X.astype(np.float64), Y).predict(X)
    assert model.landmark_coef_.shape == (200, 2)
    assert np.count_nonzero(model.landmark_coef_[:, 0]) <= 10
    tolerance = 1e-6 if dtype == np.float64 else 0.02
    assert np.abs(model.predict(X) - expected).max() < tolerance * np.std(Y)


def test_an_intercept_needs_no_more_than_a_little_regularisation(monkeypatch):
    monkeypatch.setattr(landmark_cg, "_WHITENED_PRODUCTS", 0)
    X, Y, _ = data(n=600, p=8)
    Z, kernel = X[:28], Laplacian(0.15)
    model = KernelRidge(1e-9, kernel=kernel, landmarks=Z, fit_intercept=True, solver="cg").fit(X, Y)
    assert np.abs(model.predict(X) - direct(kernel, X, Y, Z, 1e-9, None, True)).max() < 1e-6


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("intercept", [False, True])
def test_residuals_are_refined_where_landmarks_are_nearly_dependent(intercept, held, monkeypatch):
    monkeypatch.setattr(landmark_cg, "_WHITENED_PRODUCTS", 0)
    X, Y, rng = data(n=1000, p=2)
    weight = rng.integers(0, 3, size=1000).astype(float)
    Z, kernel = X[:200], Gaussian(0.5)
    problem = landmark_problem(
        as_blocks(X, block_rows=500).with_target(Y + 3, weight),
        LocalEngine(2),
        kernel,
        Landmarks(Z),
        fit_intercept=intercept,
        room=1e9 if held else 0,
    )
    solution, _ = problem.solve(0.1, tol=1e-8, max_iter=500)
    assert solution.converged
    expected = direct(kernel, X, Y + 3, Z, 0.1, weight, intercept)
    # Far from all landmarks, f depends on which directions near rounding are kept, so the largest error says nothing.
    errors = kernel(X, Z) @ solution.coefficients + solution.intercept - expected
    assert np.sqrt(np.mean(errors**2)) < 2e-6


@pytest.mark.parametrize("unit", [1e-170, 1e150])
def test_the_unit_of_the_target_does_not_matter(unit):
    X, Y, _ = data()
    settings = {"gamma": 0.5, "landmarks": X[:80], "random_state": 0}
    for chosen in ({"alpha": "auto"}, {"alpha": 0.1, "early_stopping": True}, {"alpha": 0.1}):
        plain, scaled = (KernelRidge(solver="cg", **settings, **chosen).fit(X, Y * u) for u in (1.0, unit))
        np.testing.assert_allclose(scaled.predict(X) / unit, plain.predict(X), atol=1e-6)
        assert scaled.alpha_ == plain.alpha_


def test_the_search_for_alpha_follows_the_size_of_the_kernel():
    X, Y, _ = data(n=1000)
    small, large = (
        KernelRidge("auto", kernel=Linear(), landmarks=X[:50] * size, solver="cg", random_state=0).fit(X * size, Y)
        for size in (1.0, 1e4)
    )
    np.testing.assert_allclose(large.alphas_, small.alphas_ * 1e8, rtol=1e-6)


def test_rows_without_weight_do_not_judge():
    X, Y, rng = data(n=400)
    weight = np.zeros(400)
    weight[rng.choice(400, 40, replace=False)] = 1.0
    with_others = KernelRidge("auto", gamma=0.5, landmarks=X[:30], solver="cg", random_state=0)
    assert np.isfinite(with_others.fit(X, Y, sample_weight=weight).alpha_scores_).all()
    with pytest.raises(ValueError, match="at least 2 distinct rows of positive weight"):
        with_others.fit(X, Y, sample_weight=np.eye(400)[7])


def test_stopping_early_returns_the_best_step():
    judge = HeldOut(np.eye(3), np.ones((3, 1)), np.ones(3), 1.0)
    steps = [np.full((3, 1), value) for value in (0.0, 0.9, 0.5, 0.5, 0.5, 0.5, 0.5)]
    stopped = [judge.has_stalled(step, np.zeros(1)) for step in steps]
    assert stopped == [False] * 6 + [True]
    np.testing.assert_array_equal(judge.best[0], steps[1])


@pytest.mark.parametrize("kernel", ["linear", "polynomial", "gaussian"])
@pytest.mark.parametrize("solver", ["cg", "exact"])
@pytest.mark.filterwarnings("ignore::nystrom.exceptions.ConvergenceWarning")
def test_weights_of_very_different_sizes_end_in_a_fit(kernel, solver):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-3, 3, (400, 2))
        y = np.sin(2 * X[:, 0]) * X[:, 1] + rng.normal(size=400)
        weight = np.where(rng.random(400) < 0.02, 1e6, 1.0)
        model = KernelRidge(
            1e-10, solver=solver, kernel=kernel, gamma=0.2, fit_intercept=seed % 2 == 0, n_landmarks=100, random_state=0
        )
        assert np.isfinite(model.fit(X, y, sample_weight=weight).predict(X)).all()


def test_a_preconditioner_of_a_singular_matrix_is_shifted_and_stays_finite():
    gram = np.outer(np.arange(1.0, 9.0), np.arange(1.0, 9.0))
    inner = preconditioner.SamplePreconditioner(np.eye(8), gram - 1e-13 * np.eye(8))
    inner.regularise(0.0, np.ones(8), centred=False)
    V = np.arange(8.0)[:, None]
    np.testing.assert_allclose(inner.rescale(inner.unscale(V)), V, atol=1e-6)


def test_weights_whose_sums_overflow_are_named():
    X, Y, _ = data(50)
    with pytest.raises(ValueError, match=r"sample_weight must be at most 1e\+154.*row 3 has 1e\+305"):
        KernelRidge(1.0).fit(X, Y, sample_weight=np.where(np.arange(50) == 3, 1e305, 1.0))
