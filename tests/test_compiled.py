"""The compiled loops say what NumPy says, in every corner; and without them everything still works."""

from __future__ import annotations

import importlib.util
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from nystrom import Nystroem, compiled, sketch
from nystrom.engine import LocalEngine, survey
from nystrom.kernels import Gaussian
from nystrom.kernels.pairwise import Exponents, InnerProducts
from nystrom.kmeans import assignment as clusters
from nystrom.kmeans import lloyd as kmeans
from nystrom.kmeans import seeding
from nystrom.rows import as_blocks

needs_library = pytest.mark.skipif(not compiled.available(), reason="the compiled loops are not built or not wanted")
DTYPES = [np.float32, np.float64]
ROOT = Path(__file__).parent.parent


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def both(run):
    """Return what ``run`` gives with the compiled loops, and without."""
    fast = run()
    with compiled.turned_off():
        assert not compiled.available()
        return fast, run()


@needs_library
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("n", "p", "m"),
    [(1, 1, 1), (5, 3, 2), (6, 8, 16), (7, 9, 17), (97, 20, 8), (200, 33, 31), (13, 1025, 5), (9, 3000, 40)],
)
class TestProduct:
    def test_matches_numpy(self, n, p, m, dtype, rng):
        X, B = rng.normal(size=(n, p)).astype(dtype), rng.normal(size=(p, m)).astype(dtype)
        exact = X.astype(np.float64) @ B.astype(np.float64)
        scale = np.abs(X.astype(np.float64)) @ np.abs(B.astype(np.float64))
        found = compiled.product(X, compiled.in_panels(B))
        assert found.dtype == dtype
        assert np.all(np.abs(found - exact) <= 2 * np.sqrt(p) * np.finfo(dtype).eps * scale)

    def test_a_row_has_the_same_bits_anywhere(self, n, p, m, dtype, rng):
        X, B = rng.normal(size=(n, p)).astype(dtype), compiled.in_panels(rng.normal(size=(p, m)).astype(dtype))
        whole = compiled.product(X, B)
        apart = np.concatenate([compiled.product(X[i : i + 1], B) for i in range(n)])
        assert np.array_equal(whole, apart)

    def test_gaussian_matches_numpy(self, n, p, m, dtype, rng):
        X, Z = rng.normal(size=(n, p)).astype(dtype), rng.normal(size=(m, p))
        fast, slow = both(lambda: Gaussian(gamma=0.5 / p)(X, Z))
        assert fast.dtype == slow.dtype == dtype
        np.testing.assert_allclose(fast, slow, rtol=200 * np.finfo(dtype).eps)


@needs_library
class TestExponential:
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_is_right_to_two_units_in_the_last_place(self, dtype):
        x = -np.concatenate(
            [np.linspace(0, 1, 4001), np.logspace(-8, np.log10(600 if dtype == np.float64 else 80), 4001)]
        )
        x = x.astype(dtype)
        found = self.exponential(x)
        exact = np.exp(x.astype(np.longdouble))
        assert np.max(np.abs(found - exact) / np.spacing(exact.astype(dtype))) < 2

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_the_ends(self, dtype):
        found = self.exponential(np.array([0.0, -0.0, -1e4, -1e15, 3.0, np.nan], dtype))
        np.testing.assert_array_equal(found, np.array([1, 1, 0, 0, 1, np.nan], dtype))

    def exponential(self, x):
        """The loops' exponential of min(x, 0): the product of x with 1, less norms of 0."""
        loops = compiled.Exponents.prepare(np.ones((1, 1), x.dtype), np.zeros(1, x.dtype), 0.0)
        out = np.empty((x.size, 1), x.dtype)
        with np.errstate(invalid="ignore"):
            loops(x[:, None], exp=True, out=out)
        return out.ravel()


@needs_library
@pytest.mark.parametrize("dtype", DTYPES)
class TestLayouts:
    """Rows that do not lie one after the other, are not aligned, or must not be written."""

    def rows(self, rng, dtype):
        X = rng.normal(size=(40, 30)).astype(dtype)
        yield X[::2]
        yield X[:, ::2]
        yield X[::-1]
        yield np.asfortranarray(X)
        yield X[3:17, 4:9]
        raw = np.zeros(X.nbytes + 1, np.uint8)
        odd = raw[1:].view(dtype).reshape(X.shape)
        odd[:] = X
        yield odd
        fixed = X.copy()
        fixed.flags.writeable = False
        yield fixed
        yield X[:0]

    def test_all_give_the_same(self, rng, dtype):
        for X in self.rows(rng, dtype):
            B = rng.normal(size=(X.shape[1], 11)).astype(dtype)
            np.testing.assert_allclose(compiled.product(X, compiled.in_panels(B)), X @ B, atol=1e-4)
            total, squares = compiled.moments(X)
            np.testing.assert_allclose(total, X.sum(axis=0, dtype=np.float64), atol=1e-4)
            assert squares == pytest.approx(float(np.sum(X.astype(np.float64) ** 2)), rel=1e-5)
            labels = rng.integers(0, 3, len(X))
            sums, counts, _ = compiled.cluster_sums(labels, X, 3)
            assert np.array_equal(counts, np.bincount(labels, minlength=3))
            np.testing.assert_allclose(sums, np.stack([X[labels == j].sum(axis=0) for j in range(3)]), atol=1e-4)


