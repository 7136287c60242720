"""The transformer: scikit-learn's contract, containers, and errors that say what to do."""

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn import kernel_ridge
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from nystrom import (
    KernelKMeans,
    KernelPCA,
    KernelRidge,
    KernelRidgeClassifier,
    Nystroem,
    SpectralClustering,
    kernel_eigh,
    open_rows,
)
from nystrom.exceptions import NotPositiveSemidefiniteError
from nystrom.kernels import Gaussian, Linear, Precomputed
from nystrom.landmarks import SketchedKMeans


@pytest.fixture(scope="module")
def digits():
    return load_digits(return_X_y=True)


@parametrize_with_checks([Nystroem(n_components=5, random_state=0), Nystroem(landmarks="uniform", random_state=0)])
def test_scikit_learn_accepts_the_estimator(estimator, check):
    check(estimator)


LANDMARKS = ["auto", "sketched-kmeans", "kmeans", "uniform", "diagonal", "leverage", "kmeans++", "rpcholesky"]


@pytest.mark.parametrize("landmarks", LANDMARKS)
@pytest.mark.parametrize("factor", ["optimal", "standard"])
def test_fit_transform_equals_transform(digits, landmarks, factor):
    X = digits[0][:600]
    features = Nystroem(n_components=10, landmarks=landmarks, factor=factor, random_state=0)
    first = features.fit_transform(X)
    np.testing.assert_allclose(first, features.transform(X), atol=1e-12)
    assert first.shape == (600, 10)


@pytest.mark.parametrize("kernel", ["gaussian", "rbf", "polynomial", "linear", "laplacian", "matern", "cosine"])
def test_every_kernel_name_gives_its_kernel(digits, kernel):
    X = digits[0][:300] / 16
    features = Nystroem(kernel, n_components=None, landmarks=X, random_state=0)
    L = features.fit_transform(X)
    K = features.kernel_(X, X)
    assert np.linalg.norm(L @ L.T - K) < 1e-7 * np.linalg.norm(K)


def test_dense_sparse_memmap_and_fortran_rows_agree(digits, tmp_path):
    X = digits[0][:500]
    np.save(tmp_path / "X.npy", X)
    forms = [X, sp.csr_matrix(X), sp.csr_array(X), np.load(tmp_path / "X.npy", mmap_mode="r"), np.asfortranarray(X)]
    features = Nystroem(n_components=8, landmarks=X[:20])
    base = features.fit_transform(X)
    for form in forms:
        np.testing.assert_allclose(features.fit_transform(form), base, atol=1e-10)


def test_float32_stays_float32(digits):
    X = digits[0].astype(np.float32)
    L = Nystroem(n_components=10, random_state=0).fit_transform(X)
    assert L.dtype == np.float32


def test_data_is_never_changed(digits):
    X = digits[0][:200].copy()
    before = X.copy()
    X.setflags(write=False)
    Nystroem(n_components=5, random_state=0).fit_transform(X)
    np.testing.assert_array_equal(X, before)


def test_a_precomputed_kernel_gives_the_features_of_its_rows(digits):
    X = digits[0][:300]
    kernel = Gaussian(1e-3)
    K = kernel(X, X)
    idx = np.arange(30)
    a = Nystroem("precomputed", n_components=10, landmarks=idx).fit(K)
    b = Nystroem(kernel, n_components=10, landmarks=idx).fit(X)
    np.testing.assert_allclose(np.abs(a.transform(K)), np.abs(b.transform(X)), atol=1e-8)
    assert Nystroem("precomputed", n_components=10, random_state=0).fit_transform(K).shape == (300, 10)


def test_a_pipeline_and_a_grid_search_reach_the_selector(digits):
    X, y = digits[0][:400], digits[1][:400]
    pipe = make_pipeline(
        Nystroem(n_components=20, landmarks=SketchedKMeans(), random_state=0), LogisticRegression(max_iter=500)
    )
    search = GridSearchCV(pipe, {"nystroem__landmarks__sketch_dim": [2, 10], "nystroem__n_components": [5, 40]}, cv=2)
    search.fit(X, y)
    assert search.best_params_["nystroem__n_components"] == 40
    assert search.score(X, y) > 0.9


