"""The LIBSVM parser: equal to the line-by-line one, and clear about what is wrong with a file."""

import bz2
import gzip
import lzma

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file

from nystrom.exceptions import DataFileError
from nystrom.rows import libsvm
from nystrom.rows.libsvm import read_libsvm


def write(tmp_path, text, name="data"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_file_written_by_scikit_learn_reads_back(tmp_path):
    X = sp.random(300, 40, density=0.2, format="csr", random_state=0)
    y = np.random.default_rng(0).standard_normal(300)
    dump_svmlight_file(X, y, str(tmp_path / "data"), zero_based=False)
    read_X, read_y = read_libsvm(tmp_path / "data", n_features=40)
    # scikit-learn writes 16 digits, one fewer than a double can need.
    np.testing.assert_allclose(read_X.toarray(), X.toarray(), rtol=1e-15)
    np.testing.assert_allclose(read_y, y, rtol=1e-15)


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [("", bytes), (".bz2", bz2.compress), (".gz", gzip.compress), (".xz", lzma.compress)],
)
def test_every_compression_gives_the_same_rows(tmp_path, suffix, compress):
    path = write(tmp_path, compress(b"1 1:2 3:4.5\n-1 2:1e-3\n"), "data" + suffix)
    X, y = read_libsvm(path)
    np.testing.assert_array_equal(X.toarray(), [[2, 0, 4.5], [0, 1e-3, 0]])
    np.testing.assert_array_equal(y, [1, -1])


@pytest.mark.parametrize("text", ["1 1:2\r\n2 2:3\r\n", "1\t1:2 # note\n\n2 2:3", "# head\n1 qid:7 1:2\n2 2:3\n"])
def test_line_ends_comments_blank_lines_and_query_numbers_are_understood(tmp_path, text):
    X, y = read_libsvm(write(tmp_path, text))
    np.testing.assert_array_equal(X.toarray(), [[2, 0], [0, 3]])
    np.testing.assert_array_equal(y, [1, 2])


def test_a_row_without_entries_is_a_row_of_zeros(tmp_path):
    X, y = read_libsvm(write(tmp_path, "1\n2 2:3\n3\n"))
    np.testing.assert_array_equal(X.toarray(), [[0, 0], [0, 3], [0, 0]])
    np.testing.assert_array_equal(y, [1, 2, 3])


@pytest.mark.parametrize("piece_bytes", [16, 64, 1000])
def test_the_result_does_not_depend_on_the_size_of_the_pieces(tmp_path, monkeypatch, piece_bytes):
    lines = [f"{i % 3} " + " ".join(f"{j}:{i * j}" for j in range(1, 2 + i % 5)) for i in range(50)]
    path = write(tmp_path, "\n".join(lines))
    whole, _ = read_libsvm(path)
    monkeypatch.setattr(libsvm, "_PIECE_BYTES", piece_bytes)
    pieces, _ = read_libsvm(path)
    assert (whole != pieces).nnz == 0


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("1 0:3", "index 0 is not allowed"),
        ("1 -2:3", "index -2 is not allowed"),
        ("1 3:1 2:1", "index 2 comes after index 3"),
        ("1 2:1 2:1", "index 2 comes after index 2"),
        ("1 6:1", "index 6 is beyond the 5 columns"),
        ("1 1:nan", "index 1 is nan"),
        ("1 1:inf", "index 1 is inf"),
        ("1 1:1e999", "index 1 is 1e999"),
        ("nan 1:1", "label is nan"),
        ("1 1.5:1", "whole index"),
        ("1 1:x", "must be a number"),
        ("1 1:", "must be a number"),
        ("1 1:2:3", "must be a number"),
        ("1 1: 2:3", "must be a number"),
        ("1:2 3", "the label must be a number"),
        ("1 2", "expected index:value"),
        ("1 1:4-5 :6", "must be a number"),
        ("1 99999999999999999999:1", "beyond"),
        ("1,2 1:3", "the label must be a number"),
        ("\x00\x01\x02", "must be a number"),
        ("\xff\xfe not text", "not text"),
        ("1 " + " ".join(f"{j}:1" for j in range(1, 1_000_001)), "index 6 is beyond the 5 columns"),
    ],
    ids=lambda value: value[:24],
)
def test_a_malformed_line_is_named_with_its_number(tmp_path, bad, message):
    path = write(tmp_path, f"1 1:1\n2 2:2\n{bad}\n1 1:1\n")
    with pytest.raises(DataFileError, match=rf"data, line 3: .*{message}"):
        read_libsvm(path, n_features=5)


def test_the_line_number_counts_from_the_start_of_the_file_not_of_the_piece(tmp_path, monkeypatch):
    monkeypatch.setattr(libsvm, "_PIECE_BYTES", 64)
    path = write(tmp_path, "1 1:1\n" * 500 + "1 0:1\n")
    with pytest.raises(DataFileError, match="line 501: index 0"):
        read_libsvm(path)


@pytest.mark.parametrize(
    ("suffix", "compress"), [(".bz2", bz2.compress), (".gz", gzip.compress), (".xz", lzma.compress)]
)
def test_a_truncated_or_damaged_archive_is_an_error_that_says_so(tmp_path, suffix, compress):
    text = b"".join(b"%d 1:%d 2:%d\n" % (i, i * i, i * 7919) for i in range(3000))
    packed = compress(text)
    for damaged in (packed[: len(packed) // 2], b"certainly not compressed"):
        with pytest.raises(DataFileError, match=r"data.*, near line \d+: the compressed file is damaged"):
            read_libsvm(write(tmp_path, damaged, "data" + suffix))


def test_a_line_without_end_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(libsvm, "_PIECE_BYTES", 64)
    monkeypatch.setattr(libsvm, "_LONGEST_LINE", 512)
    with pytest.raises(DataFileError, match="line 2: longer than"):
        read_libsvm(write(tmp_path, "1 1:1\n" + "7" * 5000))


def test_an_empty_file_is_an_error(tmp_path):
    with pytest.raises(DataFileError, match="holds no rows"):
        read_libsvm(write(tmp_path, "\n# nothing\n"))


@given(st.text(alphabet="0123456789+-.eE: \t\n", max_size=60))
def test_the_fast_way_accepts_only_what_the_line_by_line_way_accepts_and_agrees_with_it(text):
    raw = text.encode() + b"\n"
    fast = libsvm._parse_fast(raw, 50)
    if fast is None:
        return
    slow = libsvm._parse_lines(raw, 50, "data", 1)
    np.testing.assert_array_equal(fast.y, slow.y)
    np.testing.assert_array_equal(fast.counts, slow.counts)
    np.testing.assert_array_equal(fast.columns, slow.columns)
    np.testing.assert_array_equal(fast.values, slow.values)


@pytest.mark.parametrize(
    "text", [b"1 1:2e\n", b"1 1:1.5.\n", b"1 1:1-2 2:4e\n", b"1-2 1:3 2:4e\n", b"+ 1:1\n", b"1 1:+\n"]
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_fast_way_leaves_odd_numbers_to_the_slow_way_whatever_the_warning_filters(text):
    assert libsvm._parse_fast(text, 5) is None
