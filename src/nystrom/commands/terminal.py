"""Tables on standard output: drawn by rich in a terminal that has it, aligned plain text otherwise."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence

from nystrom.engine.progress import print_rich_table


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """Print a table; the first column is a name, the others line up on the right.

    Parameters
    ----------
    columns : sequence of str
        The column headings.
    rows : iterable of sequences
        One value per column, printed with ``str``; format numbers beforehand.
    title : str, optional
        A line above.

    Examples
    --------
    >>> from nystrom.commands.terminal import print_table
    >>> print_table(["selector", "error"], [["uniform", "0.24"], ["kmeans", "0.0738"]])
    selector   error
    --------  ------
    uniform     0.24
    kmeans    0.0738
    """
    cells = [[str(value) for value in row] for row in rows]
    if sys.stdout.isatty():
        try:
            print_rich_table(columns, cells, title)
            return
        except ImportError:
            pass  # rich is optional: the plain table says the same
    print(format_table(columns, cells, title=title))


def format_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str | None = None) -> str:
    """Return the table as aligned plain text; the same text whatever the terminal."""
    cells = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]

    def line(row: Sequence[str]) -> str:
        name, *numbers = (
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        return "  ".join([name, *numbers]).rstrip()

    lines = [line(columns), "  ".join("-" * width for width in widths), *map(line, cells)]
    return "\n".join([title, "", *lines] if title else lines)


def format_shares(shares: Mapping[str, float]) -> str:
    """Return names with their shares as per cents, except those that round to none.

    Examples
    --------
    >>> from nystrom.commands.terminal import format_shares
    >>> format_shares({"area": 0.7, "town": 0.298, "floor": 0.002})
    'area 70%, town 30%'
    """
    return ", ".join(f"{name} {share:.0%}" for name, share in shares.items() if share >= 0.005) or "no column"
