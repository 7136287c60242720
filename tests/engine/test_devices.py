"""Arrays of other namespaces: the same answers as NumPy's, computed where the arrays are."""

import pickle
import sys

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.metrics import adjusted_rand_score

import nystrom
from nystrom import (
    GaussianProcessRegressor,
    KernelKMeans,
    KernelLogisticRegression,
    KernelPCA,
    KernelRidge,
    KernelRidgeClassifier,
    KernelSVC,
    KernelSVR,
    Nystroem,
    SpectralClustering,
)
from nystrom.devices import DeviceArray, Place, fetch, named_place, put, to_host
from nystrom.exceptions import MemoryBudgetError, MissingDependencyError
from nystrom.kernels import Gaussian, InMetric, Linear, Matern, Overlap, Polynomial
from nystrom.loops.device import cross

# Namespace, device, dtype. device1 refuses np.asarray; no_float64 has no float64.
PLACES = [
    ("array_api_strict", "CPU_DEVICE", "float64"),
    ("array_api_strict", "device1", "float64"),
    ("array_api_strict", "device1", "float32"),
    ("array_api_strict", "no_float64", "float32"),
    ("torch", "cpu", "float64"),
    ("torch", "cpu", "float32"),
]


def dot(x, y):
    return x @ y.T


KERNELS = {
    "gaussian": "gaussian",
    "linear": "linear",
    "polynomial": "polynomial",
    "laplacian": "laplacian",
    "matern 1/2": Matern(0.5),
    "matern 3/2": "matern",
    "matern 5/2": Matern(2.5, gamma=0.3),
    "cosine": "cosine",
    "chi2": "chi2",
    "additive_chi2": "additive_chi2",
    "product": Polynomial(2, 0.1, 1.0) * Linear(),
    "sum": 2.0 * Gaussian(0.5) + Linear().on([0, 1]),
    "metric": InMetric(Gaussian(0.5), np.array([1.0, 2.0, 0.5, 1.0, 0.0])),
    "full metric": InMetric(Gaussian(0.5), np.eye(5)[:, :3] + 0.1),
    "overlap": Overlap(0.3).on([4]) * Gaussian(0.2),
    "function": dot,
}
SELECTORS = [
    "auto",
    "sketched-kmeans",
    "kmeans",
    "uniform",
    "diagonal",
    "column-norm",
    "leverage",
    "kmeans++",
    "rpcholesky",
]
COMMON = {"n_landmarks": 30, "random_state": 0}
# Machine, kind of target, methods that give an array.
MACHINES = {
    "Nystroem": (Nystroem(n_components=10, **COMMON), None, ("transform", "residual")),
    "tolerance": (Nystroem(tol=0.2, random_state=0), None, ("transform",)),
    "ridge": (KernelRidge(alpha=0.1, solver="factor", **COMMON), "y", ("predict", "residual")),
    "ridge, searched": (KernelRidge(alpha=[0.1, 1.0], fit_intercept=True, **COMMON), "y", ("predict",)),
    "ridge, cg": (KernelRidge(alpha=0.1, solver="cg", **COMMON), "y", ("predict",)),
    "ridge, exact": (KernelRidge(alpha=0.1, solver="exact", **COMMON), "y", ("predict",)),
    "ridge, metric": (KernelRidge(alpha=0.1, metric="diagonal", **COMMON), "y", ("predict",)),
    "ridge classifier": (KernelRidgeClassifier(alpha=0.1, **COMMON), "classes", ("predict", "decision_function")),
    "logistic": (KernelLogisticRegression(C=1.0, **COMMON), "classes", ("predict", "predict_proba")),
    "svc": (KernelSVC(C=1.0, **COMMON), "classes", ("predict", "decision_function")),
    "svr": (KernelSVR(C=1.0, **COMMON), "y", ("predict",)),
    "pca": (KernelPCA(n_components=3, **COMMON), None, ("transform",)),
    "gp": (GaussianProcessRegressor(**COMMON), "y", ("predict",)),
    "kmeans": (KernelKMeans(n_clusters=3, **COMMON), None, ("predict",)),
    "spectral": (SpectralClustering(n_clusters=3, **COMMON), None, ("predict",)),
}


