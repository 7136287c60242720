"""What SECURITY.md says of versions is what pyproject.toml asks for."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def stated():
    text = (ROOT / "SECURITY.md").read_text()
    return dict(re.findall(r"^\| ([\w-]+) \| (\d[\d.]*) \|", text, re.MULTILINE))


@pytest.fixture(scope="module")
def asked():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    return dict(entry.split(">=") for entry in [*project["dependencies"], *extras["io"], *extras["dask"]])


def test_every_package_that_reads_files_or_talks_to_others_has_its_minimum_stated(stated, asked):
    assert set(asked) - {"pandas"} == set(stated)


def test_the_minimums_stated_are_those_asked_for(stated, asked):
    assert stated == {name: asked[name] for name in stated}
