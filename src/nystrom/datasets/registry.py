"""The sets that can be loaded by name, read from ``registry.toml``."""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

Split = Literal["train", "test"]


@dataclass(frozen=True)
class DatasetInfo:
    """What is known of a set before it is loaded; each field is explained at the top of ``registry.toml``."""

    name: str
    task: str
    p: int
    n: int | None = None
    n_test: int | None = None
    file: str | None = None
    test: str | None = None
    target: str | None = None
    folder: str | None = None
    sparse: bool = False
    sha256: str | None = None
    stand_in_for: str | None = None
    generator: str | None = None
    note: str = ""

    @property
    def stand_in(self) -> bool:
        """Whether this set only stands in for one that could not be had."""
        return self.stand_in_for is not None

    def file_of(self, split: Split) -> str:
        """Return the archive's name of the file that holds ``split``."""
        if split not in ("train", "test"):
            raise ValueError(f"split must be 'train' or 'test'; got {split!r}.")
        name = self.file if split == "train" else self.test
        if name is None:
            raise ValueError(
                f"split={split!r} does not exist for the set {self.name!r}, which has a single part; "
                f"load it with split='train' and divide it with sklearn.model_selection.train_test_split."
            )
        return name

    def rows_of(self, split: Split) -> int | None:
        """Return the number of rows that ``split`` should have, where it is known."""
        return self.n if split == "train" else self.n_test

    def address_of(self, split: Split) -> str | None:
        """Return where the archive serves ``split``; None for sets that it does not hold."""
        return f"{archive()}/{self.folder}/{self.file_of(split)}" if self.folder else None


@cache
def _document() -> dict[str, object]:
    text = files("nystrom.datasets").joinpath("registry.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def archive() -> str:
    """Return the address of the LIBSVM archive."""
    return str(_document()["archive"])


@cache
def registry() -> dict[str, DatasetInfo]:
    """Return every known set by name, in the order of the file."""
    tables = {name: table for name, table in _document().items() if isinstance(table, dict)}
    return {name: DatasetInfo(name=name, **table) for name, table in tables.items()}


def info(name: str) -> DatasetInfo:
    """Return what is known of the set ``name``.

    Examples
    --------
    >>> from nystrom.datasets import info
    >>> info("mnist").p
    784
    >>> info("protein-mix").stand_in_for
    'protein'
    """
    known = registry()
    if name not in known:
        close = difflib.get_close_matches(str(name), known, n=3)
        hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
        raise ValueError(f"name must be one of {', '.join(known)}; got {name!r}.{hint}")
    return known[name]
