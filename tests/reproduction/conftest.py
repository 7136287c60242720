"""A tiny experiment on generated data that every test of this folder can run in well under a second."""

import pytest

from reproduction.catalogue import CLUSTERED, COLUMN_NORM, UNIFORM, Experiment, Method, Panel, Study

SKETCHED = Method("sketched-0.2", "sketched", "sketched-kmeans", 0.2)
STANDARD = Method("standard", "standard", "uniform", factor="standard")
OPTIMAL = Method("optimal", "via QR", "uniform", factor="optimal")


@pytest.fixture
def no_data(tmp_path, monkeypatch):
    """A data home without any file."""
    monkeypatch.setenv("NYSTROM_DATA", str(tmp_path / "nowhere"))


@pytest.fixture
def tiny():
    sizes = ((3, 3), (6, 3))
    return Experiment(
        key="tiny",
        title="Tiny: digits",
        says="Sketched beats uniform.",
        studies=(
            Study("errors", "digits", (UNIFORM, COLUMN_NORM, CLUSTERED, SKETCHED), sizes, first=300),
            Study("factors", "digits", (STANDARD, OPTIMAL), sizes, first=300),
        ),
        panels=(Panel("error", "errors", title="errors"), Panel("time", "errors", title="seconds")),
    )