def make_rows(n=300):
    rng = np.random.default_rng(0)
    code = rng.integers(0, 3, n)
    # Three clusters, no negative entry (for chi2), and a column of codes.
    X = np.abs(rng.normal(size=(n, 4)) * 0.4 + 3 * np.eye(4)[code])
    y = np.sin(X[:, 0]) + X[:, 1]
    return np.column_stack([X, code]).astype(np.float32), y, code


X, y, code = make_rows()
TARGETS = {None: None, "y": y, "classes": code}


@pytest.fixture(params=PLACES, ids=" ".join)
def there(request, monkeypatch):
    """Return the function from arrays of NumPy to those of a place, with scikit-learn's dispatch on."""
    name, device, dtype = request.param
    namespace = pytest.importorskip(name)
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    place = Place(namespace, namespace.Device(device)) if name == "array_api_strict" else named_place("torch:cpu")

    def send(A, as_rows=True):
        return None if A is None else place.send(A.astype(dtype) if as_rows else A)

    send.dtype = np.dtype(dtype)
    with sklearn.config_context(array_api_dispatch=True):
        yield send


@pytest.fixture
def device1(monkeypatch):
    """Return the place whose arrays refuse np.asarray."""
    strict = pytest.importorskip("array_api_strict")
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    with sklearn.config_context(array_api_dispatch=True):
        yield Place(strict, strict.Device("device1"))


def assert_same(found, like, expected, dtype):
    """Check that an array is where ``like`` is, and near to one of NumPy, relative to the largest of it."""
    assert Place.of(found) == Place.of(like)
    found = fetch(found)
    if expected.dtype.kind in "iu":
        # Of clusters, which numbers they have is free.
        assert adjusted_rand_score(found, expected) == 1
        return
    np.testing.assert_allclose(found, expected, rtol=0, atol=np.sqrt(np.finfo(dtype).eps) * np.abs(expected).max())


def inner(features):
    # Signs and rotations of features are free, their inner products are not.
    return features @ features.T


@pytest.mark.parametrize("kernel", KERNELS)
def test_features_of_every_kernel_are_those_of_numpy(kernel, there):
    model = Nystroem(KERNELS[kernel], n_components=8, n_landmarks=20, landmarks="uniform", random_state=0)
    expected = inner(model.fit(X.astype(there.dtype)).transform(X[:50].astype(there.dtype)))
    rows = there(X)
    assert_same(inner(model.fit(rows).transform(rows[:50, :])), rows, expected, there.dtype)
    assert_same(inner(model.fit_transform(rows)[:50, :]), rows, expected, there.dtype)


