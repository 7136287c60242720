"""The README and the pages run: every block of Python and shell, in order, printing what the page says."""

from __future__ import annotations

import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import nystrom
import pages

ROOT = Path(__file__).parents[1]
PAGES = [
    "README.md",
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "gallery"),
]


@pytest.mark.parametrize("page", [page for page in PAGES if pages.blocks(page)])
def test_every_block_of_a_page_runs_and_prints_what_the_page_says(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    if page == "docs/devices.md":
        pytest.importorskip("torch")
        monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # as in a Python that was started there
    if page == "README.md":
        make_houses()
    pages.run_page(page)
    import matplotlib.pyplot as plt

    plt.close("all")


def make_houses() -> None:
    """Write the tables that the README takes for granted: those of the start page."""
    first = next(block for block in pages.blocks("docs/index.md") if block.kind == "python")
    exec(compile(first.text, "docs/index.md", "exec"), {})


def test_a_block_that_prints_is_followed_by_its_output() -> None:
    for page in PAGES:
        found = pages.blocks(page)
        for block, after in zip(found, [*found, None][1:], strict=True):
            if block.kind == "python" and "print(" in block.text:
                assert after is not None, f"{page}:{block.line}"
                assert after.kind == "output", f"{page}:{block.line} prints, and the page does not say what"


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("R² 0.92 in 3 rows", "R² 0.9231 in 3 rows\n"),
        ("a ... z", "a b\nc z"),
        ("[1. 2.5e-3]", "[1.  2.4999e-03]"),
    ],
)
def test_output_agrees_to_the_digits_shown(shown: str, printed: str) -> None:
    pages.require_same(shown, printed, "here")


@pytest.mark.parametrize(("shown", "printed"), [("0.92", "0.95"), ("3 rows", "4 rows"), ("a ... z", "a b"), ("a", "")])
def test_other_output_does_not_agree(shown: str, printed: str) -> None:
    with pytest.raises(AssertionError, match="here shows"):
        pages.require_same(shown, printed, "here")


MACHINES = [name for name in nystrom.__all__ if inspect.isclass(getattr(nystrom, name))]


@pytest.mark.parametrize("name", MACHINES)
def test_the_page_of_a_machine_calls_every_public_method(name: str) -> None:
    machine = getattr(nystrom, name)
    code = "".join(block.text for block in pages.blocks(f"docs/api/{name}.md"))
    # Metadata routing and callbacks (from version 1.9 on) are scikit-learn's own.
    foreign = re.compile("^_|_request$|_routing$|^set_callbacks$")
    public = {each for each in dir(machine) if not foreign.search(each)}
    assert {each for each in public if not re.search(rf"\.{each}\b", code)} == set()


FUNCTION_PAGES = sorted(
    path.stem for path in (ROOT / "docs" / "api").glob("*.md") if path.stem not in {*MACHINES, "index"}
)


@pytest.mark.parametrize("page", FUNCTION_PAGES)
def test_a_page_of_functions_shows_each_in_use(page: str) -> None:
    text = (ROOT / "docs" / "api" / f"{page}.md").read_text(encoding="utf-8")
    listed = re.findall(r"\w+", "".join(re.findall(r"\bmembers:(.*(?:\n +- \w+)*)", text)))
    code = "".join(block.text for block in pages.blocks(f"docs/api/{page}.md"))
    for name in re.findall(r"^::: (nystrom[.\w]*)", text, re.MULTILINE):
        place = pkgutil.resolve_name(name)
        shown = [getattr(place, each) for each in listed or place.__all__] if inspect.ismodule(place) else [place]
        for each in shown:
            called = re.search(rf"\b{each.__name__}\b", code)
            assert inspect.isclass(each) or called or ">>>" in (each.__doc__ or ""), each.__name__
        assert code or any(">>>" in (each.__doc__ or "") for each in shown)


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
        # The gallery's pages are written when the site is built, which checks links to them.
        if "://" not in target and not target.startswith("gallery/"):
            assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}, which is not there"


# The most words of a page outside tables and code. Pages of evidence without a limit of their own have that of a guide.
WORDS = {"README.md": 900, "docs/performance.md": 1500, "docs/reproduction.md": 1500}
# Words of a diary or of a private dialect: pages and comments describe the code as it is, in plain English.
AVOIDED = re.compile(
    r"earlier version|version before(?! \d)|in sight|so many|\bstands? for\b|\bfeels?\b|leaves? first|the same is said",
    re.IGNORECASE,
)


@pytest.mark.parametrize("page", [page for page in PAGES if not page.startswith("docs/api/")])
def test_a_page_is_short(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    if page != "README.md":
        text = re.sub(r"^```.*?^```$|^\|.*?$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert len(text.split()) <= WORDS.get(page, 1200)


def test_the_newest_version_in_the_changelog_is_short() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert len(text.split("\n## ")[1].splitlines()) <= 60


@pytest.mark.parametrize("folder", ["docs", "src", "tests", "benchmarks", "examples", "reproduction", "tools", "."])
def test_pages_and_comments_avoid_the_words_of_a_diary_and_of_a_dialect(folder: str) -> None:
    found = (ROOT / folder).glob("*.md") if folder == "." else (ROOT / folder).rglob("*.*")
    for path in found:
        if path.suffix in (".py", ".md", ".cpp", ".h", ".hpp") and path != Path(__file__):
            said = AVOIDED.search(path.read_text(encoding="utf-8"))
            assert said is None, f"{path.relative_to(ROOT)}: {said[0] if said else ''}"


def test_the_map_in_contributing_names_every_room() -> None:
    source = ROOT / "src" / "nystrom"
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    layout = text.split("## How the code is laid out")[1].split("\n## ")[0]
    table = next(part for part in layout.split("\n\n") if part.startswith("| room"))
    assert len(table.splitlines()) <= 40
    named = {name.rstrip("/") for line in table.splitlines() for name in re.findall(r"`([\w/]+)`", line.split("|")[1])}
    folders = {path.parent.relative_to(source).as_posix() for path in source.rglob("*.py")} - {"."}
    files = {path.stem for path in source.glob("*.py") if not path.stem.startswith("__")}
    assert folders | files <= named
    assert {name for name in named if not (source / name).exists() and not (source / f"{name}.py").exists()} == set()
