"""The report: what it says is what the model does, on one page that needs nothing else."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline

import nystrom
from nystrom import reporting
from nystrom.commands import main as cli
from nystrom.exceptions import MissingDependencyError
from nystrom.explanation import dependence_of, open_model, parts_of
from nystrom.plotting import new_figure
from nystrom.preprocessing import TableEncoder

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")

NASTY = "fee in $ or $ <b>&</b>"


def make_table(n=400, *, classes=False):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"size": rng.normal(size=n), "town": rng.choice(["Bern", "Oslo"], n), NASTY: rng.normal(size=n)}
    )
    table["y"] = 3 * table["size"] + (table.town == "Oslo") + 0.3 * rng.normal(size=n)
    if classes:
        table["y"] = np.where(table.y > 1, "high <i>", "low")
    return table


def fitted(table, machine):
    return make_pipeline(TableEncoder("y"), machine.set_params(random_state=0)).fit(table)


class Page(HTMLParser):
    """The tags, the texts outside pictures and styles, and the cells of the tables of a page."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.words, self.cells, self.links, self._open = [], [], [], [], []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self._open.append(tag)
        self.links += [value for name, value in attributes if name in ("href", "src", "xlink:href")]
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag):
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data):
        if "svg" not in self._open and "style" not in self._open:
            self.words.append(data)
            if "td" in self._open or "th" in self._open:
                self.cells[-1] += data

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def heads(page):
    return re.findall(r"<h2>(.*?)</h2>", page.read_text(encoding="utf-8"))


def test_numbers(tmp_path):
    table = make_table()
    model = fitted(table[:200], nystrom.KernelRidge(n_landmarks=60, alpha="auto", fit_intercept=True))
    path = nystrom.report(model, table[200:], out=tmp_path / "page.html", beside="boosting")
    page = Page(path)
    score = model.score(table[200:])
    assert f"R² is {score:.3f} on 200 rows" in page.text
    assert page.cells[:5] == ["", "this model", "baseline", "this model, refitted", "boosting, refitted"]
    at = page.cells.index("R²")
    assert page.cells[at + 1 : at + 3] == [f"{score:.4f}", "0.0000"]
    assert all(0.5 < float(cell) < 1 for cell in page.cells[at + 3 : at + 5])
    shown = {"Which columns matter", "Residuals", "Coverage of the intervals"}
    assert shown | {"Score by number of landmarks"} <= set(heads(path))
    assert "Which classes are confused" not in heads(path)


def test_probabilities_have_one_axis_in_all_pictures():
    table = make_table(classes=True)
    opened = open_model(
        fitted(table, nystrom.KernelRidgeClassifier(n_landmarks=60)), table, rng=np.random.default_rng(0)
    )
    for span in opened.spans:
        found = dependence_of(opened, span, 20, 50, np.random.default_rng(0))
        _, (ax,) = new_figure(4, 3)
        reporting._draw_dependence(found, True, ax)
        at_side = found.grid.dtype.kind != "U"
        assert (ax.get_ylabel() if at_side else ax.get_xlabel()) == "probability of low"
        assert len(ax.lines) == 50 + 1  # single rows and their mean
        assert (ax.get_ylim() if at_side else ax.get_xlim()) == (-0.03, 1.03)