@pytest.mark.parametrize("selector", SELECTORS)
def test_every_selector_chooses_the_landmarks_that_it_does_with_numpy(selector, there):
    if there.dtype == np.float32 and selector == "rpcholesky":
        pytest.skip("its pivots depend on rounding: in float32 two runs part")
    model = Nystroem(n_components=8, landmarks=selector, gamma=0.05, **COMMON)
    expected = model.fit(X.astype(there.dtype)).landmarks_
    np.testing.assert_allclose(model.fit(there(X)).landmarks_, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_machine_gives_the_answers_of_numpy(machine, there):
    model, kind, methods = MACHINES[machine]
    target = TARGETS[kind]
    at_home = sklearn.clone(model).fit(X.astype(there.dtype), target)
    rows, given = there(X), there(target, as_rows=False)
    if given is not None and not Place.of(rows).has_float64 and kind == "y":
        given = there(target)
    fitted = sklearn.clone(model).fit(rows, given)
    for method in methods:
        expected = getattr(at_home, method)(X[:60].astype(there.dtype))
        found = getattr(fitted, method)(rows[:60, :])
        if method == "transform":
            found, expected = inner(found), inner(expected)
        assert_same(found, rows, expected, there.dtype)


@pytest.mark.slow
@pytest.mark.parametrize("selector", SELECTORS)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_kernel_machine_and_selector_together(machine, selector, device1):
    base, kind, methods = MACHINES[machine]
    rows, target = device1.send(X.astype(np.float64)), TARGETS[kind]
    # Of huge kernel values, iterations and likelihoods end where they are flat: within 1e-3, not 1e-8.
    kernels = {**KERNELS, "polynomial": Polynomial(3, 0.05, 1.0), "product": 0.05 * KERNELS["product"]}
    if machine == "ridge, metric":
        kernels = {name: kernels[name] for name in ("gaussian", "laplacian", "matern 3/2")}
    if machine == "gp":
        base = sklearn.clone(base).set_params(alpha=0.1)
    for name, kernel in kernels.items():
        model = sklearn.clone(base).set_params(kernel=kernel, landmarks=selector)
        at_home = sklearn.clone(model).fit(X.astype(np.float64), target)
        fitted = model.fit(rows, device1.send(target) if kind else None)
        for method in methods:
            found, expected = (getattr(m, method)(r) for m, r in ((fitted, rows), (at_home, X.astype(np.float64))))
            if method == "transform":
                found, expected = inner(found), inner(expected)
            if method == "residual":  # rounding of k(x, x), where nothing is left
                diagonal = at_home.kernel_.diag(X.astype(np.float64))
                found, expected = found + device1.send(diagonal), expected + diagonal
            try:
                assert_same(found, rows, expected, np.float64)
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from error


# Machine, kind of target, what is asked of it for some rows.
QUESTIONS = {
    "interval": (KernelRidge(alpha=0.1, **COMMON), "y", lambda m, R: m.predict_interval(R)),
    "interval, svr": (KernelSVR(C=1.0, **COMMON), "y", lambda m, R: m.predict_interval(R)),
    "interval, gp": (GaussianProcessRegressor(alpha=0.1, **COMMON), "y", lambda m, R: m.predict_interval(R)),
    "set": (KernelRidgeClassifier(alpha=0.1, **COMMON), "classes", lambda m, R: m.predict_set(R)),
    "set, logistic": (KernelLogisticRegression(C=1.0, **COMMON), "classes", lambda m, R: m.predict_set(R)),
    "probabilities": (KernelRidgeClassifier(alpha=0.1, **COMMON), "classes", lambda m, R: m.predict_proba(R)),
    "probabilities, svc": (KernelSVC(C=1.0, **COMMON), "classes", lambda m, R: m.predict_proba(R)),
    "unlike": (KernelRidge(alpha=0.1, **COMMON), "y", lambda m, R: m.unlike(R)),
    "deviation": (GaussianProcessRegressor(alpha=0.1, **COMMON), "y", lambda m, R: m.predict(R, return_std=True)[1]),
    "draws": (GaussianProcessRegressor(alpha=0.1, **COMMON), "y", lambda m, R: m.sample_y(R, 3, random_state=0)),
    "draws before a fit": (GaussianProcessRegressor(), None, lambda m, R: m.sample_y(R, 3, random_state=0)),
    "pre-images": (
        KernelPCA(n_components=3, fit_inverse_transform=True, **COMMON),
        None,
        lambda m, R: m.inverse_transform(m.transform(R)),
    ),
}
# Answers that are on the host: an explanation's numbers, a score, eigenvalues and landmarks.
HOST_QUESTIONS = {
    "explain": (KernelRidge(alpha=0.1, **COMMON), "y", lambda m, R: nystrom.explain(m, R).values),
    "explain classes": (
        KernelLogisticRegression(C=1.0, **COMMON),
        "classes",
        lambda m, R: nystrom.explain(m, R).values,
    ),
    "eigenvalues": (
        Nystroem(**COMMON),
        None,
        lambda m, R: nystrom.kernel_eigh(R, n_components=3, random_state=0, n_landmarks=30)[0],
    ),
    "landmarks": (Nystroem(**COMMON), None, lambda m, R: nystrom.select_landmarks(R, 10, random_state=0).points),
}


@pytest.mark.parametrize("question", {**QUESTIONS, **HOST_QUESTIONS})
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_question_has_the_answer_of_numpy(question, there):
    model, kind, ask = {**QUESTIONS, **HOST_QUESTIONS}[question]
    target, few, rows = TARGETS[kind], X[:60].astype(there.dtype), there(X)
    unfitted = question == "draws before a fit"
    at_home = model if unfitted else sklearn.clone(model).fit(X.astype(there.dtype), target)
    expected = np.asarray(ask(at_home, few), np.float64)
    given = there(target, as_rows=kind == "y")
    fitted = model if unfitted else sklearn.clone(model).fit(rows, given)
    found = ask(fitted, rows[:60, :])
    if question in HOST_QUESTIONS:
        assert isinstance(found, np.ndarray)
    else:
        assert Place.of(found) == Place.of(rows)
        found = fetch(found)
    if there.dtype == np.float32 and question.startswith("draws"):
        # Draws use eigenvectors of nearly equal eigenvalues, which depend on rounding.
        assert found.shape == expected.shape
        assert np.isfinite(found).all()
        return
    # A deviation is the root of a difference.
    digits = 1 / 4 if there.dtype == np.float32 and question in ("deviation", "interval, gp") else 1 / 2
    atol = np.finfo(there.dtype).eps ** digits * np.abs(expected).max()
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=0, atol=atol)


