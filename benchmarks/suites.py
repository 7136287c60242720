"""The contests, one function per question; each yields its results one by one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from typing import Any
from unittest.mock import patch

import numpy as np
from sklearn.cluster import KMeans as SklearnKMeans
from sklearn.decomposition import KernelPCA as SklearnKernelPCA
from sklearn.kernel_approximation import Nystroem as SklearnNystroem
from sklearn.kernel_ridge import KernelRidge as SklearnKernelRidge
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

from benchmarks import inputs, landmark_cg, limits, peers
from benchmarks.busy import busy
from benchmarks.measure import Result, contest
from nystrom import KernelPCA, KernelRidge, Nystroem, select_landmarks
from nystrom.engine import LocalEngine
from nystrom.engine.passes import Passes
from nystrom.engine.threads import resolve_n_jobs
from nystrom.kmeans import kmeans
from nystrom.loops import clusters, products, sparse
from nystrom.rows import as_blocks
from nystrom.sketch import SignSketch
from nystrom.types import issparse

SIZES = ((30, 10), (100, 50), (500, 250))


def _ours(X: Any, m: int, r: int, gamma: float, landmarks: str = "auto") -> Any:
    return lambda: Nystroem(
        gamma=gamma, n_components=r, n_landmarks=m, landmarks=landmarks, random_state=0
    ).fit_transform(X)


def _features(
    name: str, X: Any, sizes: tuple[tuple[int, int], ...], repeat: int, *, slow_peers: bool
) -> Iterator[Result]:
    gamma = 1 / inputs.spread(X)
    judge = inputs.FrobeniusJudge(X, gamma)
    for m, r in sizes:
        contestants = {
            "nystrom auto": _ours(X, m, r, gamma),
            "scikit-learn uniform": lambda m=m: peers.sklearn_uniform(X, m, gamma),
            "nystrom sketched-kmeans": _ours(X, m, r, gamma, "sketched-kmeans"),
        }
        if slow_peers and m <= 100:
            contestants["scikit-learn KMeans + Nystroem"] = lambda m=m: peers.clustered(X, m, gamma)
            contestants["nystrom rpcholesky"] = _ours(X, m, r, gamma, "rpcholesky")
            contestants["pivoted Cholesky, pseudocode"] = lambda m=m: peers.pivoted_cholesky(X, m, gamma)
        yield from contest(f"{name}, m={m}, r={r}", contestants, repeat=repeat, judge=judge)


def features(repeat: int) -> Iterator[Result]:
    """fit_transform on mnist's shape: the whole fit against scikit-learn's uniform Nystroem and others."""
    name, X = inputs.mnist()
    yield from _features(name, X, SIZES, repeat, slow_peers=True)
    for m, r in SIZES:
        case = f"{name}, m={m}, r={r}"
        yield Result(case, "limit: X @ Z.T alone", limits.kernel_product(X, m), 0.0, None)
        yield _flop_bound(case, X, m, r)


def _flop_bound(case: str, X: Any, m: int, r: int) -> Result:
    """Return the seconds of a fit of dense rows and its features at the rate of a large matrix product."""
    rate = limits.gemm_rate(X.dtype.type)
    seconds = limits.fit_flops(*X.shape, m, r) / rate / 1e9
    return Result(case, limits.FLOP_BOUND, seconds, 0.0, None, f"{rate:.0f} GF/s {X.dtype.name}")


def _against_uniform(case: str, X: Any, m: int, repeat: int) -> list[Result]:
    """Fit and features of rank m/2 against scikit-learn's uniform landmarks of rank m, with a new seed in each round.

    For dense rows, the flop bound is included.
    """
    gamma = 1 / inputs.spread(X)
    seeds = {"ours": count(), "theirs": count()}

    def ours() -> Any:
        model = Nystroem(gamma=gamma, n_components=m // 2, n_landmarks=m, random_state=next(seeds["ours"]))
        return model.fit_transform(X)

    results = contest(
        case,
        {
            "nystrom auto": ours,
            "scikit-learn uniform": lambda: peers.sklearn_uniform(X, m, gamma, next(seeds["theirs"])),
        },
        repeat=repeat,
        judge=inputs.FrobeniusJudge(X, gamma),
        judge_each=True,
    )
    return results if issparse(X) else [*results, _flop_bound(case, X, m, m // 2)]


def shapes(repeat: int) -> Iterator[Result]:
    """Fit and features against scikit-learn's uniform landmarks: sparse, small, many landmarks, float64."""
    random = inputs.random_sparse(50_000, 20_000, 80)
    yield from _against_uniform("sparse 50,000 × 20,000, 80 entries per row, m=100", random, 100, repeat)
    name, X = inputs.text()
    yield from _against_uniform(f"{name}, sparse {X.shape[0]:,} × {X.shape[1]:,}, m=100", X, 100, repeat)
    yield from _against_uniform("2,000 × 50 float64, m=200", inputs.wide_floats(2000, 50), 200, 3 * repeat)
    rows = inputs.image_like(200_000, 50)
    yield from _against_uniform("100,000 × 50 float32, m=2000", rows[:100_000], 2000, repeat)
    yield from _against_uniform("200,000 × 50 float32, m=1000", rows, 1000, repeat)
    yield from _against_uniform("100,000 × 50 float64, m=500", inputs.wide_floats(100_000, 50), 500, repeat)


