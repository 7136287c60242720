"""Terminal output drawn by rich. Only this file imports rich, on use; without it, it raises ``ImportError``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def make_console(*, stderr: bool = False) -> Any:
    """Return a console on standard output, or on standard error."""
    from rich.console import Console

    return Console(stderr=stderr)


def make_bar(console: Any) -> Any:
    """Return a progress bar whose tasks have the fields ``counts`` and ``rate``."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[counts]}"),
        TextColumn("{task.fields[rate]}", style="green"),
        TimeRemainingColumn(compact=True),
        TimeElapsedColumn(),
        console=console,
    )


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str | None) -> None:
    """Print a table on standard output, the first column aligned left and the others right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, header_style="bold")
    for i, column in enumerate(columns):
        table.add_column(Text(column), justify="left" if i == 0 else "right", no_wrap=True)
    for row in rows:
        # Text, not str: rich would read square brackets in a str as markup.
        table.add_row(*map(Text, row))
    make_console().print(table)