@pytest.mark.parametrize("machine", ["ridge", "ridge classifier", "logistic"])
def test_scores_are_those_of_numpy(machine, there):
    model, kind, _ = MACHINES[machine]
    expected = (
        sklearn.clone(model).fit(X.astype(there.dtype), TARGETS[kind]).score(X.astype(there.dtype), TARGETS[kind])
    )
    rows, target = there(X), there(TARGETS[kind], as_rows=kind == "y")
    found = sklearn.clone(model).fit(rows, target).score(rows, target)
    assert found == pytest.approx(expected, abs=float(np.sqrt(np.finfo(there.dtype).eps)))


def test_weights_count_as_with_numpy(there):
    weight = np.arange(300) % 3 + 0.0
    model = KernelRidge(alpha=0.1, landmarks=X[::10].astype(np.float64), gamma=0.1)
    expected = model.fit(X.astype(there.dtype), y, sample_weight=weight).predict(X[:40].astype(there.dtype))
    rows = there(X)
    found = model.fit(rows, there(y), sample_weight=there(weight)).predict(rows[:40, :])
    assert_same(found, rows, expected, there.dtype)


@pytest.mark.parametrize("norm", ["fro", "trace", "spectral"])
def test_errors_are_those_of_numpy(norm, there):
    model = Nystroem(n_components=5, landmarks="uniform", **COMMON)
    expected = model.fit(X.astype(there.dtype)).approximation_error(X.astype(there.dtype), norm).value
    found = model.fit(there(X)).approximation_error(there(X), norm).value
    assert found == pytest.approx(expected, abs=float(np.sqrt(np.finfo(there.dtype).eps)))


def test_rows_with_nan_are_named(there):
    bad = X.copy()
    bad[17, 2] = np.nan
    with pytest.raises(ValueError, match=r"X contains NaN.*row 17"):
        Nystroem(n_components=5).fit(there(bad))


def test_float32_rows_far_from_the_origin_keep_their_digits(there):
    shifted = X.astype(np.float64) + 1000
    rows = there(shifted)
    exact = fetch(rows).astype(np.float64)
    model = KernelRidge(alpha=0.1, landmarks=exact[::10], gamma=0.05)
    expected = model.fit(exact, y).predict(exact[:40])
    assert np.max(np.abs(fetch(model.fit(rows, there(y)).predict(rows[:40, :])) - expected)) < 2e-3


def test_without_the_dispatch_arrays_are_converted_as_before():
    strict = pytest.importorskip("array_api_strict")
    assert isinstance(Nystroem(n_components=5, random_state=0).fit_transform(strict.asarray(X)), np.ndarray)


def test_a_model_refuses_rows_of_another_place_with_advice(device1):
    model = KernelRidge(**COMMON).fit(put(X, device1).values, device1.send(y))
    with pytest.raises(ValueError, match=r"fitted to arrays of array_api_strict.*move_estimator_to"):
        model.predict(X)
    with pytest.raises(ValueError, match=r"fitted to arrays of NumPy.*move_estimator_to"):
        KernelRidge(**COMMON).fit(X, y).predict(device1.send(X))