@needs_library
@pytest.mark.parametrize("dtype", DTYPES)
class TestClusters:
    @pytest.mark.parametrize(("n", "p", "m"), [(1, 1, 1), (11, 3, 5), (100, 10, 16), (301, 10, 17), (50, 200, 40)])
    def test_nearest(self, n, p, m, dtype, rng):
        # Whole numbers: scores are exact, so equal ones are equal on both sides.
        X = rng.integers(-9, 9, size=(n, p)).astype(dtype)
        centers = rng.integers(-9, 9, size=(m, p)).astype(np.float64)
        shift = rng.integers(-3, 3, size=p).astype(np.float64)
        fast, slow = both(lambda: clusters.Nearest(centers - shift, shift, np.dtype(dtype))(X))
        assert fast.dtype == slow.dtype == np.int32
        assert np.array_equal(fast, slow)

    def test_the_first_of_equal_centres(self, dtype):
        X, centers = np.zeros((7, 2), dtype), np.ones((40, 2))
        assert np.all(clusters.Nearest(centers, np.zeros(2), np.dtype(dtype))(X) == 0)

    @pytest.mark.parametrize("init", ["greedy", "kmeans++"])
    @pytest.mark.parametrize(("n", "p", "m"), [(1, 1, 1), (129, 3, 9), (1000, 10, 60)])
    def test_seeds(self, n, p, m, init, dtype, rng):
        A = rng.integers(-50, 50, size=(n, p)).astype(dtype)
        fast, slow = both(lambda: seeding.seed(A, m, init, np.random.default_rng(3)))
        assert np.array_equal(fast, slow)

    def test_seeds_end_where_rows_repeat(self, dtype, rng):
        A = np.repeat(rng.normal(size=(4, 6)), 50, axis=0).astype(dtype)
        found = seeding.seed(A, 10, "greedy", rng)
        assert len(np.unique(found, axis=0)) == len(found) == 4

    def test_lloyd_step(self, dtype, rng):
        X = (rng.normal(size=(500, 7)) + 100).astype(dtype)

        def run():
            return kmeans.kmeans(as_blocks(X), 12, engine=LocalEngine(), rng=np.random.default_rng(0))

        fast, slow = both(run)
        assert fast.inertia == pytest.approx(slow.inertia, rel=0.05)
        exact = np.sum((X.astype(np.float64) - fast.centers[fast.labels].astype(np.float64)) ** 2)
        assert fast.inertia == pytest.approx(exact, rel=1e-4)


