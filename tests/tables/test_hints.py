"""What was perhaps meant: numbers and dates in text, targets that are no classes, files that must be rewritten."""

from __future__ import annotations

import lzma
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from nystrom import open_rows
from nystrom.exceptions import DataFileError, TableWarning
from nystrom.preprocessing import TableEncoder
from nystrom.tables.text import date_hint, number_hint

pytest.importorskip("pyarrow")


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["1,5", "-2,25", "3,125"], "decimal comma"),
        (["1,500", "2,250", "31,125"], "written as '1,500'"),
        (["$1,500", "$250", "$3.20"], "written as"),
        (["12%", "7 %", "100%"], "written as"),
        (["1 500", "2 250"], "written as"),
        (["Bern", "Oslo"], ""),
        (["A1", "B2"], ""),
        (["1-2", "3-4"], ""),
        (["2020-01-01", "2021-05-06"], ""),
        (["10:30", "11:45"], ""),
        (["1.2.3", "4.5.6"], ""),
        (["12,5"], ""),
    ],
)
def test_numbers_in_another_dress_are_pointed_out(texts: list[str], said: str) -> None:
    found = number_hint(Counter(texts), texts[0], 0, len(texts))
    assert said in found
    assert bool(said) == bool(found)


def test_the_value_that_is_shown_has_the_form_that_is_told() -> None:
    texts = Counter({"Oslo": 30} | {f"10000{i}" + 20 * "0": 1 for i in range(30)})
    assert "written as '10000" in number_hint(texts, "Oslo", 0, 60)


DATES = [f"2020-01-{day:02}" for day in range(1, 31)]


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["0000-00-00", *DATES], "read as text because of '0000-00-00', while nearly all of its values are dates"),
        ([*DATES, "31.1.2020 or so"], "because of '31.1.2020 or so'"),
        ([*DATES[:15], *(f"{day}.2.2020" for day in range(1, 16))], "in several forms, such as '2020-01-01' and '1.2."),
        ([f"{day}.2.2020" for day in range(1, 16)], "give their format: date_format='%d.%m.%Y'"),
        ([*DATES[:15], *(f"word {day}" for day in range(15))], ""),
        (["Bern", "Oslo"], ""),
        (["A-1234", "B-4321", "C-1212"], ""),
    ],
)
def test_dates_that_were_not_read_as_dates_are_pointed_out(texts: list[str], said: str) -> None:
    found = date_hint(Counter(texts))
    assert said in found
    assert bool(said) == bool(found)


@pytest.mark.parametrize("word", ["about 90", "unknown"])
def test_a_target_of_numbers_with_a_stray_word_is_no_class(word: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x,y\n" + "".join(f"{i},{word if i == 3 else i / 7}\n" for i in range(100)))
    with pytest.raises(ValueError, match=f"the target 'y' of .*because of '{word}', while 99 of its 100 values"):
        TableEncoder("y").fit(path)
    assert TableEncoder("y", missing_values=[word]).fit(path).target_.kind == "number"
    assert TableEncoder("y", types={"y": "category"}).fit(path).target_.kind == "text"


def test_a_target_that_differs_in_every_row_is_no_class(tmp_path: Path) -> None:
    table = {"x": np.arange(100.0), "y": [f"name {i}" for i in range(100)]}
    with pytest.raises(ValueError, match=r"nearly every value is different \(100 of 100\), so there are no classes"):
        TableEncoder("y").fit(table)
    few = {"x": np.arange(5.0), "y": list("abcde")}
    assert TableEncoder("y").fit(few).target_.n_values == 5


def test_what_a_target_holds_can_be_said(tmp_path: Path) -> None:
    table = {"x": np.arange(60.0), "y": [i % 40 for i in range(60)]}
    assert not TableEncoder("y").fit(table).target_.is_class
    classes = TableEncoder("y", types={"y": "category"}).fit(table)
    assert classes.target_.is_class
    assert len(classes.class_labels()) == 40
    with pytest.raises(ValueError, match=r"types\['y'\] must be 'number' or 'category', because it is the target"):
        TableEncoder("y", types={"y": "date"}).fit(table)
    path = tmp_path / "t.csv"
    path.write_text("x,y\n1,2\n2,b\n")
    with pytest.raises(ValueError, match="target 'y' holds a number in each row, but 'b' is not a number"):
        TableEncoder("y", types={"y": "number"}).fit(path)


def test_a_date_format_that_fits_nothing_is_told() -> None:
    with pytest.warns(TableWarning, match=r"date_format='%d.%m.%Y' is the form of no column"):
        TableEncoder(date_format="%d.%m.%Y").fit({"day": ["2020-01-01", "2020-01-02"], "x": [1.0, 2.0]})


def test_frequent_values_stay_where_rare_ones_are_many() -> None:
    """A few large towns among tens of thousands of small ones have their columns."""
    towns = [f"town {i}" for i in range(30_000)] + ["Oslo"] * 10_000 + ["Bern"] * 5_000
    order = np.random.default_rng(0).permutation(len(towns))
    encoder = TableEncoder(max_categories=2).fit({"town": [towns[i] for i in order]})
    assert encoder.get_feature_names_out().tolist() == ["town_Oslo", "town_Bern", "town_other"]
    with pytest.warns(TableWarning, match=r"nearly every value is different \(more than 20,000 of 60,000\)"):
        TableEncoder().fit({"id": [f"row {i}" for i in range(60_000)], "x": np.arange(60_000) % 7})


def test_empty_lines_before_the_header_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\n\na;b\n\n1,5;x\n\n2,5;y\n")
    assert TableEncoder().fit(path).get_feature_names_out().tolist() == ["a", "b_x", "b_y"]


def test_tables_compressed_with_xz_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.xz"
    text = "a,b\n" + "".join(f"{i},{i * i}\n" for i in range(50))
    with lzma.open(path, "wt") as stream:
        stream.write(text)
    assert TableEncoder().fit(path).n_rows_ == 50
    assert open_rows(path, target="b").shape == (50, 1)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    for read in (TableEncoder().fit, open_rows):
        with pytest.raises(DataFileError):
            read(path)


@pytest.mark.parametrize("name", ["t.json", "t.jsonl", "t.xlsx", "t.zip", "t.pkl"])
def test_files_that_are_not_read_say_what_to_write(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text('[{"a": 1, "b": 2}, ' * 5_000)
    with pytest.raises(ValueError, match="files are not read; save it as"):
        open_rows(path)


def test_a_file_without_a_header_is_asked_about(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(",1,,2\n3,4,5,6\n")
    with pytest.raises(DataFileError, match=r"rename one of them\. Is its first line a header"):
        TableEncoder().fit(path)
