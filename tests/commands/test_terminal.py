"""Tables on standard output."""

from __future__ import annotations

import io
import sys

import pytest

from nystrom.commands.terminal import format_table, print_table

COLUMNS = ["selector", "landmarks"]
ROWS = [["uniform", "7"], ["auto", "1,000"]]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_names_line_up_on_the_left_and_numbers_on_the_right() -> None:
    assert format_table(COLUMNS, ROWS, title="Errors").splitlines() == [
        "Errors",
        "",
        "selector  landmarks",
        "--------  ---------",
        "uniform           7",
        "auto          1,000",
    ]


def test_a_table_without_rows_is_its_heads() -> None:
    assert format_table(COLUMNS, []).splitlines() == ["selector  landmarks", "--------  ---------"]


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        format_table(COLUMNS, [["uniform"]])


def test_a_file_or_pipe_gets_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(COLUMNS, [["uniform", 7], ["auto", "1,000"]])
    assert capsys.readouterr().out == format_table(COLUMNS, ROWS) + "\n"


def test_a_terminal_gets_every_cell_even_in_square_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    print_table(COLUMNS, [["[red]uniform", 7]], title="Errors")
    for text in ("Errors", "selector", "landmarks", "[red]uniform", "7"):
        assert text in screen.getvalue()


def test_a_terminal_without_rich_gets_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setitem(sys.modules, "rich", None)
    print_table(COLUMNS, ROWS)
    assert screen.getvalue() == format_table(COLUMNS, ROWS) + "\n"
