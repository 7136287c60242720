"""Rows that wrap rows: every flag is true of the blocks, over every source, and none is forgotten."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp

from nystrom import KernelPCA, open_rows
from nystrom.engine import LocalEngine, Resources, Sums
from nystrom.output import _Rest
from nystrom.rows import RowBlocks, as_blocks, default_block_rows
from nystrom.rows.base import BlockwiseRows, MappedRows, TakenRows, WrappedRows
from nystrom.solvers.exact import TiledRows

X = np.round(np.random.default_rng(0).normal(size=(90, 4)), 3)
Y = np.arange(90.0)
FLAGS = set(RowBlocks.__annotations__)


def of_file(write, suffix, **options):
    def make(folder):
        path = folder / f"rows{suffix}"
        write(path)
        return open_rows(path, block_rows=None if suffix == ".csv" else 20, **options)

    return make


def write_parquet(path):
    pa = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(pa.table({f"c{j}": X[:, j] for j in range(4)}), path)


def write_libsvm(path):
    lines = (f"{y} " + " ".join(f"{j + 1}:{x}" for j, x in enumerate(row)) for row, y in zip(X, Y, strict=True))
    path.write_text("\n".join(lines) + "\n")


def dask_rows(values):
    da = pytest.importorskip("dask.array")
    pytest.importorskip("distributed")
    return as_blocks(da.from_array(values, chunks=(20, -1)))


SOURCES = {
    "array": lambda folder: as_blocks(X, block_rows=20),
    "float32": lambda folder: as_blocks(X.astype("f4"), block_rows=20),
    "sparse": lambda folder: as_blocks(sp.csr_array(X), block_rows=20),
    "with a target": lambda folder: as_blocks(X, Y, weight=np.ones(90), block_rows=20),
    "npy": of_file(lambda path: np.save(path, X), ".npy"),
    "npy with a target": of_file(lambda path: np.save(path, X), ".npy", target=0),
    "csv": of_file(lambda path: np.savetxt(path, X, header="a,b,c,d", comments="", delimiter=","), ".csv"),
    "parquet": of_file(write_parquet, ".parquet", target="c3"),
    "libsvm": of_file(write_libsvm, ".libsvm"),
    "blocks": lambda folder: open_rows(lambda: iter(np.array_split(X, 5)), block_rows=20),
    "dask": lambda folder: dask_rows(X),
    "dask with a target": lambda folder: dask_rows(X).with_target(Y),
}
WRAPPERS = {
    "targeted": lambda rows: BlockwiseRows.with_target(WrappedTwice(rows), Y),
    "weighted": lambda rows: WrappedTwice(rows).with_target(None, np.ones(90)),
    "mapped": lambda rows: MappedRows(rows, first_column, 1, name="first"),
    "its own target": lambda rows: MappedRows(rows, first_column, 1, name="first", target="rows"),
    "taken": lambda rows: TakenRows(rows, np.array([5, 3, 80])),
    "tiled": lambda rows: TiledRows(rows, 7),
    "rest": lambda rows: _Rest(rows, 2),
}


class WrappedTwice(BlockwiseRows):
    """A wrapper that changes nothing."""

    def __init__(self, rows):
        super().__init__(rows, same)


def same(block):
    return block


def first_column(block):
    column = block.X[:, [0]]
    return column.toarray() if sp.issparse(column) else column


def test_every_flag_of_rows_is_delegated():
    assert set(WrappedRows.__dict__) >= FLAGS
    assert not FLAGS & set(BlockwiseRows.__dict__)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_flags_are_true_of_the_blocks(source, wrapper, tmp_path):
    rows = SOURCES[source](tmp_path)
    if wrapper in ("tiled", "taken") and not rows.random_access:
        pytest.skip("cut by row number")
    wrapped = WRAPPERS[wrapper](rows)
    assert wrapped.on_cluster == rows.on_cluster
    assert wrapped.random_access == rows.random_access
    assert wrapped.held_bytes == rows.held_bytes
    assert wrapped.in_memory == (rows.in_memory and "mapped" not in wrapper and wrapper != "its own target")
    assert wrapped.block_bytes > 0
    blocks = list(wrapped.iterate())
    assert sum(block.X.shape[0] for block in blocks) == wrapped.shape[0]
    for block in blocks:
        assert block.X.dtype == wrapped.dtype
        assert block.X.shape[1] == wrapped.n_columns
        assert sp.issparse(block.X) == wrapped.is_sparse
        assert (block.y is not None) == wrapped.has_target
        assert (wrapped.feature_names is None) or len(wrapped.feature_names) == wrapped.n_columns


@pytest.mark.parametrize("source", ["array", "sparse", "dask", "dask with a target"])
@pytest.mark.parametrize("wrapper", ["targeted", "weighted", "mapped", "its own target"])
def test_a_pass_over_wrapped_rows_runs_where_the_rows_are(source, wrapper, tmp_path, monkeypatch):
    wrapped = WRAPPERS[wrapper](SOURCES[source](tmp_path))

    def step(block):
        X = block.X.toarray() if sp.issparse(block.X) else block.X
        return Sums(X.sum(axis=0), 0.0 if block.y is None else block.y.sum(), len(X))

    expected = LocalEngine(1).fold(wrapped, step, label="here")
    monkeypatch.setattr("nystrom.engine.local.LocalEngine.fold", None)
    if not wrapped.on_cluster:
        monkeypatch.undo()
    found = Resources().engine(wrapped).fold(wrapped, step, label="there")
    np.testing.assert_array_equal(
        np.concatenate([np.ravel(v) for v in found]), np.concatenate([np.ravel(v) for v in expected])
    )


def test_what_a_cluster_cannot_cut_is_refused():
    rows = dask_rows(X)
    with pytest.raises(TypeError, match="TiledRows cuts the blocks of X again"):
        Resources().engine(rows).fold(TiledRows(rows, 7), lambda block: Sums(1), label="tiles")


def test_a_change_of_blocks_does_not_carry_the_rows():
    rows = as_blocks(np.zeros((100_000, 4)))
    mapped = MappedRows(rows, first_column, 1, name="first")
    assert len(pickle.dumps(mapped.change)) < 1000


def test_the_way_back_of_components_is_learned_on_the_cluster(monkeypatch):
    rows = dask_rows(X)
    make = lambda: KernelPCA(2, fit_inverse_transform=True, landmarks=X[:30], gamma=0.3, random_state=0)  # noqa: E731
    here = make().fit(as_blocks(X, block_rows=20))
    monkeypatch.setattr(type(rows), "block", None)  # no chunk comes to this process
    there = make().fit(rows)
    scores = here.transform(X)
    np.testing.assert_array_equal(there.inverse_transform(scores), here.inverse_transform(scores))


@pytest.mark.parametrize(
    ("row_bytes", "n_rows", "rows"),
    [
        (160, 1, 1),
        (160, 2_000, 2_000),
        (160, 5_000, 2_500),
        (160, 100_000, 6_250),
        (3_136, 60_000, 2_500),
        (3_136, 10**7, 2_674),
        (8, 10**9, 8_192),
        (10**9, 10**9, 256),
        (0, 10, 10),
        (160, 0, 1),
    ],
)
def test_rows_of_a_block(row_bytes, n_rows, rows):
    assert default_block_rows(row_bytes, n_rows) == rows


@pytest.mark.parametrize("n_rows", [4_096, 9_999, 60_000, 100_000, 123_457, 400_000])
def test_blocks_are_even_and_a_number_that_cores_divide(n_rows):
    rows = default_block_rows(160, n_rows)
    count = -(-n_rows // rows)
    assert count in {2, 4} or count % 8 == 0
    assert count * rows - n_rows < count  # less than one row a block is missing
