"""One gate: every container gives the same rows, keeps its column names, or says in one line what is wrong."""

import re

import numpy as np
import pytest
import scipy.sparse as sp

import nystrom
from nystrom import KernelKMeans, KernelPCA, KernelRidge, Nystroem, kernel_eigh, open_rows, select_landmarks
from nystrom.rows import RowBlocks, as_blocks
from nystrom.rows.binary import BinaryRows

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 4))
NAMES = ["a", "b", "c", "d"]


class Tensor:
    """What gives its numbers through ``__array__`` alone."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype=dtype)


def pandas(values, names=NAMES):
    return pytest.importorskip("pandas").DataFrame(values, columns=names)


def polars(values, names=NAMES):
    return pytest.importorskip("polars").DataFrame(dict(zip(names, np.asarray(values).T, strict=True)))


def lazy_polars(values, names=NAMES):
    return polars(values, names).lazy()


def arrow(values, names=NAMES):
    return pytest.importorskip("pyarrow").table(dict(zip(names, np.asarray(values).T, strict=True)))


def dask_frame(values, names=NAMES):
    pytest.importorskip("distributed")
    return pytest.importorskip("dask.dataframe").from_pandas(pandas(values, names), npartitions=3)


def dask_array(values):
    pytest.importorskip("distributed")
    return pytest.importorskip("dask.array").from_array(values, chunks=(100, -1))


FRAMES = [pandas, polars, lazy_polars, arrow, dask_frame]
PLAIN = {
    "array": np.asarray,
    "list": lambda values: np.asarray(values).tolist(),
    "fortran": np.asfortranarray,
    "strided": lambda values: np.repeat(values, 2, axis=0)[::2],
    "csr_matrix": sp.csr_matrix,
    "csr_array": sp.csr_array,
    "csc_array": sp.csc_array,
    "coo_matrix": sp.coo_matrix,
    "rows": as_blocks,
    "tensor": Tensor,
    "masked": np.ma.masked_array,
    "dask array": dask_array,
}
ENTRIES = {
    "fit": lambda values: Nystroem(n_components=3, random_state=0).fit(values),
    "select_landmarks": lambda values: select_landmarks(values, 5, random_state=0),
    "kernel_eigh": lambda values: kernel_eigh(values, n_components=3, random_state=0),
    "open_rows": open_rows,
    "fit with y": lambda values: KernelRidge(alpha=1.0, n_landmarks=5).fit(values, X[:, 0]),
    "as_blocks": as_blocks,
}


def all_of(rows):
    taken = rows.take(np.arange(rows.shape[0]))
    return taken.toarray() if sp.issparse(taken) else taken


@pytest.mark.parametrize("make", [*PLAIN.values(), *FRAMES], ids=[*PLAIN, *(make.__name__ for make in FRAMES)])
def test_every_container_gives_the_same_rows(make):
    rows = as_blocks(make(X))
    assert isinstance(rows, RowBlocks)
    assert rows.dtype == np.float64
    np.testing.assert_array_equal(all_of(rows), X)
    assert rows.feature_names == (tuple(NAMES) if make in FRAMES else None)


@pytest.mark.parametrize("make", FRAMES)
def test_float32_frames_stay_float32(make):
    assert as_blocks(make(X.astype(np.float32))).dtype == np.float32


@pytest.mark.parametrize("kind", ["i1", "u2", "i8", "?", "f2", ">f8", ">f4"])
@pytest.mark.parametrize("sparse", [False, True])
def test_other_kinds_of_numbers_become_floats(kind, sparse):
    values = np.round(X * 10).astype("i8").astype(kind)
    if sparse and kind in ("f2", ">f8", ">f4"):
        pytest.skip("scipy keeps sparse matrices in native float32 and float64")
    rows = as_blocks(sp.csr_array(values) if sparse else values)
    np.testing.assert_array_equal(all_of(rows), values.astype(float))


def test_a_memmap_is_read_from_its_file(tmp_path):
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert isinstance(as_blocks(mapped), BinaryRows)
    np.testing.assert_array_equal(all_of(as_blocks(mapped)), X)
    np.testing.assert_array_equal(all_of(as_blocks(mapped[::2])), X[::2])  # no piece of the file: read as an array
    np.testing.assert_array_equal(kernel_eigh(mapped, n_components=3, random_state=0)[0], ENTRIES["kernel_eigh"](X)[0])


@pytest.mark.parametrize("entry", ["select_landmarks", "kernel_eigh", "as_blocks"])
@pytest.mark.parametrize("path", ["big.parquet", b"big.parquet"])
def test_a_path_is_told_of_open_rows(entry, path):
    with pytest.raises(ValueError, match=re.escape("open it first, with nystrom.open_rows('big.parquet')")):
        ENTRIES[entry](path)


@pytest.mark.parametrize("make", FRAMES)
@pytest.mark.parametrize("entry", ENTRIES)
def test_a_column_that_is_no_number_is_named(make, entry):
    frame = make(X)
    dates = np.arange(300).astype("M8[s]")
    if make is pandas:
        frame["when"] = dates
    elif make is dask_frame:
        pd = pytest.importorskip("pandas")
        frame = pytest.importorskip("dask.dataframe").from_pandas(pd.DataFrame({"a": X[:, 0], "when": dates}), 2)
    elif make is arrow:
        frame = frame.append_column("when", [dates])
    else:
        frame = frame.with_columns(when=pytest.importorskip("polars").lit("noon"))
    with pytest.raises(ValueError, match=r"column 'when' of X holds \S+, which are not numbers\. Encode") as raised:
        ENTRIES[entry](frame)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.arange(12).reshape(6, 2).astype("M8[D]"), "X holds dates"),
        (np.arange(12).reshape(6, 2).astype("m8[D]"), "X holds time spans"),
        (np.array([["1", "2"], ["3", "x"]]), "X holds text"),
        (np.array([[1, 2], [3, "x"]], dtype=object), "X holds text, such as 'x'"),
        (np.ones((6, 2)) * 1j, "Complex data not supported"),
        (np.ma.masked_equal(X, X[3, 1]), "masked array with masked entries"),
        (np.zeros((0, 3)), r"0 sample\(s\)"),
        (np.zeros((3, 0)), r"0 feature\(s\)"),
        (sp.csr_array((0, 3)), r"0 sample\(s\)"),
        (np.zeros(4), "Expected 2D array, got 1D array"),
        (np.zeros((2, 2, 2)), "dim 3"),
    ],
)
def test_what_is_no_matrix_of_numbers_is_refused_in_words(entry, values, message):
    with pytest.raises(ValueError, match=message):
        ENTRIES[entry](values)


def test_object_columns_that_hold_numbers_are_numbers():
    frame = pandas(X).astype(object)
    np.testing.assert_array_equal(all_of(as_blocks(frame)), X)
    with pytest.raises(ValueError, match=r"column 'b' of X holds (object|str)"):
        as_blocks(frame.assign(b="text"))


@pytest.mark.parametrize("make", FRAMES)
@pytest.mark.parametrize("machine", [KernelRidge(alpha=1.0, n_landmarks=20), KernelPCA(2), KernelKMeans(2)])
def test_columns_in_another_order_or_of_other_names_are_refused(make, machine):
    fitted = machine.fit(make(X), X[:, 0])
    assert list(fitted.feature_names_in_) == NAMES
    use = fitted.transform if hasattr(fitted, "transform") else fitted.predict
    use(make(X))
    swapped = ["b", "a", "c", "d"]
    with pytest.raises(ValueError, match="must be in the same order as they were in fit"):
        use(make(X[:, [1, 0, 2, 3]], swapped))
    with pytest.raises(ValueError, match=r"unseen at fit time:\n- e\n.*missing:\n- d"):
        use(make(X, ["a", "b", "c", "e"]))
    with pytest.raises(ValueError, match=r"missing:\n- d"):
        use(make(X[:, :3], NAMES[:3]))


def test_a_fit_to_rows_without_names_forgets_the_names():
    machine = KernelRidge(alpha=1.0, n_landmarks=20).fit(pandas(X), X[:, 0])
    with pytest.warns(UserWarning, match="does not have valid feature names, but KernelRidge was fitted with"):
        machine.predict(X)
    machine.fit(X, X[:, 0])
    assert not hasattr(machine, "feature_names_in_")
    with pytest.warns(UserWarning, match="X has feature names, but KernelRidge was fitted without"):
        machine.predict(pandas(X))


def test_a_table_in_a_file_has_names_too(tmp_path):
    pytest.importorskip("pyarrow")
    pandas(X).to_parquet(tmp_path / "train.parquet")
    pandas(X[:, [1, 0, 2, 3]], ["b", "a", "c", "d"]).to_parquet(tmp_path / "new.parquet")
    fitted = Nystroem(n_components=3, random_state=0).fit(open_rows(tmp_path / "train.parquet"))
    with pytest.raises(ValueError, match="must be in the same order"):
        fitted.transform(open_rows(tmp_path / "new.parquet"))
    ordered = open_rows(tmp_path / "new.parquet", columns=NAMES)
    np.testing.assert_array_equal(fitted.transform(ordered), fitted.transform(pandas(X)))
    np.testing.assert_array_equal(Nystroem(n_components=3, random_state=0).fit(X).transform(ordered).shape, (300, 3))


def test_names_that_are_partly_text_are_refused():
    with pytest.raises(TypeError, match="only supported if all input features have string names"):
        as_blocks(pandas(X, ["a", 1, 2, 3]))
    assert as_blocks(pandas(X, [0, 1, 2, 3])).feature_names is None


def test_two_columns_of_one_name_are_refused():
    with pytest.raises(ValueError, match="two columns have the name 'a'"):
        as_blocks(pandas(X, ["a", "b", "a", "c"]))


@pytest.mark.parametrize("value", [None, 5.0, {"a": 1}, b"rows"])
@pytest.mark.parametrize("entry", ["fit", "select_landmarks", "kernel_eigh"])
def test_what_is_no_container_is_refused(entry, value):
    with pytest.raises((ValueError, TypeError), match=r"Expected 2D array|not numbers|open_rows"):
        ENTRIES[entry](value)


def all_machines():
    names = [name for name in nystrom.__all__ if hasattr(getattr(nystrom, name), "fit")]
    return [getattr(nystrom, name) for name in names]


@pytest.mark.parametrize("machine", all_machines())
@pytest.mark.parametrize("make", [np.asarray, pandas, sp.csr_array, dask_array])
def test_every_machine_names_the_first_row_that_is_not_finite(machine, make):
    # Labels of the frame are not its row numbers, and most of a sample holds later rows.
    bad = np.vstack([X, X])
    bad[72, 1] = np.nan
    bad[132:500, 2] = np.inf
    given = make(bad)
    if make is pandas:
        given.index = np.arange(len(bad)) + 60
    y = (np.arange(len(bad)) % 2).astype(float)
    with pytest.raises(ValueError, match=r"Input X contains NaN \(first in row 72\)"):
        machine(random_state=0).fit(given, y)


@pytest.mark.parametrize("method", nystrom.landmarks.SELECTORS)
def test_every_selector_names_the_first_row_that_is_not_finite(method):
    bad = np.vstack([X] * 40)
    bad[1072, 1] = np.nan
    bad[5000:, 2] = np.inf
    with pytest.raises(ValueError, match=r"Input X contains NaN \(first in row 1072\)"):
        select_landmarks(bad, 5, method=method, random_state=0)
    with pytest.raises(ValueError, match=r"Input X contains NaN \(first in row 1072\)"):
        kernel_eigh(bad, n_components=3, landmarks=method, gamma=0.5, random_state=0)
