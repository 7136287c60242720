"""What the library makes of the loops: kernels, sketches, clusters and fits, with them and without."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from nystrom import Nystroem, kmeans, sketch
from nystrom.engine import LocalEngine
from nystrom.engine.passes import block_moments
from nystrom.kernels import Gaussian
from nystrom.kernels.pairwise import Exponents, InnerProducts
from nystrom.loops import extension
from nystrom.rows import as_blocks

DTYPES = [np.float32, np.float64]


def assert_same(pair, dtype, factor=100):
    for fast, slow in zip(*pair, strict=True):
        assert fast.dtype == slow.dtype
        scale = np.abs(slow).max(initial=0)
        np.testing.assert_allclose(
            fast, slow, rtol=factor * np.finfo(dtype).eps, atol=factor * np.finfo(dtype).eps * scale
        )


@pytest.mark.parametrize("dtype", DTYPES)
def test_dense_rows(dtype, both, rng):
    X, Z = rng.normal(size=(90, 40)).astype(dtype), rng.normal(size=(12, 40))
    drawn = sketch.SignSketch().fit(40, 10, np.random.default_rng(0))

    def run():
        return (
            InnerProducts(Z, 0.5)(X),
            drawn(X),
            Gaussian(gamma=0.02)(X, Z),
            Exponents(Z, 0.1, sharp=True)(X),
            Exponents(Z, 0.1)(X + dtype(50)),
            kmeans.assign(X, Z),
            block_moments(X).mean,
        )

    assert_same(both(run), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_sparse_rows(dtype, both):
    X = sp.random(45, 200, 0.1, format="csr", random_state=1, dtype=dtype)
    Z = sp.random(21, 200, 0.3, format="csr", random_state=2, dtype=np.float64)

    def run():
        return (
            Gaussian(gamma=0.1)(X, Z),
            Gaussian(gamma=0.1)(X, Z.toarray()),
            InnerProducts(Z)(X),
            kmeans.assign(X, Z),
        )

    assert_same(both(run), dtype)
    # Eigenvectors differ by rounding over the gaps between eigenvalues; they are taken in float64.
    directions = both(lambda: [np.abs(sketch.PCASketch().fit(200, 4, np.random.default_rng(0), sample=X).matrix)])
    assert_same(directions, np.float64, factor=1e5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_clusters(dtype, both, rng):
    X = (rng.normal(size=(500, 7)) + 100).astype(dtype)

    def run():
        return kmeans.kmeans(as_blocks(X), 12, engine=LocalEngine(), rng=np.random.default_rng(0))

    fast, slow = both(run)
    assert fast.inertia == pytest.approx(slow.inertia, rel=0.05)
    # The rows minus the shift are rounded to their dtype before they are summed in float64.
    exact = np.sum((X.astype(np.float64) - fast.centers[fast.labels].astype(np.float64)) ** 2)
    assert fast.inertia == pytest.approx(exact, rel=1e-4 if dtype == np.float32 else 1e-11)


def test_a_fit_explains_as_much_without_them(both, rng):
    X = rng.normal(size=(3000, 5)).astype(np.float32)
    fast, slow = both(lambda: Nystroem(n_components=20, n_landmarks=40, random_state=0).fit(X).certificate_.trace.value)
    assert fast == pytest.approx(slow, rel=0.05)


def test_seeding_leaves_the_generator_alike(both):
    def after():
        draws = np.random.default_rng(0)
        kmeans.seed(np.array([[0.0], [0.0], [7.0]]), 5, "kmeans++", draws)
        return draws.random()

    fast, slow = both(after)
    assert fast == slow


@pytest.mark.parametrize("dtype", DTYPES)
def test_seeds_end_where_rows_repeat(dtype, both, rng):
    A = np.repeat(rng.normal(size=(4, 6)), 50, axis=0).astype(dtype)
    found = kmeans.seed(A, 10, "greedy", rng)
    assert len(np.unique(found, axis=0)) == len(found) == 4


def test_no_candidates_are_refused(rng):
    with pytest.raises(ValueError, match="most_candidates must be at least 1"):
        kmeans.seed(np.zeros((5, 1)), 3, "greedy", rng, most_candidates=0)


def test_what_is_prepared_works_where_the_loops_are_not(both, use, rng):
    X, sparse = rng.normal(size=(30, 5)), sp.random(30, 5, 0.5, format="csr", random_state=0)
    ready = [
        (kmeans.Nearest(X[:4], np.zeros(5), X.dtype), X),
        (kmeans.Nearest(sparse[:4], None, X.dtype), sparse),
        (Gaussian(0.3).prepare(X[:4]), X),
        (Gaussian(0.3).prepare(sparse[:4]), sparse),
        (InnerProducts(sparse[:4]), sparse),
    ]
    loops = extension.native
    for function, rows in ready:
        use(loops)
        fast = function(rows)
        sent = pickle.loads(pickle.dumps(function))
        use(None)
        np.testing.assert_allclose(sent(rows), fast, rtol=1e-12)


def other_process(value):
    code = "from nystrom import loops; print(loops.instruction_set())"
    environment = os.environ | {"NYSTROM_COMPILED": value}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


def test_the_environment_turns_them_off():
    assert other_process("0").stdout.strip() == "None"


def test_the_environment_names_an_instruction_set(both):
    name = extension.native.name
    assert other_process(name).stdout.strip() == name


def test_an_instruction_set_that_is_not_there_is_named(both):
    done = other_process("avx9000")
    assert done.returncode != 0
    assert "NYSTROM_COMPILED must be 0 (NumPy only), 1" in done.stderr
    assert "got 'avx9000'" in done.stderr
