"""The page: complete, self-contained, escaped, and well laid out in a real browser at two widths."""

import html
import re
import shutil
import subprocess
import sys

import pytest

from reproduction.__main__ import main
from reproduction.catalogue import TOY, Experiment
from reproduction.claims import Checked, Claim, Verdict
from reproduction.report import Facts, build_html, build_markdown, inline_svg, write_report

pytest.importorskip("matplotlib")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FACTS = Facts("python -m reproduction", "a machine", {"python": "3"}, quick=False)
CLAIM = Claim("a-claim", "toy", "A < B & so on.", "", lambda _: Verdict("held", ""))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What the command writes with no data at hand."""
    place = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NYSTROM_DATA", str(place / "nowhere"))
        code = main(["toy", "fig1", "fig8", "--quick", "--trials", "1", "--output", str(place / "out")])
    assert code == 0
    return place / "out"


@pytest.fixture(scope="module")
def page(folder):
    return (folder / "report.html").read_text(encoding="utf-8")


def test_the_command_writes_rows_figures_verdicts_and_the_page(folder):
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert names == {"rows-quick.jsonl", "figures/fig1.png", "figures/fig1.svg", "report.html", "verdicts.md"}


def test_missing_packages_and_unknown_figures_are_told_in_one_line(tmp_path, monkeypatch, capsys):
    place = tmp_path / "report"
    assert main(["fig99", "--output", str(place)]) == 2
    assert re.fullmatch(r"reproduction: error: figure must be among .*'fig99'.\n", capsys.readouterr().err)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["digits", "--quick", "--output", str(place)]) == 2
    assert "pip install matplotlib" in capsys.readouterr().err
    assert not place.exists()


def test_the_page_needs_no_other_file(page):
    assert not re.findall(r"""(?:src|href)=["'](?!#)[^"']*["']""", page.replace("xlink:href", "xlink"))
    assert "<script" not in page
    assert "@import" not in page


def test_the_page_says_what_is_missing_and_that_it_was_quick(page):
    assert "Quick run." in page
    assert "<b>Missing:</b> E2006-tfidf. Nothing was put in its place." in page
    assert "counterexample" in page
    assert "y is missing" not in page  # that claim belongs to figure 7, which was not asked for


def test_text_is_escaped():
    text = build_html([TOY], [], [Checked(CLAIM, Verdict("not held", "<b>1</b>", "x<y"))], {}, FACTS)
    assert "A &lt; B &amp; so on." in text
    assert "&lt;b&gt;1&lt;/b&gt;" in text
    assert "x&lt;y" in text


def test_stand_ins_are_marked_in_the_table_and_in_markdown():
    checked = [Checked(CLAIM, Verdict("held", "a | b", "epsilon-like"))]
    assert "(stand-in epsilon-like)" in build_html([TOY], [], checked, {}, FACTS)
    assert "| **held** | a \\| b *(on the stand-in epsilon-like)* |" in build_markdown(checked)


def test_an_experiment_without_claims_or_rows_still_has_its_section():
    empty = Experiment("mine", "Mine", "Nothing.", (), (), ours=True)
    assert '<section id="mine"><h2>Mine</h2>' in build_html([empty], [], [], {}, FACTS)


def test_inlined_svg_scales_with_its_container():
    text = '<?xml version="1.0"?>\n<svg width="1pt" height="2pt" viewBox="0 0 1 2"><metadata>x</metadata></svg>\n'
    assert inline_svg(text) == '<svg viewBox="0 0 1 2"></svg>'


def test_a_page_is_replaced_whole(tmp_path):
    write_report(tmp_path / "report.html", "one")
    write_report(tmp_path / "report.html", "two")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def in_browser(page, width, tmp_path):
    """Lay the page out in a frame of this width and return what a script measures there."""
    measure = """
    <script>onload = () => {
      const d = document.querySelector('iframe').contentDocument, root = d.documentElement;
      const shown = [...d.querySelectorAll('figure')].filter(f => f.getClientRects().length);
      const nav = [...d.querySelectorAll('nav a')].every(a => d.querySelector(a.getAttribute('href')));
      document.body.innerHTML = '<p id=found>' + [root.scrollWidth, shown.map(f => f.className).join('+'),
        Math.round(shown[0].getBoundingClientRect().width), nav, d.querySelectorAll('td.verdict').length].join(' ')
        + '</p>';
    }</script>"""
    frame = f'<iframe style="border:0" width={width} height=3000 srcdoc="{html.escape(page, quote=True)}"></iframe>'
    wrapper = tmp_path / "wrapper.html"
    wrapper.write_text(f"<!doctype html><meta charset=utf-8>{measure}<body>{frame}</body>", encoding="utf-8")
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    command += ["--virtual-time-budget=5000", "--dump-dom", wrapper.as_uri()]
    out = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True).stdout
    found = re.search(r'<p id="found">(.*?)</p>', out)
    assert found, out[-500:]
    return found.group(1).split()


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
@pytest.mark.parametrize(("width", "figure"), [(1280, "wide"), (390, "narrow")])
def test_in_a_browser_nothing_overflows_and_the_figure_fits_the_screen(page, width, figure, tmp_path):
    scroll_width, shown, figure_width, nav, verdicts = in_browser(page, width, tmp_path)
    assert int(scroll_width) <= width
    assert shown == figure
    assert 0.7 * min(width, 960) < int(figure_width) <= width
    assert nav == "true"
    assert int(verdicts) == page.count('<td class="verdict')