def test_feature_names_carry_the_class(digits):
    features = Nystroem(n_components=3, random_state=0).fit(digits[0][:100])
    assert list(features.get_feature_names_out()) == ["nystroem0", "nystroem1", "nystroem2"]


def test_a_seed_repeats_the_fit_and_threads_do_not_change_it(digits):
    X = digits[0]
    fits = [Nystroem(n_components=10, n_jobs=j, random_state=3).fit(X) for j in (1, 2, 8)]
    for other in fits[1:]:
        np.testing.assert_array_equal(fits[0].projection_, other.projection_)
        np.testing.assert_array_equal(fits[0].landmarks_, other.landmarks_)


def test_a_copy_by_clone_or_pickle_is_the_same(digits):
    X = digits[0][:300]
    features = Nystroem(Gaussian(), n_components=10, random_state=0).fit(X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(features)).transform(X), features.transform(X))
    np.testing.assert_allclose(clone(features).fit(X).transform(X), features.transform(X))


def test_the_certificate_is_below_the_kernel_and_bounds_the_frobenius_error(digits):
    X = digits[0]
    features = Nystroem(n_components=20, random_state=0).fit(X)
    assert 0 < features.certificate_.trace.value < 1
    fro = features.approximation_error(X)
    K = features.kernel_(X, X)
    L = features.transform(X)
    assert fro.low <= np.linalg.norm(K - L @ L.T) / np.linalg.norm(K) * (1 + 1e-9)
    assert features.approximation_error(X, norm="trace").value == pytest.approx(features.certificate_.trace.value)
    assert features.approximation_error(X, norm="spectral").value < fro.high


def test_the_residual_is_small_at_landmarks_and_near_one_far_away(digits):
    X = digits[0][:300]
    features = Nystroem(n_components=None, n_landmarks=30, landmarks="uniform", random_state=0).fit(X)
    assert features.residual(X[features.landmark_indices_]).max() < 1e-6
    np.testing.assert_allclose(features.residual(X[:5] + 1e4), 1.0)


def test_eigenvalues_come_with_orthonormal_vectors(digits):
    X = digits[0][:500]
    K = Nystroem(n_components=1).fit(X).kernel_(X, X)
    true = np.linalg.eigvalsh(K)[::-1][:5]
    for factor in ("optimal", "standard"):
        values, U = kernel_eigh(X, n_components=5, n_landmarks=100, factor=factor, random_state=0)
        assert np.abs(U.T @ U - np.eye(5)).max() < 1e-13
        assert (values <= true * (1 + 1e-9)).all()
    np.testing.assert_allclose(kernel_eigh(X, n_components=5, landmarks=X)[0], true, rtol=1e-9)
    naive, _ = kernel_eigh(X, n_components=5, factor="naive", landmarks="uniform", random_state=0)
    assert naive.shape == (5,)


def test_the_default_rank_gives_way_to_fewer_landmarks():
    X = np.random.default_rng(0).normal(size=(300, 3))
    fitted = Nystroem(n_landmarks=30, random_state=0).fit(X)
    assert fitted.n_components_ == 30
    assert fitted.n_components == 100
    assert np.array_equal(
        fitted.transform(X), Nystroem(n_components=None, n_landmarks=30, random_state=0).fit_transform(X)
    )
    with pytest.raises(ValueError, match="n_components=31 is larger than n_landmarks=30"):
        Nystroem(n_components=31, n_landmarks=30).fit(X)