def test_sizes_close_to_the_largest_are_left_out(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(reporting, "plot_scores", lambda sizes, *told, ax: drawn.append(sizes))
    table = make_table()
    model = fitted(table, nystrom.KernelRidge(alpha=1.0, n_landmarks=120))
    nystrom.report(model, table, out=tmp_path / "page.html")
    assert drawn == [[25, 50, 120]]


@pytest.mark.parametrize("kind", [nystrom.KernelLogisticRegression, nystrom.KernelRidgeClassifier])
def test_classes(kind, tmp_path):
    table = make_table(classes=True)
    model = fitted(table[:200], kind(n_landmarks=60))
    path = nystrom.report(model, table[200:], out=tmp_path / "page.html")
    page, guess, truth = Page(path), model.predict(table[200:]), table.y[200:].to_numpy()
    assert f"{np.mean(guess == truth):.1%} of 200 rows are classified correctly" in page.text
    at = page.cells.index("high <i>", page.cells.index("true \\ predicted") + 3)
    counts = [int(cell) for cell in page.cells[at + 1 : at + 3]]
    assert counts == [np.sum((truth == "high <i>") & (guess == label)) for label in ("high <i>", "low")]
    assert ("Calibration of the probabilities" in heads(path)) == hasattr(model[-1], "predict_proba")


def test_the_page_needs_nothing_else_and_names_are_escaped(tmp_path):
    table = make_table()
    model = fitted(table, nystrom.KernelRidge(alpha=1.0, n_landmarks=60))
    path = nystrom.report(model, table, out=tmp_path / "page.html")
    page = Page(path)
    assert "script" not in page.tags
    assert "link" not in page.tags
    assert "img" not in page.tags
    assert "b" not in page.tags
    assert "i" not in page.tags
    assert all(link.startswith("#") for link in page.links)
    assert NASTY in page.text
    # Pictures take their colours from the page, which has two sets of them, and no two parts share a name.
    text = path.read_text(encoding="utf-8")
    assert "prefers-color-scheme: dark" in text
    assert "var(--ink)" in text
    assert not re.search(r"(fill|stroke): (#222222|#000000|#6b6b6b)", text)
    # Text of the default colour has none of its own in an SVG.
    assert ".card svg text { fill: var(--ink); }" in text
    named = re.findall(r'id="([^"]+)"', text)
    assert len(named) == len(set(named))
    targets = set(re.findall(r"url\(#([^)]+)\)", text)) | {link[1:] for link in page.links}
    assert targets
    assert targets <= set(named)


def test_intervals_cover_and_rows_far_from_all_are_named(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=600)
    model = nystrom.GaussianProcessRegressor(n_landmarks=80, random_state=0).fit(X[:300], y[:300])
    X[450] += 50
    page = Page(nystrom.report(model, X[300:], y[300:], tmp_path / "page.html"))
    at = page.cells.index("90%")
    assert 0.8 < float(page.cells[at + 1].rstrip("%")) / 100 <= 1
    named = page.cells[page.cells.index("row") + 3 :: 3]
    assert f"{len(named)} of 300 rows ({len(named) / 300:.1%}) are unlike the rows of the fit" in page.text
    assert "150" in named
    assert len(named) < 9


def test_a_sample_of_many_rows_is_said_to_be_one(tmp_path):
    table = make_table()
    model = fitted(table, nystrom.KernelRidge(alpha=1.0, n_landmarks=60))
    page = Page(nystrom.report(model, table, out=tmp_path / "page.html", max_rows=100))
    assert "On 100 rows drawn from 400" in page.text


def test_what_cannot_be_is_refused(tmp_path, monkeypatch):
    table = make_table()
    model = fitted(table, nystrom.KernelRidge(alpha=1.0, n_landmarks=60))
    with pytest.raises(ValueError, match="beside must be 'boosting' or None; got 'trees'"):
        nystrom.report(model, table, out=tmp_path / "page.html", beside="trees")
    with pytest.raises(FileNotFoundError, match="create it first"):
        nystrom.report(model, table, out=tmp_path / "no" / "page.html")

    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(reporting, "import_module", absent)
    with pytest.raises(MissingDependencyError, match="pip install jinja2"):
        nystrom.report(model, table, out=tmp_path / "page.html")


def test_from_the_shell(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    table = make_table()
    table.to_csv("table.csv", index=False)
    assert cli.main(["fit", "table.csv", "--target", "y", "--n-landmarks", "50", "--out", "m"]) == 0
    assert cli.main(["report", "m", "table.csv", "--out", "page.html"]) == 0
    score = nystrom.load("m").score("table.csv")
    assert f"R² is {score:.3f} on 400 rows" in Page(tmp_path / "page.html").text
    np.save("X.npy", np.random.default_rng(0).normal(size=(100, 3)))
    assert cli.main(["fit", "X.npy", "--target", "2", "--n-landmarks", "20", "--out", "n"]) == 0
    assert cli.main(["report", "n", "X.npy", "--target", "2", "--out", "other.html", "--json"]) == 0
    assert "on 100 rows" in Page(tmp_path / "other.html").text
    capsys.readouterr()
    assert cli.main(["report", "m", "table.csv", "--out", "page.pdf"]) == 2
    assert "must end in one of .html" in capsys.readouterr().err


def test_cycles_of_a_date_are_drawn_one_by_one(tmp_path):
    times = pd.Timestamp("2023-01-05") + pd.to_timedelta(np.arange(800) * 13, unit="h")
    rush = 20.0 * np.isin(times.hour, (7, 8, 9)) + 5.0 * (times.day_of_week >= 5)
    frame = pd.DataFrame({"leaves": times.strftime("%d.%m.%Y %H:%M"), "load": rush})
    model = make_pipeline(TableEncoder(target="load"), nystrom.KernelRidge(n_landmarks=300, random_state=0)).fit(frame)
    page = nystrom.report(model, frame, out=tmp_path / "page.html").read_text(encoding="utf-8")
    assert "load, predicted from 1 column<" in page
    for part in ("leaves, hour", "leaves, weekday", "leaves, month", "leaves, trend"):
        assert part in page
    opened = open_model(model, frame, rng=np.random.default_rng(0))
    hour, weekday, *_ = (
        dependence_of(opened, part, 20, 200, np.random.default_rng(0)) for part in parts_of(opened.spans[0])
    )
    assert 7 <= hour.grid[np.argmax(hour.values)] <= 9
    assert 5 <= weekday.grid[np.argmax(weekday.values)] < 7
