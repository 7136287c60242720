"""What the project says of itself agrees with itself, wherever it says so."""

import re
import tomllib
from importlib.metadata import metadata
from pathlib import Path

import nystrom

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
NAME = re.compile(r"^[\w.-]+")


def names(requirements):
    return {NAME.match(entry).group() for entry in requirements if isinstance(entry, str)}


def test_the_version_stands_in_one_place():
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert metadata("nystrom")["Version"] == nystrom.__version__


def test_citation_and_changelog_name_this_version():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^version: (.+)$", citation, re.MULTILINE).group(1) == nystrom.__version__
    assert re.search(r"^## (\S+)", changelog, re.MULTILINE).group(1) == nystrom.__version__


def test_the_conda_recipe_has_this_version_and_these_dependencies():
    recipe = (ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    assert re.search(r'^  version: "(.+)"$', recipe, re.MULTILINE).group(1) == nystrom.__version__

    def listed(key):
        (block,) = re.findall(rf"^  {key}:\n((?:    - .+\n)+)", recipe, re.MULTILINE)
        return {entry.replace(" ", "") for entry in re.findall(r"- (.+)", block)}

    project = PROJECT["project"]
    assert listed("run") == {*project["dependencies"], f"python{project['requires-python']}"}
    assert set(PROJECT["build-system"]["requires"]) <= listed("host")


def test_an_import_needs_four_packages():
    assert names(PROJECT["project"]["dependencies"]) == {"numpy", "scipy", "scikit-learn", "threadpoolctl"}


def test_every_dependency_has_a_lower_bound_and_none_an_upper():
    extras = PROJECT["project"]["optional-dependencies"]
    for entry in [*PROJECT["project"]["dependencies"], *(entry for extra in extras.values() for entry in extra)]:
        assert entry.startswith("nystrom[") or ">=" in entry, entry
        assert "<" not in entry, entry


def test_the_extra_all_is_every_extra_for_users():
    extras = PROJECT["project"]["optional-dependencies"]
    assert {"plot", "io", "dask", "cli", "docs", "all", "test"} <= set(extras)
    (everything,) = extras["all"]
    assert set(everything.removeprefix("nystrom[").removesuffix("]").split(",")) == set(extras) - {
        "docs",
        "all",
        "test",
    }


def test_declared_pythons_reach_from_the_oldest_allowed_without_a_gap():
    declared = [
        int(found.group(1))
        for entry in PROJECT["project"]["classifiers"]
        if (found := re.fullmatch(r"Programming Language :: Python :: 3\.(\d+)", entry))
    ]
    oldest = int(PROJECT["project"]["requires-python"].removeprefix(">=3."))
    assert declared == list(range(oldest, oldest + len(declared)))
