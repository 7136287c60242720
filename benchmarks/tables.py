"""Our machines against boosted trees and others on real tables, the same preprocessing for all.

    python -m benchmarks.tables --splits 5 --out tables.json --picture tables.png
    python -m benchmarks.tables --splits 1 --most-rows 10000 --only phoneme segment

Every table is split in three quarters and one, standardised and encoded by the first part. Errors are the share of
wrong classes, or the root mean squared error over the deviation of the target. Seconds are processor time of fit and
prediction, all threads together. ``xrfm`` takes part where it is installed (``pip install torch xrfm``).
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.table_data import Table, encode, tables
from nystrom import KernelLogisticRegression, KernelRidge

Array = np.ndarray
# A ratio of errors this near to 1 is a tie.
TIE = 0.02
# Rows up to which the exact support vector machines take part: above, they need more than ten minutes.
SVM_ROWS = 20_000


def ours(classes: bool) -> Any:
    """Return our machine with everything chosen by itself."""
    options = {"kernel": "auto", "metric": "auto", "random_state": 0}
    return (
        KernelLogisticRegression("auto", **options) if classes else KernelRidge("auto", fit_intercept=True, **options)
    )


def plain(classes: bool) -> Any:
    """Return the same machine with a Gaussian kernel that treats all columns alike."""
    options = {"random_state": 0}
    return (
        KernelLogisticRegression("auto", **options) if classes else KernelRidge("auto", fit_intercept=True, **options)
    )


def boosting(classes: bool, **options: Any) -> Any:
    """Return scikit-learn's boosted trees."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    make = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    return make(random_state=0, **options)


def long_boosting(classes: bool) -> Any:
    """Return boosted trees of up to 500 rounds."""
    return boosting(classes, max_iter=500, early_stopping=True)


def pipeline(classes: bool) -> Any:
    """Return scikit-learn's own Nyström pipeline, its penalty chosen by cross-validation."""
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.pipeline import make_pipeline

    linear = LogisticRegression(C=10.0, max_iter=300) if classes else RidgeCV(np.geomspace(1e-6, 10, 15))
    return make_pipeline(Nystroem(n_components=300, random_state=0), linear)


def support_vectors(classes: bool) -> Any:
    """Return scikit-learn's exact support vector machine."""
    from sklearn.svm import SVC, SVR

    return SVC(C=10.0, random_state=0) if classes else SVR(C=10.0)


def feature_machine(classes: bool) -> Any:
    """Return xRFM at its defaults."""
    from xrfm import xRFM

    return xRFM(device="cpu", verbose=False, tuning_metric="accuracy" if classes else "mse")


CONTESTANTS: dict[str, Callable[[bool], Any]] = {
    "ours": ours,
    "plain": plain,
    "boosting": boosting,
    "boosting500": long_boosting,
    "svm": support_vectors,
    "sklearn-nystroem": pipeline,
    "xrfm": feature_machine,
}


def contest(table: Table, split: int, names: Iterable[str]) -> list[dict[str, Any]]:
    """Return one record for each contestant on one split of a table."""
    from sklearn.model_selection import train_test_split

    y = np.unique(table.target, return_inverse=True)[1] if table.classes else np.asarray(table.target, dtype=float)
    train, test = train_test_split(
        np.arange(len(y)), test_size=0.25, random_state=split, stratify=y if table.classes else None
    )
    X, new = encode(table.columns.iloc[train], table.columns.iloc[test])
    scale = (0.0, 1.0) if table.classes else (y[train].mean(), y[train].std())
    z = y if table.classes else (y - scale[0]) / scale[1]
    records = []
    for name in names:
        if name == "svm" and len(train) > SVM_ROWS:
            continue
        found = run(CONTESTANTS[name](table.classes), X, z[train], new, z[test], table.classes, xrfm=name == "xrfm")
        records.append(
            {
                "table": table.name,
                "rows": len(y),
                "columns": X.shape[1],
                "classes": table.classes,
                "split": split,
                "name": name,
                **found,
            }
        )
    return records


def run(model: Any, X: Array, y: Array, new: Array, target: Array, classes: bool, *, xrfm: bool) -> dict[str, Any]:
    """Fit, predict, and return error, log-loss and seconds."""
    began, clock = time.process_time(), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if xrfm:
            cut = len(X) * 4 // 5  # it asks for rows to choose its number of steps by
            model.fit(
                X[:cut].astype(np.float32),
                y[:cut].astype(np.float32) if not classes else y[:cut],
                X[cut:].astype(np.float32),
                y[cut:].astype(np.float32) if not classes else y[cut:],
            )
            new = new.astype(np.float32)
        else:
            model.fit(X, y)
        predicted = np.asarray(model.predict(new)).ravel()
        probabilities = model.predict_proba(new) if classes and hasattr(model, "predict_proba") else None
    found: dict[str, Any] = {"seconds": time.process_time() - began, "wall": time.perf_counter() - clock}
    if not classes:
        found["error"] = float(np.sqrt(np.mean((predicted - target) ** 2)) / target.std())
        return found
    found["error"] = float(np.mean(predicted != target))
    if probabilities is not None and probabilities.shape[1] == target.max() + 1:
        right = np.clip(np.asarray(probabilities, dtype=float)[np.arange(len(target)), target], 1e-15, 1)
        found["log_loss"] = float(-np.log(right).mean())
    return found