WRONG = [
    ({"n_components": 0}, "n_components must be a whole number of at least 1.*got 0"),
    ({"n_landmarks": 0}, "n_landmarks must be a whole number of at least 1.*got 0"),
    ({"n_components": 2.5}, "n_components must be.*2.5"),
    ({"n_components": 10, "n_landmarks": 5}, "n_components=10 is larger than n_landmarks=5"),
    ({"kernel": "gauss"}, "gaussian"),
    ({"landmarks": "best"}, "sketched-kmeans"),
    ({"factor": "qr"}, "factor must be one of.*'qr'"),
    ({"gamma": -1}, "gamma"),
    ({"n_jobs": 0}, "n_jobs"),
    ({"random_state": "seed"}, "random_state"),
    ({"landmarks": np.zeros((3, 7))}, "landmarks.*shape"),
]


@pytest.mark.parametrize(("parameters", "message"), WRONG)
def test_a_wrong_parameter_is_named_with_its_value(digits, parameters, message):
    with pytest.raises(ValueError, match=message):
        Nystroem(**parameters).fit(digits[0][:50])


def test_an_indefinite_kernel_is_refused(digits):
    def minus_distance(A, B):
        return -np.abs(A[:, None, :] - B[None, :, :]).sum(axis=2)

    with pytest.raises(NotPositiveSemidefiniteError, match="positive definite kernel"):
        Nystroem(minus_distance, n_components=5, landmarks="uniform", random_state=0).fit(digits[0][:50])


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_rows_that_are_not_finite_are_named(digits, value, container):
    X = digits[0][:50].copy()
    X[7, 3] = value
    features = Nystroem(n_components=5, random_state=0)
    with pytest.raises(ValueError, match="row 7"):
        features.fit(container(X))
    features.fit(digits[0][:50])
    with pytest.raises(ValueError, match="row 7"):
        features.transform(container(X))


DEGENERATE = {
    "one row": np.ones((1, 3)),
    "two equal rows": np.ones((2, 3)),
    "all rows equal": np.ones((50, 3)),
    "constant column": np.c_[np.ones(50), np.arange(50.0)],
    "duplicates": np.repeat(np.arange(10.0), 10)[:, None],
    "huge": np.random.default_rng(0).normal(size=(60, 3)) * 1e150,
    "tiny": np.random.default_rng(0).normal(size=(60, 3)) * 1e-150,
    "one column": np.arange(60.0)[:, None],
}


@pytest.mark.filterwarnings("ignore::nystrom.exceptions.FewerLandmarksWarning")
@pytest.mark.parametrize("landmarks", [*LANDMARKS, "column-norm"])
@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_rows_give_finite_features_that_rebuild_the_kernel(name, landmarks):
    X = DEGENERATE[name]
    features = Nystroem(n_components=None, landmarks=landmarks, random_state=0).fit(X)
    L = features.transform(X)
    assert np.isfinite(L).all()
    assert features.certificate_.trace.value < 1e-6


def test_empty_sparse_rows_are_rows_like_others():
    X = sp.csr_array(np.vstack([np.zeros((5, 4)), np.eye(4)]))
    L = Nystroem(n_components=None, landmarks="uniform", random_state=0).fit_transform(X)
    np.testing.assert_allclose(L @ L.T, np.exp(-_squared(X.toarray()) / _spread(X.toarray())), atol=1e-10)


def _squared(X):
    return ((X[:, None] - X[None]) ** 2).sum(axis=2)


def _spread(X):
    return ((X - X.mean(axis=0)) ** 2).sum(axis=1).mean()


def test_set_output_leaves_features_in_a_file_as_rows(tmp_path):
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 3)), columns=list("abc"))
    model = Nystroem(n_components=4, random_state=0).set_output(transform="pandas").fit(frame)
    held, written = model.transform(frame), model.transform(frame, out=tmp_path / "f.npy")
    assert list(held.columns) == ["nystroem0", "nystroem1", "nystroem2", "nystroem3"]
    assert np.array_equal(written.take(np.arange(60)), held.to_numpy())