@needs_library
@pytest.mark.parametrize("dtype", DTYPES)
class TestSparse:
    def matrices(self, rng, dtype, n=45, p=200, m=21):
        X = sp.random(n, p, 0.1, format="csr", random_state=1, dtype=dtype)
        Z = sp.random(m, p, 0.3, format="csr", random_state=2, dtype=np.float64)
        X.data[X.indptr[3] : X.indptr[4]] = 0
        X.eliminate_zeros()
        return X, Z

    @pytest.mark.parametrize("m", [1, 8, 9, 16, 17, 50])
    def test_product(self, m, dtype, rng):
        X, Z = self.matrices(rng, dtype, m=m)
        exact = (X.astype(np.float64) @ Z.T).toarray()
        for other in (Z, Z.toarray()):
            found = compiled.sparse_product(X, other)
            assert found.dtype == dtype
            np.testing.assert_allclose(found, exact, rtol=1e-5 if dtype == np.float32 else 1e-13, atol=1e-6)

    def test_wide_indices_repeated_entries_and_no_rows(self, dtype, rng):
        X, Z = self.matrices(rng, dtype)
        wide = sp.csr_matrix((X.data, X.indices.astype(np.int64), X.indptr.astype(np.int64)), shape=X.shape)
        wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
        assert np.array_equal(compiled.sparse_product(wide, Z), compiled.sparse_product(X, Z))
        twice = sp.csr_matrix((np.ones(2, dtype), [4, 4], [0, 2]), shape=(1, 200))
        once = sp.csr_matrix((np.array([2], dtype), [4], [0, 1]), shape=(1, 200))
        np.testing.assert_array_equal(compiled.sparse_product(X, twice), compiled.sparse_product(X, once))
        assert compiled.sparse_product(X[:0], Z).shape == (0, 21)

    def test_very_many_columns(self, dtype, rng, monkeypatch):
        X, Z = self.matrices(rng, dtype)
        Z.data[Z.indices % 3 == 0] = 0
        Z.eliminate_zeros()
        exact = compiled.sparse_product(X, Z)
        monkeypatch.setattr(compiled, "_PANEL_ROWS", 190)
        loops = compiled.SparseExponents.prepare(Z, np.dtype(dtype))
        assert loops.places is not None
        np.testing.assert_array_equal(loops(X), exact)
        monkeypatch.setattr(compiled, "_PANEL_ROWS", 100)
        assert compiled.sparse_product(X, Z) is None
        monkeypatch.setattr(compiled, "_PANEL_BYTES", 100)
        assert compiled.sparse_product(X, Z.toarray()) is None
        np.testing.assert_allclose(InnerProducts(Z)(X), exact, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(clusters.assign(X, Z).shape, 45)

    def test_kernels_centres_and_directions(self, dtype, rng):
        X, Z = self.matrices(rng, dtype)

        def run():
            return (
                Gaussian(gamma=0.1)(X, Z),
                Gaussian(gamma=0.1)(X, Z.toarray()),
                InnerProducts(Z)(X),
                clusters.assign(X, Z),
                np.abs(sketch.PCASketch().fit(200, 4, np.random.default_rng(0), sample=X).matrix),
            )

        for fast, slow in zip(*both(run), strict=True):
            assert fast.dtype == slow.dtype
            np.testing.assert_allclose(fast, slow, rtol=1e-4, atol=1e-5)


@needs_library
class TestWhole:
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_moments(self, dtype, rng):
        X = (rng.normal(size=(333, 21)) * [10.0**k for k in np.linspace(-3, 3, 21)]).astype(dtype)
        fast, slow = both(lambda: survey.block_moments(X))
        np.testing.assert_allclose(fast.mean, slow.mean, rtol=1e-4, atol=1e-6)
        assert fast.scatter == pytest.approx(slow.scatter, rel=1e-5)

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_inner_products_and_sketches(self, dtype, rng):
        X, Z = rng.normal(size=(90, 40)).astype(dtype), rng.normal(size=(12, 40))
        drawn = sketch.SignSketch().fit(40, 10, np.random.default_rng(0))
        fast, slow = both(lambda: (InnerProducts(Z, 0.5)(X), drawn(X), Exponents(Z, 0.1, sharp=True)(X)))
        for a, b in zip(fast, slow, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)

    def test_a_fit_explains_as_much_without_them(self, rng):
        X = rng.normal(size=(3000, 5)).astype(np.float32)

        def error():
            return Nystroem(n_components=20, n_landmarks=40, random_state=0).fit(X).certificate_.trace.value

        fast, slow = both(error)
        assert fast == pytest.approx(slow, rel=0.05)


@needs_library
class TestWrongInput:
    """What NumPy would refuse is refused before a loop reads memory that is not the matrix's."""

    @pytest.mark.parametrize("labels", [[0, -1], [0, 2], [0, 2**32], [0], [[0, 1]]])
    def test_labels(self, labels):
        with pytest.raises(ValueError, match="labels must be one number from 0 to 1"):
            clusters.cluster_sums(np.array(labels), np.ones((2, 3)), 2)

    def test_columns(self, rng):
        X, sparse = np.ones((4, 9)), sp.csr_matrix(np.ones((4, 9)))
        with pytest.raises(ValueError, match="7 columns; got 9"):
            clusters.assign(X, np.ones((3, 7)))
        with pytest.raises(ValueError, match="7 columns; got 9"):
            clusters.assign(sparse, sp.csr_matrix(np.ones((3, 7))))
        with pytest.raises(ValueError, match="7 columns; got 9"):
            sketch.GaussianSketch().fit(7, 3, rng)(X)

    def test_other_byte_orders_and_forms(self, rng):
        X, Z = rng.normal(size=(20, 6)), rng.normal(size=(4, 6))
        swapped = X.astype(X.dtype.newbyteorder())
        drawn = sketch.GaussianSketch().fit(6, 3, rng)
        np.testing.assert_array_equal(Gaussian(0.1).prepare(Z)(swapped), Gaussian(0.1)(X, Z))
        np.testing.assert_array_equal(drawn(swapped), drawn(X))
        np.testing.assert_array_equal(clusters.assign(swapped, Z), clusters.assign(X, Z))
        sparse = sp.csr_matrix(np.where(X > 0, X, 0))
        np.testing.assert_allclose(Gaussian(0.1).prepare(Z)(sparse.tocsc()), Gaussian(0.1)(sparse, Z))
        whole = rng.integers(0, 9, size=(20, 3))
        assert np.array_equal(clusters.cluster_sums(np.zeros(20, int), whole, 1).sums[0], whole.sum(axis=0))


@needs_library
def test_what_is_prepared_works_where_the_loops_are_not(rng):
    X, sparse = rng.normal(size=(30, 5)), sp.random(30, 5, 0.5, format="csr", random_state=0)
    ready = [
        (clusters.Nearest(X[:4], np.zeros(5), X.dtype), X),
        (clusters.Nearest(sparse[:4], None, X.dtype), sparse),
        (Gaussian(0.3).prepare(X[:4]), X),
        (Gaussian(0.3).prepare(sparse[:4]), sparse),
        (InnerProducts(sparse[:4]), sparse),
    ]
    for function, rows in ready:
        fast = function(rows)
        sent = pickle.loads(pickle.dumps(function))
        with compiled.turned_off():
            np.testing.assert_allclose(sent(rows), fast, rtol=1e-12)


@needs_library
@pytest.mark.parametrize("p", [784, 5000])
def test_float32_sums_are_as_good_as_those_of_blas(p, rng):
    X = rng.random((60, p)).astype(np.float32)
    exact = Exponents(X, 30 / p)(X.astype(np.float64), exp=True)

    def error():
        return np.abs(Exponents(X, 30 / p)(X, exp=True) - exact).max()

    fast, slow = both(error)
    assert fast <= 1.5 * slow


@needs_library
def test_seeding_leaves_the_generator_alike():
    def after():
        draws = np.random.default_rng(0)
        seeding.seed(np.array([[0.0], [0.0], [7.0]]), 5, "kmeans++", draws)
        return draws.random()

    fast, slow = both(after)
    assert fast == slow


def test_can_be_turned_off():
    code = "from nystrom import compiled; print(compiled.available())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"NYSTROM_COMPILED": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("content", [b"", b"not a library"])
def test_a_broken_library_is_passed_over(tmp_path, monkeypatch, content):
    (tmp_path / "_compiled.so").write_bytes(content)
    monkeypatch.setattr(compiled, "__file__", str(tmp_path / "compiled.py"))
    assert compiled._load() is None


class TestBuild:
    """The build step, on a copy of the C file."""

    @pytest.fixture
    def build(self, tmp_path, monkeypatch):
        monkeypatch.delenv("NYSTROM_COMPILED", raising=False)
        if not (ROOT / "hatch_build.py").exists():
            pytest.skip("the source tree is not at hand")
        package = tmp_path / "src" / "nystrom"
        package.mkdir(parents=True)
        shutil.copy(ROOT / "src" / "nystrom" / "compiled.c", package)
        shutil.copy(ROOT / "hatch_build.py", tmp_path)
        spec = importlib.util.spec_from_file_location("build_under_test", tmp_path / "hatch_build.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def test_without_a_compiler_it_says_so(self, build, monkeypatch, capsys):
        monkeypatch.setenv("CC", "no-such-compiler")
        assert not build.compile_library()
        assert "no C compiler" in capsys.readouterr().err
        assert not build.LIBRARY.exists()

    def test_a_compiler_that_fails_leaves_nothing(self, build, monkeypatch, capsys):
        monkeypatch.setenv("CC", f"{sys.executable} -c raise(SystemExit(3))")
        assert not build.compile_library()
        assert "failed" in capsys.readouterr().err
        assert [path.name for path in build.PACKAGE.iterdir()] == ["compiled.c"]

    @pytest.mark.parametrize("blank", ["", " "])
    def test_a_blank_name_of_a_compiler_is_none(self, build, monkeypatch, blank):
        monkeypatch.setenv("CC", blank)
        monkeypatch.setenv("PATH", "")
        assert not build.compile_library()

    def test_a_compiler_that_cannot_run_leaves_nothing(self, build, monkeypatch, capsys, tmp_path):
        broken = tmp_path / "broken"
        broken.write_bytes(b"\x7fELF")
        broken.chmod(0o755)
        monkeypatch.setenv("CC", str(broken))
        build.LIBRARY.write_bytes(b"from another build")
        assert not build.compile_library()
        assert "compiling failed" in capsys.readouterr().err
        assert not build.LIBRARY.exists()

    def test_compiles(self, build):
        if not any(map(shutil.which, ["cc", "gcc", "clang"])):
            pytest.skip("no C compiler")
        assert build.compile_library()
        assert sorted(path.name for path in build.PACKAGE.iterdir()) == sorted(["compiled.c", build.LIBRARY.name])