def summarise(records: list[dict[str, Any]]) -> str:
    """Return the means of each table, and how often each contestant was better than default boosting."""
    names = [name for name in CONTESTANTS if any(r["name"] == name for r in records)]
    lines = ["| table | rows | columns | " + " | ".join(names) + " |", "|---" * (3 + len(names)) + "|"]
    results = means(records)
    for table, by_name in results.items():
        first = next(r for r in records if r["table"] == table)
        cells = [_cell(by_name.get(name)) for name in names]
        lines.append(f"| {table} | {first['rows']} | {first['columns']} | " + " | ".join(cells) + " |")
    lines.append("")
    for kind, classes in (("classes", True), ("numbers", False)):
        for name in names:
            chosen = (
                {t: r for t, r in results.items() if r["boosting"]["classes"] == classes} if "boosting" in names else {}
            )
            ratios = [r[name]["error"] / max(r["boosting"]["error"], 1e-9) for r in chosen.values() if name in r]
            if name != "boosting" and ratios:
                wins, losses = sum(q < 1 - TIE for q in ratios), sum(q > 1 + TIE for q in ratios)
                pace = np.median([r[name]["seconds"] / r["boosting"]["seconds"] for r in chosen.values() if name in r])
                lines.append(
                    f"{kind}: {name} against boosting: {wins} wins, {len(ratios) - wins - losses} ties, {losses} "
                    f"losses; ratio of errors at worst {max(ratios):.2f}, geometric mean "
                    f"{np.exp(np.mean(np.log(np.maximum(ratios, 1e-3)))):.3f}; median ratio of seconds {pace:.1f}"
                )
    return "\n".join(lines)


def means(records: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the mean error, log-loss and seconds over the splits, by table and contestant."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for table in dict.fromkeys(r["table"] for r in records):
        for name in dict.fromkeys(r["name"] for r in records if r["table"] == table):
            here = [r for r in records if r["table"] == table and r["name"] == name]
            numbers = {
                key: float(np.mean([r[key] for r in here]))
                for key in ("error", "seconds", "log_loss")
                if key in here[0]
            }
            found.setdefault(table, {})[name] = {**numbers, "classes": here[0]["classes"]}
    return found


def _cell(found: dict[str, Any] | None) -> str:
    if found is None:
        return "–"
    error = f"{100 * found['error']:.2f} %" if found["classes"] else f"{found['error']:.4f}"
    loss = f", {found['log_loss']:.3f}" if "log_loss" in found else ""
    return f"{error}{loss} ({found['seconds']:.1f} s)"


def draw(records: list[dict[str, Any]], path: Path) -> None:
    """Draw the error of each contestant over that of default boosting, one line per table."""
    from nystrom.plotting import MARKERS, PALETTE, new_figure, save_figure

    results = {t: r for t, r in means(records).items() if "boosting" in r and "ours" in r}
    order = sorted(results, key=lambda t: results[t]["ours"]["error"] / max(results[t]["boosting"]["error"], 1e-9))
    figure, (ax,) = new_figure(7, 1 + 0.28 * len(order))
    names = [name for name in CONTESTANTS if name != "boosting" and any(name in r for r in results.values())]
    for i, name in enumerate(names):
        points = [
            (results[t][name]["error"] / max(results[t]["boosting"]["error"], 1e-9), k)
            for k, t in enumerate(order)
            if name in results[t]
        ]
        x, k = zip(*points, strict=True)
        ax.plot(
            np.clip(x, 0.3, 3),
            k,
            linestyle="",
            marker=MARKERS[i % len(MARKERS)],
            color=PALETTE[i % len(PALETTE)],
            label=name,
        )
    ax.axvline(1.0, color="#6b6b6b", linewidth=0.8)
    ax.set_yticks(range(len(order)), order)
    ax.set(xscale="log", xlabel="test error, as a multiple of default boosting's", ylim=(-0.7, len(order) - 0.3))
    ax.legend(frameon=False, fontsize=8)
    save_figure(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--most-rows", type=int, help="leave larger tables out")
    parser.add_argument("--only", nargs="+", help="these tables alone")
    parser.add_argument("--contestants", nargs="+", choices=CONTESTANTS, help="these alone")
    parser.add_argument("--out", type=Path, help="a file for the records, as JSON; read first if it is there")
    parser.add_argument("--picture", type=Path)
    given = parser.parse_args()
    names = [n for n in given.contestants or CONTESTANTS if n != "xrfm" or find_spec("xrfm") is not None]
    records: list[dict[str, Any]] = json.loads(given.out.read_text()) if given.out and given.out.exists() else []
    for name, read in tables():
        table = read() if not given.only or name in given.only else None
        if table is None or (given.most_rows and len(table.target) > given.most_rows):
            continue
        for split in range(given.splits):
            done = {r["name"] for r in records if r["table"] == name and r["split"] == split}
            records += contest(table, split, [n for n in names if n not in done])
        print("\n".join(summarise([r for r in records if r["table"] == name]).splitlines()[2:3]), flush=True)
        if given.out:
            given.out.write_text(json.dumps(records))
    print(summarise(records))
    if given.picture:
        draw(records, given.picture)


if __name__ == "__main__":
    main()
