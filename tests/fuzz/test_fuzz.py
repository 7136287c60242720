"""Damaged files of every format: no signal, no hang, no more memory than the limit, and the error names the file."""

from __future__ import annotations

import os
import sys

import pytest
from fuzz_formats import FORMATS
from fuzz_runner import fuzz, fuzz_few

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the limit on memory and its measure are Linux's")

FEW = 30
MANY = int(os.environ.get("NYSTROM_FUZZ_FILES", "10000"))


def test_a_few_damaged_files_of_each_format_are_read_or_refused_by_name() -> None:
    tallies = fuzz_few(list(FORMATS), FEW)
    assert not [failure for tally in tallies for failure in tally.failures]
    assert [sum(tally.outcomes.values()) for tally in tallies] == [FEW] * len(FORMATS)


# Files that hung, or were refused by an error of another kind, before that was mended.
ONCE = [
    ("rows.h5", 7022),
    ("rows.parquet", 8287),
    ("rows.parquet", 8438),
    ("forged.nystrom", 8152),
    ("table.feather", 2201),
]


@pytest.mark.fuzz
@pytest.mark.parametrize(("name", "number"), ONCE)
def test_a_file_that_once_failed_is_read_or_refused_by_name(name: str, number: int) -> None:
    assert not fuzz(name, 1, first=number).failures


@pytest.mark.fuzz
@pytest.mark.parametrize("name", FORMATS)
def test_thousands_of_damaged_files_are_read_or_refused_by_name(name: str) -> None:
    tally = fuzz(name, MANY, first=FEW)
    print(f"\n{tally}")
    assert not tally.failures
    assert sum(tally.outcomes.values()) == MANY
