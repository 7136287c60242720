"""Every example of the gallery runs without a warning and draws something."""

import sys
from pathlib import Path

import pytest

plt = pytest.importorskip("matplotlib.pyplot")
sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

import gallery  # noqa: E402


@pytest.mark.parametrize("name", gallery.names())
def test_an_example_runs_and_draws(name):
    figure = gallery.draw(name)
    assert any(axis.has_data() for axis in figure.axes)
    plt.close("all")


@pytest.mark.parametrize("name", gallery.names())
def test_an_example_has_a_title_a_text_and_code(name):
    title, text, code = gallery.describe(name)
    assert title
    assert len(text.split()) > 5
    assert code.endswith("plt.show()")
