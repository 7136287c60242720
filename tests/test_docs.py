"""The README and the pages run: every Python block, in order, and the commands that they promise."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    "README.md",
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "gallery"),
]


def python_blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", [page for page in PAGES if python_blocks(page)])
def test_the_python_of_a_page_runs_from_top_to_bottom(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in python_blocks(page):
        exec(compile(block, page, "exec"), names)
    import matplotlib.pyplot as plt

    plt.close("all")


def test_the_gate_runs_the_test_command_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (promised,) = re.findall(r"&& \.venv/bin/(pytest.*)$", readme, re.MULTILINE)
    gate = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert re.findall(r'^step "\$bin/(pytest)"(.*)$', gate, re.MULTILINE) == [
        ("pytest", promised.removeprefix("pytest"))
    ]


@pytest.mark.parametrize("page", PAGES)
def test_links_between_pages_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target:
            assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}, which is not there"


def test_the_map_in_contributing_names_every_room_and_no_file_that_is_gone() -> None:
    source = ROOT / "src" / "nystrom"
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.split("| room | what is in it |")[1].split("\n\n")[0]
    named = set()
    for line in table.splitlines()[2:]:
        _, rooms, content, _ = line.split("|")
        own = {room.rstrip("/") for room in re.findall(r"`([\w/]+)`", rooms)}
        named |= own
        for file in re.findall(r"`([\w/]+\.py)`", content):
            places = [source / file, *(source / room / file for room in own)]
            assert any(place.is_file() for place in places), f"{file} is in none of {rooms}"
    assert named == {path.stem for path in source.iterdir() if not path.name.startswith(("_", "py.typed"))}
