"""The configurations that ``frozen_bits.py`` fits: machines × kernels × selectors × containers × dtypes."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

import nystrom
from nystrom import best_possible, kernel_eigh, open_rows, select_landmarks

ATTRIBUTES = (
    *("landmarks_", "landmark_indices_", "projection_", "eigenvalues_", "landmark_coef_", "dual_coef_", "intercept_"),
    *("cluster_centers_", "labels_", "degree_coef_", "classes_", "alpha_", "C_", "amplitude_", "metric_", "solver_"),
    "feature_importances_",
)
OUTPUTS = ("predict", "transform", "decision_function", "predict_proba")
REGISTRY = {}


def configuration(name):
    """Register a function that returns arrays by name."""

    def register(function):
        assert name not in REGISTRY, name
        REGISTRY[name] = function
        return function

    return register


def case(name, machine, data, *, y=None, weight=None, extra=(), **parameters):
    """Register the fit of a machine of nystrom, by its name, to one of the data sets below."""

    @configuration(name)
    def run():
        X, numbers, classes, new = data()
        target = {"numbers": numbers, "pair": pair(numbers), "classes": classes, "two": classes == 1}.get(y)
        given = {key: value() if callable(value) else value for key, value in parameters.items()}
        model = getattr(nystrom, machine)(**{"n_jobs": 1, "random_state": 0, **given})
        more = {} if weight is None else {"sample_weight": weight(len(numbers))}
        model.fit(X, target, **more)
        found = collect(model, new)
        for what in extra:
            found.update(what(model, new))
        return found


def collect(model, new):
    """Return what a fit leaves behind, and what it makes of new rows."""
    found = {name: getattr(model, name) for name in ATTRIBUTES if getattr(model, name, None) is not None}
    found["kernel_"] = repr(model.kernel_)
    return found | {f"{name}()": getattr(model, name)(new) for name in OUTPUTS if hasattr(model, name)}


# ---------------------------------------------------------------------------------------------------------------- data


def weights(n):
    return np.random.default_rng(7).integers(1, 4, n).astype(float)


def pair(numbers):
    return np.column_stack([numbers, numbers**2])


@functools.cache
def made(n, p, dtype, seed, kind):
    """Return rows in clusters, numbers, three classes and 200 new rows."""
    rng = np.random.default_rng(seed)
    size = n + 200
    centres = 2 * rng.normal(size=(12, p))
    X = centres[rng.integers(12, size=size)] + rng.normal(size=(size, p))
    if kind == "positive":
        X = np.abs(X)
    elif kind == "sparse":
        X = np.abs(X) * (rng.random(X.shape) < 0.1)
        X[:, 0] += 0.1
    elif kind == "rare":
        X[:40] = 30 + rng.normal(size=(40, p))
    elif kind == "offset":
        X = X + 100
    X = X.astype(dtype)
    W = X.astype(float)
    numbers = np.sin(W[:, 0]) + W[:, 1] * W[:, 2] / 4 + 0.1 * rng.normal(size=size)
    classes = np.digitize(numbers, np.quantile(numbers, [1 / 3, 2 / 3]))
    return X[:n], numbers[:n], classes[:n], X[n:]


def rows(n=1000, p=8, dtype="float64", seed=0, kind="plain"):
    return functools.partial(made, n, p, dtype, seed, kind)


def held(container, source):
    """Return the same data with X in another container."""

    def load():
        X, numbers, classes, new = source()
        return CONTAINERS[container](X, numbers), numbers, classes, new

    return load


def scratch(name):
    return str(Path(scratch.folder) / name)


def in_csr(X, _):
    return csr_matrix(X)


def in_npy(X, _):
    np.save(scratch("rows.npy"), X)
    return open_rows(scratch("rows.npy"))


def in_csv(X, y):
    names = ",".join([f"x{j}" for j in range(X.shape[1])] + ["y"])
    lines = [",".join(repr(float(value)) for value in [*row, number]) for row, number in zip(X, y, strict=True)]
    Path(scratch("rows.csv")).write_text("\n".join([names, *lines]) + "\n")
    return open_rows(scratch("rows.csv"), target="y", dtype=X.dtype)


def in_parquet(X, y):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({f"x{j}": X[:, j] for j in range(X.shape[1])} | {"y": y})
    pq.write_table(table, scratch("rows.parquet"), row_group_size=700)
    return open_rows(scratch("rows.parquet"), target="y", dtype=X.dtype)


def in_hdf5(X, _):
    import h5py

    with h5py.File(scratch("rows.h5"), "w") as file:
        file["rows"] = X
    return open_rows(scratch("rows.h5") + "::rows")


def in_dask(X, _):
    import dask.array as da

    return da.from_array(X, chunks=(400, -1))


def in_blocks(X, y):
    return open_rows(X, target=y, block_rows=256)


def in_columns(X, _):
    return np.asfortranarray(X)


CONTAINERS = {name[3:]: function for name, function in list(globals().items()) if name.startswith("in_")}
WITH_TARGET = ("csv", "parquet", "blocks")

# -------------------------------------------------------------------------------------------------------------- kernels


def similarity(A, B):
    return 1 / (1 + ((A[:, None, :] - B[None, :, :]) ** 2).sum(2))


def kernels():
    from nystrom.kernels import Gaussian, Laplacian, Linear, Matern, Polynomial

    return {
        "sum": 2.0 * Gaussian(0.05) + Linear(),
        "product": Gaussian(0.05) * Polynomial(2, 0.1, 1.0),
        "sum of distances": Matern(nu=2.5, gamma=0.1) + 0.5 * Laplacian(0.1),
        "matern 0.5": Matern(nu=0.5, gamma=0.1),
    }


def objects(name):
    return lambda: kernels()[name]


NAMED = ("gaussian", "laplacian", "matern", "polynomial", "linear", "cosine", "chi2", "additive_chi2")
COMPOSED = ("sum", "product", "sum of distances", "matern 0.5")
METHODS = (
    *("auto", "sketched-kmeans", "kmeans", "uniform", "diagonal", "column-norm", "leverage", "kmeans++"),
    *("rpcholesky", "rpcholesky+lloyd"),
)

# ------------------------------------------------------------------------------------------------------- configurations

for dtype in ("float64", "float32"):
    for kernel in NAMED:
        data = rows(dtype=dtype, kind="positive" if "chi2" in kernel else "plain")
        case(f"nystroem {kernel} {dtype}", "Nystroem", data, kernel=kernel, n_components=20)
    for kernel in COMPOSED:
        data = rows(dtype=dtype)
        case(f"nystroem {kernel} {dtype}", "Nystroem", data, kernel=objects(kernel), n_components=20)
        case(f"ridge {kernel} {dtype}", "KernelRidge", data, y="numbers", kernel=objects(kernel), alpha=0.5)
    for kernel in ("gaussian", "cosine", "laplacian"):
        data = held("csr", rows(dtype=dtype, p=60, kind="sparse"))
        case(f"nystroem csr {kernel} {dtype}", "Nystroem", data, kernel=kernel, n_components=20)
    for container in CONTAINERS:
        target = "file" if container in WITH_TARGET else "numbers"
        data = held(container, rows(dtype=dtype))
        case(f"ridge from {container} {dtype}", "KernelRidge", data, y=target, alpha=0.5, n_landmarks=100)
    for method in METHODS:
        data = rows(n=900, dtype=dtype)
        case(f"nystroem {method} {dtype}", "Nystroem", data, landmarks=method, n_components=15)


def errors(model, new):
    found = {}
    for norm in ("fro", "trace", "spectral"):
        error = model.approximation_error(new, norm=norm)
        found[f"error {norm}"] = [error.value, error.low, error.high]
    return found


case("nystroem standard factor", "Nystroem", rows(), factor="standard", n_components=20, extra=[errors])
case("nystroem every direction", "Nystroem", rows(), n_components=None, n_landmarks=80, extra=[errors])
case("nystroem gamma per column", "Nystroem", rows(), gamma=lambda: [0.01 * (j + 1) for j in range(8)], n_components=20)
case("nystroem row numbers", "Nystroem", rows(), landmarks=lambda: list(range(0, 900, 9)), n_components=20)
case("nystroem offset float32", "Nystroem", rows(dtype="float32", kind="offset"), n_components=20)
case("nystroem tol", "Nystroem", rows(3000), tol=0.05)
case("nystroem tol trace csr", "Nystroem", held("csr", rows(p=60, kind="sparse")), tol=0.2, tol_norm="trace")
case("nystroem tol float32 large", "Nystroem", rows(22_000, 6, "float32"), tol=0.1)
case("nystroem auto size", "Nystroem", rows(3000), n_landmarks="auto", n_components=20)
case("nystroem rare large", "Nystroem", rows(25_000, 5, kind="rare"), n_components=20)
case("nystroem large", "Nystroem", rows(30_000, 30, "float32"), n_components=20)
case("nystroem sketched large", "Nystroem", rows(30_000, 30), landmarks="sketched-kmeans", n_components=20)
case("nystroem uniform large", "Nystroem", rows(30_000, 30), landmarks="uniform", n_components=20)


@configuration("nystroem callable")
def _():
    X, _, _, new = rows(600)()
    model = nystrom.Nystroem(kernel=similarity, landmarks="uniform", n_components=15, n_jobs=1, random_state=0)
    return collect(model.fit(X), new)


@configuration("nystroem transform csr")
def _():
    X, _, _, new = rows(p=60, kind="sparse")()
    model = nystrom.Nystroem(n_components=15, n_jobs=1, random_state=0).fit(X)
    return {"dense": model.transform(new), "csr": model.transform(csr_matrix(new))}


def precomputed(machine, y, **parameters):
    def run():
        X, numbers, classes, new = rows(700)()
        exact = nystrom.kernels.Gaussian(0.05)
        model = getattr(nystrom, machine)(kernel="precomputed", n_jobs=1, random_state=0, **parameters)
        target = {"numbers": numbers, "classes": classes, None: None}[y]
        return collect(model.fit(exact(X, X), target), exact(new, X))

    return run


configuration("nystroem precomputed")(precomputed("Nystroem", None, n_components=20))
configuration("ridge precomputed")(precomputed("KernelRidge", "numbers", alpha=0.5))
configuration("logistic precomputed")(precomputed("KernelLogisticRegression", "classes", C=1.0))
configuration("spectral precomputed")(precomputed("SpectralClustering", None, n_clusters=5, n_init=2))


@configuration("ridge partial fit")
def _():
    X, numbers, _, new = rows()()
    ridge = nystrom.KernelRidge(alpha=0.5, n_landmarks=60, n_jobs=1, random_state=0)
    for start in range(0, 1000, 500):
        ridge.partial_fit(X[start : start + 500], numbers[start : start + 500])
    return collect(ridge, new)


# Ridge regression.
ridge = functools.partial(case, machine="KernelRidge", y="numbers")
for dtype in ("float64", "float32"):
    for solver in ("auto", "factor", "cg", "exact"):
        ridge(f"ridge {solver} {dtype}", data=rows(dtype=dtype), solver=solver, alpha=0.1, n_landmarks=150)
    ridge(f"ridge cg {dtype} many landmarks", data=rows(3000, dtype=dtype), solver="cg", alpha=0.01, n_landmarks=700)
    ridge(f"ridge alpha auto {dtype}", data=rows(dtype=dtype), alpha="auto", n_landmarks=60)
    ridge(f"ridge gamma auto {dtype}", data=rows(dtype=dtype), alpha="auto", gamma="auto", n_landmarks=60)
ridge("ridge solver auto large", data=rows(21_000, dtype="float32"), alpha="auto", n_landmarks=300)
ridge("ridge cg alpha auto", data=rows(), solver="cg", alpha="auto", n_landmarks=200)
ridge("ridge cg csr", data=held("csr", rows(p=60, kind="sparse")), solver="cg", alpha=0.1, n_landmarks=200)
ridge("ridge cg early stopping", data=rows(2500), solver="cg", alpha=1e-6, n_landmarks=300, early_stopping=True)
ridge("ridge exact alpha auto", data=rows(800), solver="exact", alpha="auto", n_landmarks=60)
ridge("ridge gcv", data=rows(), alpha=lambda: [0.01, 0.1, 1.0], selection="gcv", fit_intercept=True)
ridge("ridge loo", data=rows(), alpha=lambda: [0.01, 0.1, 1.0], selection="loo", fit_intercept=True)
ridge("ridge gamma auto alpha given", data=rows(), alpha=1.0, gamma="auto", n_landmarks=60)
ridge("ridge gamma auto cg", data=rows(), alpha=0.1, gamma="auto", solver="cg", n_landmarks=200)
ridge("ridge metric auto", data=rows(), alpha="auto", metric="auto", n_landmarks=60)
ridge("ridge metric diagonal", data=rows(), alpha="auto", metric="diagonal", n_landmarks=60)
ridge("ridge metric diagonal alpha given", data=rows(), alpha=0.5, metric="diagonal")
ridge("ridge metric full", data=rows(dtype="float32"), alpha="auto", metric="full", n_landmarks=60)
ridge("ridge metric array", data=rows(), alpha=0.5, metric=lambda: [1.0, 2.0, 0.5, 1.0, 0.0, 1.0, 1.0, 3.0])
ridge(
    "ridge metric diagonal laplacian", data=rows(), alpha="auto", metric="diagonal", kernel="laplacian", n_landmarks=60
)
ridge("ridge kernel auto", data=rows(), alpha="auto", kernel="auto", n_landmarks=60)
ridge("ridge auto size", data=rows(1200, 4), alpha="auto", n_landmarks="auto")
ridge("ridge auto size large", data=rows(21_000, 4, "float32"), alpha=1.0, n_landmarks="auto")
ridge("ridge metric large", data=rows(21_000, 6, "float32"), alpha="auto", metric="diagonal", n_landmarks=150)
ridge("ridge weighted", data=rows(), alpha=0.5, weight=weights)
ridge("ridge weighted alpha auto", data=rows(), alpha="auto", weight=weights, fit_intercept=True, n_landmarks=60)
ridge("ridge weighted cg", data=rows(), alpha=0.5, weight=weights, solver="cg", n_landmarks=200)
ridge("ridge weighted exact", data=rows(600), alpha=0.5, weight=weights, solver="exact")
ridge("ridge two targets", data=rows(), y="pair", alpha=0.5)
ridge("ridge two targets cg", data=rows(), y="pair", alpha=0.5, solver="cg", n_landmarks=200)
ridge("ridge dual", data=rows(), alpha=0.5, compute_dual=True)
ridge("ridge rank", data=rows(), alpha=0.5, n_components=20)
ridge("ridge rare", data=rows(25_000, 5, kind="rare"), alpha="auto", n_landmarks=60)
ridge("ridge rpcholesky csr", data=held("csr", rows(p=60, kind="sparse")), alpha=0.5, landmarks="rpcholesky")
ridge("ridge gamma auto from npy", data=held("npy", rows()), alpha="auto", gamma="auto", n_landmarks=60)
ridge(
    "ridge metric from parquet", data=held("parquet", rows()), y="file", alpha="auto", metric="diagonal", n_landmarks=60
)
ridge("ridge gamma auto from dask", data=held("dask", rows()), alpha="auto", gamma="auto", n_landmarks=60)

# Classes.
for name, machine, given in (
    ("ridge classifier", "KernelRidgeClassifier", {"alpha": "auto"}),
    ("logistic", "KernelLogisticRegression", {"C": 1.0}),
    ("svc", "KernelSVC", {"C": 1.0}),
):
    classes = functools.partial(case, machine=machine, n_landmarks=60)
    free = "alpha" if "alpha" in given else "C"
    classes(f"{name} three classes", data=rows(), y="classes", **given)
    classes(f"{name} two classes float32", data=rows(dtype="float32"), y="two", **given)
    classes(f"{name} csr", data=held("csr", rows(p=60, kind="sparse")), y="classes", **given)
    classes(f"{name} weighted", data=rows(), y="classes", weight=weights, class_weight="balanced", **given)
    classes(f"{name} {free} auto", data=rows(), y="two", **{free: "auto"})
    classes(f"{name} gamma auto", data=rows(), y="classes", gamma="auto", **{free: "auto"})
    classes(f"{name} metric", data=rows(), y="two", metric="diagonal", **given)
    classes(f"{name} from dask", data=held("dask", rows()), y="classes", **given)
    classes(f"{name} kernel auto", data=rows(), y="two", kernel="auto", **{free: "auto"})
    case(f"{name} auto size", machine, rows(1200, 4), y="two", n_landmarks="auto", **given)
case("ridge classifier cg", "KernelRidgeClassifier", rows(), y="classes", alpha=0.1, solver="cg", n_landmarks=200)
case("logistic large", "KernelLogisticRegression", rows(21_000, 6, "float32"), y="two", C=1.0, n_landmarks=100)
case("svr", "KernelSVR", rows(), y="numbers", C=1.0)
case("svr C auto", "KernelSVR", rows(), y="numbers", C="auto")
case("svr gamma auto float32", "KernelSVR", rows(dtype="float32"), y="numbers", C="auto", gamma="auto", n_landmarks=60)
case("svr weighted epsilon", "KernelSVR", rows(), y="numbers", C=10.0, epsilon=0.3, weight=weights)
case("svr from csv", "KernelSVR", held("csv", rows()), y="file", C=1.0)

# Components and clusters.


def inverse(model, new):
    return {"inverse_transform()": model.inverse_transform(model.transform(new))}


for dtype in ("float64", "float32"):
    data = rows(dtype=dtype)
    case(f"pca {dtype}", "KernelPCA", data, n_components=10)
    case(f"pca inverse {dtype}", "KernelPCA", data, n_components=10, fit_inverse_transform=True, extra=[inverse])
    case(f"kmeans {dtype}", "KernelKMeans", data, n_clusters=6, n_init=2)
    case(f"spectral {dtype}", "SpectralClustering", data, n_clusters=6, n_init=2)
case("pca csr polynomial", "KernelPCA", held("csr", rows(p=60, kind="sparse")), n_components=10, kernel="polynomial")
case("pca from npy", "KernelPCA", held("npy", rows(dtype="float32")), n_components=10)
case("kmeans laplacian", "KernelKMeans", rows(), n_clusters=6, n_init=2, kernel="laplacian")
case("kmeans csr", "KernelKMeans", held("csr", rows(p=60, kind="sparse")), n_clusters=6, n_init=2)
case("kmeans from dask", "KernelKMeans", held("dask", rows()), n_clusters=6, n_init=2)
case("spectral cosine", "SpectralClustering", rows(kind="positive"), n_clusters=6, n_init=2, kernel="cosine")

# Gaussian processes.


def deviation(model, new):
    mean, std = model.predict(new, return_std=True)
    return {"mean": mean, "std": std}


gp = functools.partial(case, machine="GaussianProcessRegressor", y="numbers", extra=[deviation], n_landmarks=60)
gp("gp gamma auto", data=rows(800), gamma="auto")
gp("gp gamma auto float32", data=rows(800, dtype="float32"), gamma="auto")
gp("gp given", data=rows(), gamma="scale", alpha=0.1, amplitude=1.0)
gp("gp matern normalized", data=rows(), kernel="matern", gamma="scale", normalize_y=True)
gp("gp metric", data=rows(), gamma="auto", metric="diagonal")
gp("gp from parquet", data=held("parquet", rows()), y="file", gamma="auto")

# Functions.
for factor in ("optimal", "standard"):
    for dtype in ("float64", "float32"):

        @configuration(f"kernel_eigh {factor} {dtype}")
        def _(factor=factor, dtype=dtype):
            X = rows(dtype=dtype)()[0]
            values, vectors = kernel_eigh(X, n_components=10, factor=factor, n_jobs=1, random_state=0)
            return {"eigenvalues": values, "eigenvectors": vectors}


for method in METHODS:
    for container in ("array", "csr"):

        @configuration(f"select_landmarks {method} {container}")
        def _(method=method, container=container):
            X = rows(n=2000, p=40, dtype="float32", kind="sparse" if container == "csr" else "plain")()[0]
            X = in_csr(X, None) if container == "csr" else X
            found = select_landmarks(X, 30, method=method, n_jobs=1, random_state=0)
            return {"points": found.points} | ({} if found.indices is None else {"indices": found.indices})


for norm in ("fro", "trace"):

    @configuration(f"best_possible {norm}")
    def _(norm=norm):
        error = best_possible(rows(3000)()[0], 10, norm=norm, n_jobs=1, random_state=0)
        return {"interval": [error.value, error.low, error.high]}