@pytest.mark.parametrize("kernel", ["precomputed", Precomputed()])
def test_a_precomputed_kernel_is_cut_on_both_sides_by_cross_validation(kernel):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2))
    K = np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(-1))
    model = KernelRidge(0.1, kernel=kernel, landmarks="uniform", n_landmarks=60, random_state=0)
    assert get_tags(model).input_tags.pairwise
    assert not get_tags(KernelRidge(alpha=1.0)).input_tags.pairwise
    theirs = kernel_ridge.KernelRidge(alpha=0.1, kernel="precomputed")
    scores = (cross_val_score(each, K, X[:, 0], cv=4, error_score="raise") for each in (model, theirs))
    np.testing.assert_allclose(*scores, rtol=1e-8)


def test_one_landmark_by_leverage_is_found(digits):
    rows = digits[0][:200]
    assert Nystroem(n_components=1, n_landmarks=1, landmarks="leverage", random_state=0).fit(rows).n_components_ == 1


def test_a_path_in_the_place_of_rows_is_opened(tmp_path):
    table = np.random.default_rng(0).normal(size=(300, 4))
    np.savetxt(tmp_path / "t.csv", table, delimiter=",", header="a,y,b,c", comments="")
    path = tmp_path / "t.csv"
    for machine, y in ((KernelRidge, table[:, 1]), (KernelRidgeClassifier, table[:, 1] > 0)):
        if machine is KernelRidgeClassifier:
            np.savetxt(path, np.c_[table[:, 0], y, table[:, 2:]], delimiter=",", header="a,y,b,c", comments="")
        named = machine(n_landmarks=20, random_state=0).fit(str(path), "y")
        rows = open_rows(path, target="y")
        given = machine(n_landmarks=20, random_state=0).fit(rows)
        np.testing.assert_array_equal(named.landmark_coef_, given.landmark_coef_)
        np.testing.assert_array_equal(named.predict(path), given.predict(rows))  # the target is left out
        assert named.score(path, "y") == given.score(rows)
    features = Nystroem(n_landmarks=20, random_state=0).fit_transform(path)
    np.testing.assert_array_equal(features, Nystroem(n_landmarks=20, random_state=0).fit_transform(open_rows(path)))
    with pytest.raises(ValueError, match="requires y"):
        KernelRidge().fit(path)
    with pytest.raises(ValueError, match="'price'"):
        KernelRidge().fit(path, "price")
    with pytest.raises(FileNotFoundError, match=r"big\.parquet"):
        KernelKMeans().fit("big.parquet")


UNSUPERVISED = [
    Nystroem(n_landmarks=20, random_state=0),
    KernelPCA(n_components=2, n_landmarks=20, random_state=0),
    KernelKMeans(n_clusters=2, n_landmarks=20, random_state=0),
    SpectralClustering(n_clusters=2, n_landmarks=20, random_state=0),
]


@pytest.mark.parametrize("machine", UNSUPERVISED, ids=lambda machine: type(machine).__name__)
@pytest.mark.parametrize("form", ["csv", "parquet", "folder"])
@pytest.mark.parametrize("kind", ["numbers", "words"])
def test_a_column_that_y_names_is_no_feature_of_machines_without_a_target(machine, form, kind, tmp_path):
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(300, 3)), columns=list("abc"))
    features = table.to_numpy()
    table.insert(1, "y", 1000 * table["a"] if kind == "numbers" else np.where(table["a"] > 0, "up", "down"))
    path = tmp_path / {"csv": "t.csv", "parquet": "t.parquet", "folder": "parts"}[form]
    if form == "csv":
        table.to_csv(path, index=False)
    elif form == "parquet":
        table.to_parquet(path, index=False)
    else:
        path.mkdir()
        for i in range(2):
            table[150 * i : 150 * (i + 1)].to_parquet(path / f"{i}.parquet", index=False)
    given = clone(machine).fit(features)
    for fitted in (clone(machine).fit(path, "y"), clone(machine).fit(str(path), y="y")):
        assert list(fitted.feature_names_in_) == list("abc")
        np.testing.assert_allclose(fitted.landmarks_, given.landmarks_, rtol=1e-12)
    use, ready = ("fit_predict", "predict") if hasattr(machine, "n_clusters") else ("fit_transform", "transform")
    np.testing.assert_array_equal(getattr(clone(machine), use)(path, "y"), getattr(clone(machine), use)(features))
    np.testing.assert_allclose(getattr(fitted, ready)(path), getattr(given, ready)(features), rtol=1e-12)
    with pytest.raises(ValueError, match="'price'"):
        clone(machine).fit(path, "price")


