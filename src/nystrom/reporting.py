"""``report``: one offline page on a fitted model. Only this file imports jinja2, on use."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import KFold, StratifiedKFold
from threadpoolctl import threadpool_limits

from nystrom import __version__
from nystrom.checks import RandomState, check_count, make_generator
from nystrom.disk import replacing
from nystrom.engine.progress import format_numbers, make_progress
from nystrom.estimators.trust import has_left_out
from nystrom.exceptions import ApproximationWarning, FewerLandmarksWarning, MissingDependencyError, silenced
from nystrom.explanation import (
    MOST_ROWS,
    Dependence,
    Opened,
    answer,
    dependence_of,
    importance_of,
    open_model,
    parts_of,
)
from nystrom.plotting import (
    new_figure,
    plot_calibration,
    plot_dependence,
    plot_errors,
    plot_importance,
    plot_scores,
    to_svg,
)
from nystrom.rows import array_rows
from nystrom.scoring import ClassScores, make_scores
from nystrom.types import Array, RowsLike, TargetLike

BESIDE = ("boosting",)
# Maximum numbers of columns with their own picture, points of a scatter plot, rows and classes in tables.
_DRAWN, _POINTS, _LISTED, _MOST_CLASSES = 6, 1_000, 10, 12
# Maximum number of entries of the rows held in memory.
_MOST_ENTRIES = 20_000_000
# Rows and sizes of the refits with fewer landmarks, and the held-out share of these rows.
_REFIT_ROWS, _REFIT_SIZES, _HELD_OUT = 4_000, (25, 50, 100, 200, 400, 800), 0.25
_FOLDS = 5
_COVERAGES = (0.5, 0.8, 0.9, 0.95)
# Names and formats of the scores on the page.
_SHOWN = {
    "R2": ("R²", "{:.4f}"),
    "root mean square error": ("root mean square error", "{:.5g}"),
    "mean absolute error": ("mean absolute error", "{:.5g}"),
    "accuracy": ("accuracy", "{:.4f}"),
    "balanced accuracy": ("balanced accuracy", "{:.4f}"),
    "AUC": ("AUC", "{:.4f}"),
    "log-loss": ("log-loss", "{:.4f}"),
    "calibration error": ("calibration error", "{:.4f}"),
}
# What they mean.
_TERMS = {
    "R2": "R² is the explained share of the target's variance: 1 is perfect, 0 is no better than the mean.",
    "balanced accuracy": "Balanced accuracy is the mean share of each class that is found: rare classes count "
    "as much as frequent ones.",
    "AUC": "AUC is the chance that a row of a class is ranked above a row of another: 0.5 is chance, 1 perfect.",
    "log-loss": "Log-loss punishes confident errors; smaller is better.",
    "calibration error": "The calibration error is the mean gap between stated probability and observed share.",
}
# A class is missed if less than this share of its rows is found.
_FOUND = 0.5


def report(
    model: Any,
    X: RowsLike,
    y: TargetLike = None,
    out: str | os.PathLike[str] = "report.html",
    *,
    beside: str | None = None,
    max_rows: int = MOST_ROWS,
    verbose: bool | int = 0,
    random_state: RandomState = 0,
) -> Path:
    """Write one self-contained page on a fitted model: its scores against a baseline, the reasons, and where it fails.

    Scores, importances by original column, partial dependence of the leading columns; calibration and confusion of
    classes, errors and the coverage of intervals of numbers; the score with fewer landmarks; rows unlike those of the
    fit.

    Parameters
    ----------
    model : estimator or Pipeline
        A fitted machine with a target, or a pipeline that ends with one.
    X, y : rows and their target
        Use rows that the model was not fitted to; otherwise the scores are too good. y may be omitted if the rows
        hold it.
    out : path
        The page.
    beside : "boosting" or None
        Whether to compare with scikit-learn's gradient boosting on the same columns, in five folds of these rows.
    max_rows : int
        Rows drawn from X, at most.
    verbose : bool or int
        Whether to show progress.
    random_state : int, Generator, RandomState or None
        Seed.

    Returns
    -------
    Path
        The path of the page.

    Examples
    --------
    >>> import nystrom, numpy as np, tempfile
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> model = nystrom.KernelRidge(n_landmarks=20, random_state=0).fit(X[:100], X[:100, 0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     nystrom.report(model, X[100:], X[100:, 0], f"{folder}/report.html").name
    'report.html'
    """
    if beside is not None and beside not in BESIDE:
        raise ValueError(f"beside must be 'boosting' or None; got {beside!r}.")
    jinja = _jinja()
    path = Path(out)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {str(path.parent)!r} for the report does not exist: create it first.")
    rng = make_generator(random_state)
    machine = model.steps[-1][1] if hasattr(model, "steps") else model
    fitting = max(200, _MOST_ENTRIES // max(1, getattr(machine, "n_features_in_", 1)))
    most = min(check_count(max_rows, "max_rows", least=20), fitting)
    opened = open_model(model, X, y, with_target=True, max_rows=most, rng=rng)
    target = getattr(model.steps[0][1], "target", None) if hasattr(model, "steps") else None
    count = len(opened.spans)
    title = f"{target}, predicted from {count} column{'s' * (count != 1)}" if target else ""
    page = _Page(opened, rng, make_progress(verbose), title)
    environment = jinja.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(Path(__file__).with_name("report.html").read_text(encoding="utf-8"))
    text = template.render(page.contents(beside))
    with replacing(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")
    return path


def _jinja() -> Any:
    try:
        return import_module("jinja2")
    except ImportError as error:
        raise MissingDependencyError("jinja2", "report", "Writing a report") from error


@dataclass(frozen=True)
class _Page:
    """The contents of the page on a model and a sample of rows, section by section."""

    opened: Opened
    rng: np.random.Generator
    progress: Any
    title: str = ""

    def contents(self, beside: str | None) -> dict[str, Any]:
        """Return the values that the template shows."""
        machine = self.opened.machine
        scores = make_scores(machine)
        with self._stage("scores", len(self.y)) as advance:
            scores.judge(machine, array_rows(self.opened.X), self.y)
            advance(len(self.y))
        found = scores.result()
        by_class = scores if isinstance(scores, ClassScores) else None
        return {
            "version": __version__,
            "title": self.title or type(machine).__name__,
            "facts": self._facts(),
            "verdict": _verdict(found),
            "missed": _missed(by_class) if by_class else "",
            "terms": [_TERMS[name] for name in _TERMS if name in found],
            "held_out": _held_out(getattr(machine, "held_out_", None)),
            "scores": self._score_table(found, beside),
            "folds": _FOLDS if beside else 0,
            "n_rows": f"{len(self.y):,}",
            "sampled": f"{self.opened.n_rows:,}" if self.opened.n_rows > len(self.y) else "",
            **self._reasons(),
            "calibration": _calibration(by_class) if by_class else "",
            "confusion": _confusion(by_class) if by_class else None,
            "residuals": "" if by_class else self._residuals(),
            "coverages": [] if by_class else self._coverages(),
            "sizes": self._sizes(),
            **self._unlike(),
        }

    @property
    def y(self) -> Array:
        return np.asarray(self.opened.y)

    @contextmanager
    def _stage(self, label: str, total: int) -> Iterator[Callable[[int], None]]:
        """Report the progress of a stage through the function that is yielded."""
        self.progress.start(label, total)
        yield self.progress.advance
        self.progress.stop()

    def _facts(self) -> list[tuple[str, str]]:
        machine = self.opened.machine
        facts = [
            ("machine", type(machine).__name__),
            ("kernel", format_numbers(repr(machine.kernel_))),
            ("landmarks", f"{machine.landmarks_.shape[0]:,}"),
        ]
        if hasattr(machine, "certificate_"):
            facts.append(("kernel explained", f"{1 - machine.certificate_.trace.value:.1%}"))
            facts.append(("rows of the fit", f"{machine.certificate_.n_rows:,}"))
        for name in ("alpha_", "C_"):
            value = np.ravel(getattr(machine, name, []))
            if value.size:
                facts.append((name.rstrip("_"), f"{float(value[0]):.4g}"))
        names = [span.name for span in self.opened.spans]
        shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
        return [*facts, ("columns", f"{len(names)}: {shown}")]

    def _score_table(self, found: dict[str, Any], beside: str | None) -> dict[str, Any]:
        named = [name for name in _SHOWN if name in found]
        lines = [("this model", found), ("baseline", self._baseline())]
        if beside:
            lines += self._in_folds()
        # One row per score: on a phone, the first columns are this model and the baseline.
        cells = [
            [label, *(form.format(values[name]) if name in values else "–" for _, values in lines)]
            for name, (label, form) in ((name, _SHOWN[name]) for name in named)
        ]
        return {"head": [label for label, _ in lines], "rows": cells}

    def _baseline(self) -> dict[str, Any]:
        """Return the scores of always predicting the mean, or the most frequent class, of these rows."""
        scores = make_scores(self.opened.machine)
        if isinstance(scores, ClassScores):
            labels, counts = np.unique(self.y, return_counts=True)
            guess = np.full(len(self.y), labels[np.argmax(counts)])
        else:
            guess = np.broadcast_to(self.y.mean(axis=0), self.y.shape)
        scores.add(self.y, guess)
        return scores.result()

    def _in_folds(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the cross-validated scores of this machine and of boosting."""
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

        X, y, machine = self.opened.X, self.y, self.opened.machine
        classes = hasattr(machine, "classes_")
        if not classes and y.ndim > 1 and y.shape[1] > 1:
            raise ValueError(f"beside='boosting' takes one target; these rows have {y.shape[1]}.")
        boosting = (HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor)(random_state=0)
        folds = (StratifiedKFold if classes else KFold)(_FOLDS, shuffle=True, random_state=0)
        lines = []
        # OpenMP threads wait for each other: on busy cores, boosting with two threads took 30 times as long.
        with self._stage("folds", 2 * len(y)) as advance, threadpool_limits(1, "openmp"):
            for label, estimator in (("this model, refitted", machine), ("boosting, refitted", boosting)):
                scores = make_scores(machine)
                for train, test in folds.split(X, y):
                    with silenced(FewerLandmarksWarning), silenced(ApproximationWarning):
                        fitted = clone(estimator).fit(X[train], y[train].reshape(len(train), *y.shape[1:]))
                    scores.judge(fitted, X[test], y[test])
                    advance(len(test))
                lines.append((label, scores.result()))
        return lines

    def _reasons(self) -> dict[str, Any]:
        """Return importances by original column, and the dependence on the leading ones."""
        opened, repeats, probable = self.opened, 3, hasattr(self.opened.machine, "predict_proba")
        with self._stage("importances", repeats * len(opened.X) * len(opened.spans)) as advance:
            importance = importance_of(opened, repeats, self.rng, advance)
        shown = min(20, len(opened.spans))
        leading = [j for j in importance.order[:_DRAWN] if importance.high[j] > 0]
        pictures = []
        parts = [part for j in leading for part in parts_of(opened.spans[j])]
        with self._stage("dependence", len(opened.X) * len(parts)) as advance:
            for j, part in enumerate(parts):
                found = dependence_of(opened, part, 20, 200, self.rng)
                # Room for the name of each category.
                height = max(2.8, 0.9 + 0.16 * len(found.grid)) if found.grid.dtype.kind == "U" else 2.8
                pictures.append(_picture(f"dependence{j}", partial(_draw_dependence, found, probable), height))
                advance(len(opened.X))
        metric = importance.metric
        shares = (
            []
            if metric is None
            else [(opened.spans[j].name, f"{metric[j]:.1%}") for j in np.argsort(-metric)[:_LISTED]]
        )
        bars = _picture("importance", lambda ax: plot_importance(importance, most=shown, ax=ax), 1.2 + 0.25 * shown)
        return {"importance": bars, "metric": shares, "dependence": pictures}

    def _residuals(self) -> str:
        """Return the errors of the first target, for a limited number of rows."""
        few = self.rng.permutation(len(self.y))[:_POINTS]
        truth, guess = self.y.reshape(len(self.y), -1)[few, 0], answer(self.opened.machine, self.opened.X[few])[:, 0]
        return _picture("residuals", lambda ax: plot_errors(truth, guess, ax=ax))

    def _coverages(self) -> list[tuple[str, str, str]]:
        """Return the share of targets inside intervals of several coverages, and the mean width; empty if none."""
        machine, rows, truth = self.opened.machine, array_rows(self.opened.X), self.y.reshape(len(self.y), -1)
        if truth.shape[1] > 1 or not has_left_out(machine):
            return []
        ends = [np.asarray(machine.predict_interval(rows, coverage=coverage)) for coverage in _COVERAGES]
        inside = [np.mean((truth[:, 0] >= low) & (truth[:, 0] <= high)) for low, high in (each.T for each in ends)]
        widths = [float(np.mean(each[:, 1] - each[:, 0])) for each in ends]
        return [(f"{c:.0%}", f"{i:.1%}", f"{w:.4g}") for c, i, w in zip(_COVERAGES, inside, widths, strict=True)]

    def _sizes(self) -> str:
        """Return the score of refits with fewer landmarks on a sample of the rows; nothing if there are few rows."""
        machine, n = self.opened.machine, min(_REFIT_ROWS, len(self.y))
        test, train = np.split(self.rng.permutation(len(self.y))[:n], [int(_HELD_OUT * n)])
        most = min(len(train) // 2, machine.landmarks_.shape[0])
        # Leave out a size close to the largest one: it says little, and their labels would overlap.
        sizes = [size for size in _REFIT_SIZES if 1.5 * size <= most] + [most]
        if len(sizes) < 2 or not (machine.map_.kernel.has_coordinates and isinstance(machine.landmarks, str)):
            return ""
        # Use the fitted kernel: do not search its width or metric again.
        fixed = {"kernel": machine.map_.kernel, "gamma": "scale", "metric": None, "verbose": 0, "n_components": None}
        fixed = {name: value for name, value in fixed.items() if name in machine.get_params()}
        found = []
        with self._stage("fewer landmarks", n * len(sizes)) as advance:
            for size in sizes:
                with silenced(FewerLandmarksWarning), silenced(ApproximationWarning):
                    smaller = clone(machine).set_params(**fixed, n_landmarks=size)
                    smaller.fit(self.opened.X[train], self.y[train])
                scores = make_scores(smaller)
                scores.add(self.y[test], np.asarray(smaller.predict(self.opened.X[test])))
                result = scores.result()
                found.append(float(result["R2"] if "R2" in result else result["accuracy"]))
                advance(n)
        name = "accuracy" if hasattr(machine, "classes_") else "R²"
        return _picture("sizes", lambda ax: plot_scores(sizes, found, name, ax=ax))

    def _unlike(self) -> dict[str, Any]:
        machine = self.opened.machine
        if not (has_left_out(machine) and machine.map_.kernel.has_coordinates):
            return {"unlike": None}
        lost = np.flatnonzero(machine.unlike(array_rows(self.opened.X)))
        shown = lost[:_LISTED]
        guess = np.asarray(machine.predict(array_rows(self.opened.X))[shown])
        cells = [
            (f"{self.opened.numbers[i]:,}", _plain(self.y[i]), _plain(said))
            for i, said in zip(shown, guess, strict=True)
        ]
        share = f"{len(lost) / len(self.y):.1%}"
        return {"unlike": f"{len(lost):,}", "unlike_share": share, "unlike_rows": cells}


def _verdict(found: dict[str, Any]) -> str:
    if "accuracy" in found:
        return (
            f"{found['accuracy']:.1%} of {found['rows']:,} rows are classified correctly, against "
            f"{found['baseline accuracy']:.1%} by always naming the most frequent class."
        )
    gain = 1 - found["root mean square error"] / found["baseline error"] if found["baseline error"] else 0.0
    better = f"{gain:.0%} smaller than" if gain > 0 else "no smaller than"
    return (
        f"R² is {found['R2']:.3f} on {found['rows']:,} rows: the root mean square error, "
        f"{found['root mean square error']:.4g}, is {better} that of always predicting the mean, "
        f"{found['baseline error']:.4g}."
    )


def _missed(scores: ClassScores) -> str:
    """Return the classes of which most rows are missed, which a high accuracy may hide; empty if there are none."""
    missed = [
        f"{label} ({round(values['recall'] * values['rows']):,} of {values['rows']:,} rows found)"
        for label, values in scores.per_class().items()
        if values["rows"] and values["recall"] < _FOUND
    ]
    return f"It misses most of: {', '.join(missed[:_LISTED])}." if missed else ""


def _held_out(score: dict[str, Any] | None) -> str:
    """Return the scores of the command ``fit`` on its held-out rows; empty if unknown."""
    if score is None:
        return ""
    name = score["name"].replace("R2", "R²")
    return (
        f"When it was fitted, {score['rows']:,} rows were held out from a first fit: {name} {score['value']:.3f} "
        f"(95\u00a0% interval {score['low']:.3f} to {score['high']:.3f}), baseline {score['baseline']:z.3f}."
    )


def _calibration(scores: ClassScores) -> str:
    if not scores.calibration.any():
        return ""
    return _picture("calibration", lambda ax: plot_calibration(scores.calibration, ax=ax))


def _confusion(scores: ClassScores) -> dict[str, Any] | None:
    """Return the rows of the confusion matrix with recall and precision; None for too many classes."""
    figures = scores.per_class()
    if len(figures) > _MOST_CLASSES:
        return None
    lines = []
    for label, values in figures.items():
        counts = [scores.pairs[label, other] for other in figures]
        shares = [count / max(1, values["rows"]) for count in counts]
        cells = [(f"{count:,}", f"{0.6 * share:.2f}") for count, share in zip(counts, shares, strict=True)]
        lines.append((str(label), cells, *(_percent(values[name]) for name in ("recall", "precision"))))
    return {"labels": [str(label) for label in figures], "rows": lines}


def _percent(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.1%}"


def _draw_dependence(found: Dependence, probable: bool, ax: Any) -> None:
    """Draw a dependence; probabilities have the same axis in all pictures, so that small effects look small."""
    plot_dependence(found, ax=ax)
    if not probable:
        return
    axis, limit = (ax.xaxis, ax.set_xlim) if found.grid.dtype.kind == "U" else (ax.yaxis, ax.set_ylim)
    single = f"probability of {axis.get_label_text()}"
    axis.set_label_text(single if len(found.outputs) == 1 else "mean probability of each class")
    limit(-0.03, 1.03)


def _picture(name: str, draw: Callable[[Any], Any], height: float = 2.8) -> str:
    # Narrow, so that text stays readable on a phone, where the picture is 340 pixels wide.
    figure, (ax,) = new_figure(4.3, height)
    draw(ax)
    return to_svg(figure, name)


def _plain(value: Any) -> str:
    values = np.ravel(value)
    return ", ".join(f"{each:.5g}" if values.dtype.kind == "f" else str(each) for each in values)