def equal_error(repeat: int) -> Iterator[Result]:
    """Time at equal error: a few of our landmarks against increasing numbers of scikit-learn's uniform ones."""
    name, text = inputs.text()
    for case, X, ours, theirs in (
        ("sparse 50,000 × 20,000", inputs.random_sparse(50_000, 20_000, 80), (100, 50), (100, 200, 400)),
        (name, text, (100, 50), (100, 200, 400)),
        ("2,000 × 50 float64", inputs.wide_floats(2000, 50), (200, 150), (200, 300, 400)),
        ("100,000 × 50 float64", inputs.wide_floats(100_000, 50), (500,), (500, 750, 1000)),
        ("100,000 × 50 float32, 1,000 landmarks", inputs.image_like(100_000, 50), (1000,), (1000, 1400)),
        ("100,000 × 50 float32, 2,000 landmarks", inputs.image_like(100_000, 50), (2000,), (2000, 2600)),
    ):
        gamma = 1 / inputs.spread(X)
        contestants: dict[str, Any] = {
            f"nystrom auto, {m} landmarks, rank {m // 2}": _ours(X, m, m // 2, gamma) for m in ours
        }
        contestants |= {
            f"scikit-learn uniform, {m} landmarks": lambda m=m, X=X, gamma=gamma: peers.sklearn_uniform(X, m, gamma)
            for m in theirs
        }
        yield from contest(case, contestants, repeat=repeat, judge=inputs.FrobeniusJudge(X, gamma))


def large(repeat: int) -> Iterator[Result]:
    """The same contest including the paper's landmarks, on wide rows and on a million rows."""
    for name, X, m in (
        ("60,000 × 2,000 (generated)", inputs.image_like(60_000, 2000), 100),
        ("1,000,000 × 50 (generated)", inputs.image_like(1_000_000, 50), 200),
    ):
        yield from _features(name, X, ((m, m // 2),), repeat, slow_peers=False)


def landmarks(repeat: int) -> Iterator[Result]:
    """Choosing 100 landmarks on mnist's shape, judged by the best rank-20 features they allow."""
    name, X = inputs.mnist()
    gamma = 1 / inputs.spread(X)
    judge = inputs.FrobeniusJudge(X, gamma)
    contestants: dict[str, Any] = {
        "nystrom auto": lambda: select_landmarks(X, 100, random_state=0).points,
        "nystrom sketched-kmeans": lambda: select_landmarks(X, 100, method="sketched-kmeans", random_state=0).points,
        "nystrom kmeans": lambda: select_landmarks(X, 100, method="kmeans", random_state=0).points,
        "scikit-learn KMeans": lambda: peers.sklearn_kmeans(X, 100),
    }
    faiss = peers.faiss_kmeans()
    if faiss is not None:
        contestants["faiss k-means"] = lambda: faiss(X, 100)
    yield from contest(
        f"{name}, 100 landmarks", contestants, repeat=repeat, judge=lambda Z: judge(peers.features_of(X, Z, 20, gamma))
    )


def pivots(repeat: int) -> Iterator[Result]:
    """Randomly pivoted Cholesky: blocks of proposals with rejection, against one pivot at a time."""
    X = inputs.wide_floats(20_000, 20)
    for m in (100, 1000, 5000):
        contestants: dict[str, Any] = {
            "nystrom rpcholesky": lambda m=m: (
                select_landmarks(X, m, method="rpcholesky", gamma=0.05, random_state=0).points
            ),
            "one pivot at a time": lambda m=m: peers.pivoted_cholesky(X, m, 0.05),
        }
        yield from contest(f"20,000 × 20 float64, m={m}", contestants, repeat=repeat)


def clustering(repeat: int) -> Iterator[Result]:
    """K-means on an n × 10 sketch, and on the same number of clustered rows; the error is the inertia."""
    name, X = inputs.mnist()
    sketch = np.ascontiguousarray(SignSketch().fit(X.shape[1], 10, np.random.default_rng(0))(X))
    for m in (100, 1000):
        yield from _clustering(f"{name} sketch n × 10, {m} clusters", sketch, m, repeat)
        rows = inputs.separate_clusters(len(X), 10, m)
        yield from _clustering(f"rows in {m} clusters, n × 10, {m} clusters", rows, m, repeat)


def _clustering(name: str, rows: np.ndarray, m: int, repeat: int) -> Iterator[Result]:
    def inertia(centers: np.ndarray) -> float:
        centers = centers.astype(np.float64)
        products = rows.astype(np.float64) @ centers.T
        squares = np.einsum("ij,ij->i", centers, centers)
        return float(np.sum(np.einsum("ij,ij->i", rows, rows, dtype=np.float64) + (squares - 2 * products).min(axis=1)))

    def ours(n_iter: int) -> np.ndarray:
        rng = np.random.default_rng(0)
        return kmeans(as_blocks(rows), m, engine=LocalEngine(), rng=rng, n_iter=n_iter, want_labels=False).centers

    faiss = peers.faiss_kmeans()
    contestants: dict[str, Any] = {
        "nystrom k-means": lambda: ours(10),
        "scikit-learn KMeans": lambda: (
            SklearnKMeans(m, max_iter=10, n_init=1, random_state=0).fit(rows).cluster_centers_
        ),
    }
    if faiss is not None:
        # The number of steps after which ours reaches the inertia of faiss after ten.
        reached = inertia(faiss(rows, m))
        enough = next((k for k in range(1, 10) if inertia(ours(k)) <= reached), 10)
        equal = {f"nystrom k-means, steps: {enough}": lambda: ours(enough)}
        contestants = equal | {"faiss k-means": lambda: faiss(rows, m)} | contestants
    yield from contest(name, contestants, repeat=repeat, judge=inertia)


def sketching(repeat: int) -> Iterator[Result]:
    """Sketching a dense matrix to 10 columns against reading it once."""
    name, X = inputs.mnist()
    sketch = SignSketch().fit(X.shape[1], 10, np.random.default_rng(0))
    passes = Passes(as_blocks(X), LocalEngine())
    passes.moments  # noqa: B018 - known already, so that the pass does nothing but sketch
    with limits.reader(X, resolve_n_jobs(None)) as read, limits.reader(X, 1) as read_alone:
        yield from contest(
            f"{name} ({X.nbytes / 1e6:.0f} MB), sketch to 10 columns",
            {
                "nystrom sketch": lambda: passes.map_rows(lambda block: sketch(block.X), 10, X.dtype, label="sketch"),
                "limit: read X once, one thread": read_alone,
                "limit: read X once, all threads": read,
            },
            repeat=4 * repeat,
            # No pause: runs take milliseconds, no BLAS threads are spinning, and idle cores would have to wake up.
            pause=0.0,
        )


def machines(repeat: int) -> Iterator[Result]:
    """Kernel ridge on 100,000 × 20 in float64 with 1,000 landmarks; exact ridge and PCA where n allows."""
    X, y = inputs.smooth(120_000)
    train, test = slice(0, 100_000), slice(100_000, None)
    gamma = 0.02

    def rmse(model: Any) -> float:
        return float(np.sqrt(np.mean((model.predict(X[test]) - y[test]) ** 2)))

    yield from contest(
        "kernel ridge, 100,000 × 20 float64, m=1000",
        {
            "nystrom KernelRidge": lambda: KernelRidge(alpha=0.1, gamma=gamma, n_landmarks=1000, random_state=0).fit(
                X[train], y[train]
            ),
            "scikit-learn Nystroem + Ridge": lambda: make_pipeline(
                SklearnNystroem(gamma=gamma, n_components=1000, random_state=0), Ridge(alpha=0.1)
            ).fit(X[train], y[train]),
        },
        repeat=repeat,
        judge=rmse,
    )
    few = slice(0, 8000)
    yield from contest(
        "kernel ridge, 8,000 × 20 float64",
        {
            "nystrom KernelRidge, m=1000": lambda: KernelRidge(
                alpha=0.1, gamma=gamma, n_landmarks=1000, random_state=0
            ).fit(X[few], y[few]),
            "scikit-learn KernelRidge": lambda: SklearnKernelRidge(alpha=0.1, kernel="rbf", gamma=gamma).fit(
                X[few], y[few]
            ),
        },
        repeat=repeat,
        judge=rmse,
    )
    yield from contest(
        "kernel PCA, 8,000 × 20 float64, 20 components",
        {
            "nystrom KernelPCA": lambda: KernelPCA(n_components=20, gamma=gamma, random_state=0).fit(X[few]),
            "scikit-learn KernelPCA": lambda: SklearnKernelPCA(
                n_components=20, kernel="rbf", gamma=gamma, eigen_solver="randomized", random_state=0
            ).fit(X[few]),
        },
        repeat=repeat,
    )


def exact(repeat: int) -> Iterator[Result]:
    """Exact kernel ridge on 20,000 × 5 rows within 1 GB, against a Cholesky factor of the kernel matrix."""
    X, y, X_test, y_test = landmark_cg.rows(20_000, 5, "float64")
    gamma, alpha = landmark_cg.GAMMA, 0.1

    def ours() -> Any:
        model = KernelRidge(
            alpha, gamma=gamma, solver="exact", n_landmarks=1000, tol=1e-8, max_memory="1GB", random_state=0
        )
        return model.fit(X, y).predict

    yield from contest(
        "20,000 × 5 float64, residual 1e-8",
        {
            "nystrom KernelRidge, solver='exact', max_memory='1GB'": ours,
            "Cholesky factor of K": lambda: peers.cholesky_ridge(X, y, gamma, alpha),
        },
        repeat=repeat,
        judge=lambda predict: float(np.sqrt(np.mean((predict(X_test) - y_test) ** 2))),
    )


def loops(repeat: int) -> Iterator[Result]:
    """Whole fits with the compiled loops, without them, and with NumPy in place of one loop at a time."""
    _, mnist = inputs.mnist()
    text_name, text = inputs.text()
    many = inputs.image_like(1_000_000, 50)
    X, y = inputs.smooth(100_000)
    fits: dict[str, Any] = {
        f"mnist, m={m}, r={r}, {landmarks}": _ours(mnist, m, r, 1 / inputs.spread(mnist), landmarks)
        for m, r in SIZES
        for landmarks in ("auto", "sketched-kmeans")
    }
    fits[f"{text_name}, m=100, r=50"] = _ours(text, 100, 50, 1 / inputs.spread(text))
    fits["1,000,000 × 50, m=200, r=100"] = _ours(many, 200, 100, 1 / inputs.spread(many))
    fits["kernel ridge, 100,000 × 20 float64, m=1000"] = lambda: KernelRidge(
        alpha=0.1, gamma=0.02, n_landmarks=1000, random_state=0
    ).fit(X, y)
    wide = np.random.default_rng(0).normal(size=(50_000, 100))
    fits["kernel ridge, Laplacian kernel, 50,000 × 100 float64, m=500"] = lambda: KernelRidge(
        alpha=0.1, kernel="laplacian", gamma=0.01, n_landmarks=500, random_state=0
    ).fit(wide, wide[:, 0])
    for case, fit in fits.items():
        contestants = {"compiled": fit, "NumPy": _without(fit, *LOOPS.values())}
        contestants |= {f"NumPy for {name}": _without(fit, module) for name, module in LOOPS.items()}
        yield from contest(case, contestants, repeat=repeat)


LOOPS = {"products": products, "k-means": clusters, "sparse products": sparse}


def _without(run: Any, *modules: Any) -> Any:
    """Return ``run`` with NumPy in place of the loops of some modules."""

    def pure() -> Any:
        with ExitStack() as stack:
            for module in modules:
                stack.enter_context(patch.object(module, "native", None))
            return run()

    return pure


SUITES = {
    "features": features,
    "landmarks": landmarks,
    "pivots": pivots,
    "clustering": clustering,
    "sketching": sketching,
    "machines": machines,
    "exact": exact,
    "shapes": shapes,
    "equal_error": equal_error,
    "large": large,
    "loops": loops,
    "busy": busy,
}