def test_rows_added_from_a_file_leave_the_column_of_y_out(tmp_path):
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(300, 3)), columns=list("abc"))
    table.assign(y=1.0).to_csv(tmp_path / "t.csv", index=False)
    machine = Nystroem(gamma=0.5, landmarks=table[:20].to_numpy())
    twice = clone(machine).partial_fit(tmp_path / "t.csv", "y").partial_fit(tmp_path / "t.csv", "y")
    assert list(twice.feature_names_in_) == list("abc")
    both = clone(machine).fit(np.concatenate([table, table]))
    np.testing.assert_allclose(twice.eigenvalues_, both.eigenvalues_, rtol=1e-9)


def test_opened_rows_print_what_they_are(tmp_path):
    np.save(tmp_path / "rows.npy", np.zeros((1200, 3), np.float32))
    shown = repr(open_rows(tmp_path / "rows.npy"))
    assert "rows.npy" in shown
    assert "1,200 × 3 float32, 1 block>" in shown


def test_landmarks_are_found_under_the_names_of_scikit_learn() -> None:
    X = np.random.default_rng(0).normal(size=(200, 3))
    assert not hasattr(Nystroem(), "components_")
    rows = Nystroem(n_components=10, landmarks="uniform", random_state=0).fit(X)
    np.testing.assert_array_equal(X[rows.component_indices_], rows.components_)
    means = Nystroem(n_components=10, random_state=0).fit(X)
    assert means.components_ is means.landmarks_
    with pytest.raises(AttributeError, match=r"means of rows.*landmarks='uniform'"):
        _ = means.component_indices_


@pytest.mark.parametrize("factor", ["optimal", "standard"])
@pytest.mark.parametrize(
    "kernel", ["gaussian", Gaussian() + 0.1 * Linear(), Gaussian().on([0, 1]) * Gaussian().on([2])]
)
def test_features_are_mapped_back_to_rows_by_kernel_ridge_regression(kernel, factor):
    X = np.random.default_rng(0).normal(size=(300, 3)) + 5
    mapped = Nystroem(kernel, n_components=60, factor=factor, fit_inverse_transform=True, alpha=0.1, random_state=0)
    features = mapped.fit_transform(X)
    back = mapped.inverse_transform(features)
    ridge = KernelRidge(0.1, kernel=mapped.kernel_, landmarks=mapped.landmarks_, n_components=60, factor=factor)
    expected = ridge.set_params(fit_intercept=True).fit(X, X).predict(X)
    np.testing.assert_allclose(back, expected, atol=1e-6)
    assert np.abs(back - X).mean() < 0.25
    np.testing.assert_array_equal(mapped.fit(X).inverse_transform(features), back)


def test_the_way_back_must_be_asked_for():
    X = np.random.default_rng(0).normal(size=(50, 3))
    with pytest.raises(NotFittedError, match="set fit_inverse_transform=True"):
        Nystroem(n_components=5).fit(X).inverse_transform(X)
    mapped = Nystroem(n_components=5, fit_inverse_transform=True, random_state=0).fit(X)
    with pytest.raises(ValueError, match="X must have 5 columns, one per component; got 3"):
        mapped.inverse_transform(X)
    with pytest.raises(ValueError, match="reads all rows again"):
        mapped.partial_fit(X)
    with pytest.raises(ValueError, match="fit_inverse_transform must be"):
        Nystroem(fit_inverse_transform="yes").fit(X)