def test_a_model_moves_to_the_host_by_scikit_learn_by_pickle_and_by_a_file(device1, tmp_path):
    array_api = pytest.importorskip("sklearn.utils._array_api")
    rows = device1.send(X)
    model = KernelPCA(n_components=2, **COMMON).fit(rows)
    expected = fetch(model.transform(rows))
    moved = array_api.move_estimator_to(model, xp=array_api.np_compat, device="cpu")
    assert np.allclose(moved.transform(X), expected)
    assert np.allclose(fetch(pickle.loads(pickle.dumps(model)).transform(rows)), expected)
    nystrom.save(model, tmp_path / "model.nystrom")
    assert np.allclose(nystrom.load(tmp_path / "model.nystrom").transform(X), expected)


def test_results_named_as_in_scikit_learn_are_where_x_is(device1):
    rows = device1.send(X)
    model = Nystroem(n_components=5, **COMMON).fit(rows)
    for found in (model.components_, model.normalization_, KernelKMeans(3, **COMMON).fit(rows).labels_):
        assert Place.of(found) == device1


def test_nothing_leaves_a_device_by_accident(device1):
    rows = put(X, device1)
    with pytest.raises(TypeError, match="to_host"):
        np.asarray(rows)
    with pytest.raises(TypeError, match=r"no implementation found"):
        np.linalg.svd(rows)


@pytest.mark.parametrize("scale", [1.0, 1e-20, 1e15])
def test_sums_without_float64_are_exact_to_float64(scale):
    strict = pytest.importorskip("array_api_strict")
    place = Place(strict, strict.Device("no_float64"))
    rng = np.random.default_rng(0)
    A = (rng.normal(size=(1000, 7)) * np.exp(rng.normal(size=7)) * scale).astype(np.float32)
    expected = A.astype(np.float64).T @ A.astype(np.float64)
    found = cross(put(A, place), put(A, place))
    # A sum of 1,000 products in float32 is off by 1e-6.
    assert np.max(np.abs(found - expected)) <= 1e-8 * np.max(np.abs(expected))


def test_a_device_array_does_what_numpy_does(there):
    A, B = X.astype(there.dtype), X[::-1].astype(there.dtype)
    a, b = (DeviceArray(there(each), Place.of(there(each))) for each in (A, B))
    tolerance = {"rtol": 10 * np.finfo(there.dtype).eps, "atol": 1e-6 if there.dtype == np.float32 else 1e-14}
    for function in (
        lambda p, q: p + q * 2.0,
        lambda p, q: np.exp(-np.abs(p - q)),
        lambda p, q: np.maximum(p, 0.5) / (1 + q),
        lambda p, q: np.where(p > q, p, 0.0),
        lambda p, q: np.concatenate([p, q], axis=1)[3:9],
        lambda p, q: p[np.array([5, 2])] - q[:, np.array([True, True, False, False, True])][:2, :1],
        lambda p, q: np.einsum("ij,ij->i", p, q),
        lambda p, q: np.clip(p, 0.1, 0.9).sum(axis=0),
        lambda p, q: p.T[1:3, -2:],
        lambda p, q: np.argmax(p, axis=1),
    ):
        np.testing.assert_allclose(to_host(function(a, b)), function(A, B), **tolerance)


@pytest.mark.parametrize("machine", ["ridge", "ridge, cg", "ridge, exact", "logistic", "pca", "kmeans"])
@pytest.mark.parametrize("source", ["array", "file"])
def test_rows_of_the_host_are_computed_on_a_device_block_by_block(machine, source, tmp_path):
    pytest.importorskip("torch")
    model, kind, (method, *_) = MACHINES[machine]
    target, X64 = TARGETS[kind], X.astype(np.float64)
    np.save(tmp_path / "rows.npy", X64)
    rows = X64 if source == "array" else nystrom.open_rows(tmp_path / "rows.npy", block_rows=64)
    expected = getattr(sklearn.clone(model).fit(rows, target), method)(X64)
    there = sklearn.clone(model).set_params(engine="torch:cpu").fit(rows, target)
    found = getattr(there, method)(rows)
    assert type(found) is np.ndarray
    if method == "transform":
        found, expected = inner(found), inner(expected)
    if expected.dtype.kind in "iu":
        assert adjusted_rand_score(found, expected) == 1
    else:
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8 * np.abs(expected).max())


