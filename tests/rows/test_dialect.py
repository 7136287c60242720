"""One reader of CSV files: what it finds out about a file is the same for matrices and for tables."""

import numpy as np
import pandas as pd
import pytest

from nystrom import open_rows
from nystrom.exceptions import DataFileError, TableWarning
from nystrom.preprocessing import TableEncoder
from nystrom.rows.arrow import read_dialect

pytest.importorskip("pyarrow")
FRAME = pd.DataFrame({"a": [0.5, 1.25, -3.0], "b": [1e3, 2e-3, 4.0], "y": [1.5, 2.5, 3.5]})


@pytest.mark.parametrize(("sep", "decimal"), [(",", "."), (";", ","), (";", "."), ("\t", "."), ("|", ".")])
def test_every_delimiter_is_read_by_open_rows_and_by_the_encoder(sep, decimal, tmp_path):
    FRAME.to_csv(tmp_path / "t.csv", sep=sep, decimal=decimal, index=False)
    rows = open_rows(tmp_path / "t.csv", target="y")
    np.testing.assert_array_equal(rows.take(np.arange(3)), FRAME[["a", "b"]])
    np.testing.assert_array_equal(rows.target(), FRAME["y"])
    encoder = TableEncoder().fit(tmp_path / "t.csv")
    np.testing.assert_allclose([column.mean for column in encoder.columns_], FRAME.mean())


def test_excels_line_about_the_delimiter_is_no_header(tmp_path):
    (tmp_path / "t.csv").write_text("sep=;\na;b\n1,5;2\n2,5;3\n")
    rows = open_rows(tmp_path / "t.csv")
    assert rows.feature_names == ("a", "b")
    np.testing.assert_array_equal(rows.take([0, 1]), [[1.5, 2], [2.5, 3]])
    assert TableEncoder().fit(tmp_path / "t.csv").n_rows_ == 2


@pytest.mark.parametrize(
    ("first", "has_header"),
    [
        ("5.1,3.5,setosa", False),
        ("39,State-gov,13", False),
        ("-1,2,3", False),
        ("1,1,2", False),
        ("a,b,c", True),
        ("0,1,2", True),
        ("1990,2000,2010", True),
        ("id,2000,2010", True),
    ],
)
def test_a_first_line_of_values_is_no_header(first, has_header, tmp_path):
    (tmp_path / "t.csv").write_text(f"{first}\n{first}\n")
    assert read_dialect(tmp_path / "t.csv").has_header is has_header


def test_a_file_without_a_header_keeps_its_first_row(tmp_path):
    (tmp_path / "t.csv").write_text("5.1,3.5\n4.9,3.0\n4.7,3.2\n")
    with pytest.warns(TableWarning, match="has no header"):
        rows = open_rows(tmp_path / "t.csv")
    np.testing.assert_array_equal(rows.take([0, 1, 2]), [[5.1, 3.5], [4.9, 3.0], [4.7, 3.2]])
    with pytest.warns(TableWarning, match="has no header"):
        assert TableEncoder().fit(tmp_path / "t.csv").n_rows_ == 3


def test_points_that_are_either_are_told(tmp_path):
    (tmp_path / "t.csv").write_text("a;b\n1.234;1\n5.678;3\n")
    with pytest.warns(TableWarning, match="marks between thousands"):
        encoder = TableEncoder().fit(tmp_path / "t.csv")
    assert encoder.columns_[0].mean == 3456
    assert TableEncoder(decimal=".").fit(tmp_path / "t.csv").columns_[0].mean == pytest.approx(3.456)


@pytest.mark.parametrize("suffix", ["csv", "parquet", "feather"])
@pytest.mark.parametrize("columns", [["a", "a"], ["b", "a", "b"]])
def test_a_column_named_twice_is_read_twice(suffix, columns, tmp_path):
    path = tmp_path / f"t.{suffix}"
    {"csv": lambda: FRAME.to_csv(path, index=False), "parquet": lambda: FRAME.to_parquet(path)}.get(
        suffix, lambda: FRAME.to_feather(path)
    )()
    rows = open_rows(path, columns=columns, target="y")
    np.testing.assert_array_equal(rows.take([0, 1, 2]), FRAME[columns])
    np.testing.assert_array_equal(rows.target(), FRAME["y"])


def test_a_class_that_is_missing_in_the_first_row_is_named(tmp_path):
    (tmp_path / "t.csv").write_text("a,y\n1,\n2,p\n3,q\n")
    with pytest.raises(ValueError, match="target is missing or not finite in row 0"):
        list(open_rows(tmp_path / "t.csv", target="y").iterate())


def test_booleans_are_one_target_from_every_file(tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "y": [True, False, True]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    for name in ("t.csv", "t.parquet"):
        y = open_rows(tmp_path / name, target="y").target()
        assert y.dtype == np.bool_
        np.testing.assert_array_equal(y, frame["y"])


def test_whole_numbers_beyond_double_precision_are_refused_as_a_target(tmp_path):
    pd.DataFrame({"a": [1.0, 2.0], "y": [2**53 + 1, 2**53]}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataFileError, match=r"beyond 2\*\*53"):
        open_rows(tmp_path / "t.parquet", target="y").target()
