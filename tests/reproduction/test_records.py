"""The file of rows: nothing finished is lost, nothing half-written is read."""

import json

import pytest

from reproduction.records import RowFile

ROW = {"experiment": "fig1", "study": "rings", "method": "optimal", "m": 4, "r": 2, "trial": 0, "data_sha256": "ab"}


def test_rows_read_back_and_are_known_as_done(tmp_path):
    file = RowFile(tmp_path / "deep" / "rows.jsonl")
    file.append([{**ROW, "error": 0.25}, {**ROW, "trial": 1, "error": 0.5}])
    again = RowFile(file.path)
    assert again.rows == file.rows
    assert again.done == file.done
    assert len(again.done) == 2


def test_a_line_cut_short_by_an_interruption_is_dropped_and_the_rest_kept(tmp_path):
    path = tmp_path / "rows.jsonl"
    RowFile(path).append([ROW])
    with path.open("a") as stream:
        stream.write('{"experiment": "fig1", "err')
    file = RowFile(path)
    assert file.rows == [ROW]
    file.append([{**ROW, "trial": 1}])
    assert [json.loads(line)["trial"] for line in path.read_text().splitlines()] == [0, 1]


def test_other_data_is_other_work(tmp_path):
    file = RowFile(tmp_path / "rows.jsonl")
    file.append([ROW, {**ROW, "data_sha256": "cd"}])
    assert len(file.done) == 2


def test_a_damaged_line_is_named(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"experiment": "toy"}\nnonsense\n')
    with pytest.raises(ValueError, match=r"rows\.jsonl, line 2: not a row of results"):
        RowFile(path)