def test_a_stream_is_computed_on_a_device(tmp_path):
    pytest.importorskip("torch")
    table = np.column_stack([X, y])
    np.savetxt(tmp_path / "rows.csv", table, delimiter=",", header="a,b,c,d,e,y", comments="")
    rows = nystrom.open_rows(tmp_path / "rows.csv", target="y")
    model = KernelRidge(alpha=0.1, solver="factor", landmarks="uniform", **COMMON)
    expected = sklearn.clone(model).fit(rows).predict(rows)
    found = sklearn.clone(model).set_params(engine="torch:cpu").fit(rows).predict(rows)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8)


def test_features_computed_on_a_device_are_written_to_a_file(tmp_path):
    pytest.importorskip("torch")
    model = Nystroem(n_components=5, engine="torch:cpu", **COMMON).fit(X)
    written = model.transform(X, out=tmp_path / "features.npy")
    np.testing.assert_allclose(written.take(np.arange(300)), model.transform(X), atol=1e-6)


def test_only_blocks_are_sent(monkeypatch):
    pytest.importorskip("torch")
    sent = []
    send = Place.send
    monkeypatch.setattr(
        Place, "send", lambda self, A, dtype=None: sent.append(np.prod(A.shape)) or send(self, A, dtype)
    )
    rows = nystrom.rows.as_blocks(X.astype(np.float64), block_rows=50)
    KernelRidge(alpha=1.0, landmarks=X[:20], gamma=0.1, engine="torch:cpu").fit(rows, y)
    assert max(sent) <= 50 * 20


def test_engines_that_cannot_be_used_say_why(monkeypatch):
    with pytest.raises(ValueError, match=r"engine must be one of .*'torch:cuda'.*got 'tensorflow'"):
        Nystroem(engine="tensorflow").fit(X)
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(MissingDependencyError, match=r"engine='cupy' needs the package 'cupy'.*pip install cupy"):
        Nystroem(engine="cupy").fit(X)


def test_a_device_that_torch_lacks_and_sparse_rows_are_refused():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match=r"engine='torch:cuda' names a device that torch cannot use.*torch:cpu"):
            Nystroem(engine="torch:cuda").fit(X)
    with pytest.raises(ValueError, match=r"sparse.*X.toarray\(\)"):
        Nystroem(engine="torch:cpu").fit(sp.csr_matrix(X))


@pytest.mark.parametrize("machine", ["Nystroem", "ridge", "logistic", "pca"])
def test_jax_gives_the_answers_of_numpy(machine, monkeypatch):
    jax = pytest.importorskip("jax.numpy")
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    model, kind, (method, *_) = MACHINES[machine]
    target = None if TARGETS[kind] is None else TARGETS[kind].astype(np.float32 if kind == "y" else np.int32)
    expected = getattr(sklearn.clone(model).fit(X, target), method)(X[:60])
    by_engine = getattr(sklearn.clone(model).set_params(engine="jax").fit(X, target), method)(X[:60])
    rows, given = jax.asarray(X), None if target is None else jax.asarray(target)
    with sklearn.config_context(array_api_dispatch=True):
        found = getattr(sklearn.clone(model).fit(rows, given), method)(rows[:60])
    if method == "transform":
        found, by_engine, expected = (inner(each) for each in (found, by_engine, expected))
    assert_same(found, rows, expected, np.float32)
    assert type(by_engine) is np.ndarray
    np.testing.assert_allclose(by_engine, expected, rtol=0, atol=4e-4 * np.abs(expected).max())


def test_an_engine_refuses_arrays_of_another_place(device1):
    pytest.importorskip("torch")
    with pytest.raises(ValueError, match=r"X is an array of array_api_strict.*leave engine='auto'"):
        Nystroem(engine="torch:cpu").fit(device1.send(X))


def peak_bytes(work):
    """Return the most bytes that tensors of torch made in this thread held at a time during ``work``."""
    weakref = pytest.importorskip("weakref")
    dispatch = pytest.importorskip("torch.utils._python_dispatch")
    tree = pytest.importorskip("torch.utils._pytree")
    torch = pytest.importorskip("torch")
    held, most = {}, 0

    class Watch(dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal most
            made = function(*args, **(kwargs or {}))
            for each in tree.tree_leaves(made):
                if isinstance(each, torch.Tensor):
                    storage = each.untyped_storage()
                    if storage._cdata not in held:
                        held[storage._cdata] = storage.nbytes()
                        weakref.finalize(storage, held.pop, storage._cdata, None)
            most = max(most, sum(held.values()))
            return made

    with Watch():
        work()
    return most


WIDE = np.random.default_rng(1).normal(size=(2500, 20))


@pytest.mark.parametrize("kernel", ["gaussian", "laplacian"])
@pytest.mark.parametrize(
    "model",
    [
        Nystroem(n_components=20, n_landmarks=100, random_state=0),
        KernelRidge(alpha=0.1, solver="factor", n_landmarks=100, random_state=0),
        KernelRidge(alpha=0.1, solver="cg", n_landmarks=100, random_state=0),
        KernelRidge(alpha=0.1, solver="exact", tol=1e-2, n_landmarks=100, random_state=0),
        KernelLogisticRegression(C=1.0, n_landmarks=100, random_state=0),
        KernelKMeans(3, n_landmarks=100, random_state=0),
    ],
    ids=["features", "factor", "cg", "exact", "logistic", "clusters"],
)
def test_a_device_holds_at_most_what_is_allowed(model, kernel, monkeypatch):
    torch = pytest.importorskip("torch")
    if kernel == "laplacian" and model.get_params().get("solver") == "exact":
        pytest.skip("takes a minute under the watch")
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    rows, limit = torch.asarray(WIDE), 1_500_000
    target = torch.asarray((WIDE[:, 0] > 0).astype(np.int64))
    model = sklearn.clone(model).set_params(kernel=kernel)

    def run(limit):
        with sklearn.config_context(array_api_dispatch=True):
            fitted = model.set_params(max_device_memory=limit).fit(rows, target)
            getattr(fitted, "predict" if hasattr(fitted, "predict") else "transform")(rows[:2000, :])

    # The result of transform is not part of a pass.
    assert peak_bytes(lambda: run(limit)) <= limit + 2000 * 100 * 8
    assert peak_bytes(lambda: run(None)) > limit


@pytest.mark.parametrize("source", ["array", "file", "stream"])
def test_smaller_blocks_are_sent_in_order_with_their_targets(source, tmp_path):
    pytest.importorskip("torch")
    target = np.sin(WIDE[:, 0])
    rows, given = WIDE, target
    if source == "file":
        np.save(tmp_path / "rows.npy", WIDE)
        rows = nystrom.open_rows(tmp_path / "rows.npy", block_rows=700)
    if source == "stream":
        table = np.column_stack([WIDE, target])
        np.savetxt(tmp_path / "rows.csv", table, delimiter=",", header=",".join("abcdefghijklmnopqrsty"), comments="")
        rows, given = nystrom.open_rows(tmp_path / "rows.csv", target="y", block_rows=700), None
    model = KernelRidge(alpha=0.1, solver="factor", landmarks="uniform", n_landmarks=50, gamma=0.05, random_state=0)
    expected = sklearn.clone(model).fit(rows, given).predict(rows)
    small = sklearn.clone(model).set_params(engine="torch:cpu", max_device_memory="500kB").fit(rows, given)
    checked = small._check_X(rows, reset=False)
    assert checked.block_rows < 700
    assert max(block.X.shape[0] for block in checked.iterate()) == checked.block_rows
    np.testing.assert_allclose(small.predict(rows), expected, rtol=0, atol=1e-8)
    numbered = [to_host(checked.block(i).X) for i in range(checked.n_blocks)] if checked.random_access else []
    for i, block in zip(range(checked.n_blocks), checked.iterate(), strict=True):
        assert (block.index, block.start) == (i, i * checked.block_rows)
        assert not numbered or np.array_equal(numbered[i], to_host(block.X))


def test_a_limit_of_device_memory_that_cannot_be_kept_says_what_can():
    pytest.importorskip("torch")
    with pytest.raises(ValueError, match=r"max_device_memory must be None, a positive number.*got 'much'"):
        KernelRidge(max_device_memory="much").fit(X, y)
    with pytest.raises(MemoryBudgetError, match=r"max_device_memory=10kB is too small.*max_device_memory='\d+kB'"):
        KernelRidge(n_landmarks=50, engine="torch:cpu", max_device_memory="10kB").fit(X, y)
