"""Results of ``benchmarks.tables`` as a table of means, as counts of wins and losses, and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

# Our machine within the time of LightGBM.
OURS = "ours-in-time"
# Tables of the picture, and its contestants with a point each.
DRAWN = ("pol", "elevators", "diamonds", "cpusmall", "letter", "magic", "satimage", "chess")
POINTS = {
    "boosting": "HistGradientBoosting",
    "lightgbm": "LightGBM",
    "sklearn-nystroem": "scikit-learn Nystroem",
    "xrfm": "xRFM",
}
# A ratio of errors within this distance of 1 is a tie.
TIE = 0.02
# Minimum number of rows for times to be compared.
LARGE = 10_000
_NO_ERROR = 1e-4

Records = list[dict[str, Any]]
Means = dict[str, dict[str, dict[str, Any]]]


def latest(records: Records) -> Records:
    """Return the last record of each table, split and contestant, without those that failed."""
    last = {(r["table"], r["split"], r["name"]): r for r in records}
    return [r for r in last.values() if "error" in r]


def means(records: Records) -> Means:
    """Return the mean error, log-loss and seconds over the splits, by table and contestant."""
    found: Means = {}
    for table in dict.fromkeys(r["table"] for r in records):
        for name in dict.fromkeys(r["name"] for r in records if r["table"] == table):
            here = [r for r in records if r["table"] == table and r["name"] == name]
            numbers = {
                key: float(np.mean([r[key] for r in here]))
                for key in ("error", "seconds", "log_loss")
                if all(key in r for r in here)
            }
            about = {key: here[0][key] for key in ("classes", "rows", "columns")}
            found.setdefault(table, {})[name] = {**numbers, **about, "splits": sorted(r["split"] for r in here)}
    return found


def with_ours(records: Records) -> Records:
    """Return the records of the splits on which ours was run, so that the means of others are over the same rows."""
    ours = {(r["table"], r["split"]) for r in records if r["name"] == OURS}
    return [r for r in records if (r["table"], r["split"]) in ours] if ours else records


def paired(records: Records, one: str, other: str) -> Means:
    """Return the means of two contestants over the splits that both have."""
    both = {(r["table"], r["split"]) for r in records if r["name"] == one}
    both &= {(r["table"], r["split"]) for r in records if r["name"] == other}
    return means([r for r in records if r["name"] in (one, other) and (r["table"], r["split"]) in both])


def summarise(records: Records, names: Sequence[str]) -> str:
    """Return the means of each table, and the number of tables on which ours beat each of the others."""
    records = with_ours(records)
    there = [name for name in names if any(r["name"] == name for r in records)]
    lines = ["| table | rows | columns | splits | " + " | ".join(there) + " |", "|---" * (4 + len(there)) + "|"]
    for table, by_name in sorted(means(records).items(), key=lambda item: _place(item[1])):
        first = next(iter(by_name.values()))
        cells = [_cell(by_name.get(name)) for name in there]
        splits = max(len(found["splits"]) for found in by_name.values())
        lines.append(f"| {table} | {first['rows']} | {first['columns']} | {splits} | " + " | ".join(cells) + " |")
    lines.append("")
    if OURS in there:
        lines += [line for name in there if name != OURS for line in _against(records, name)]
    return "\n".join(lines)


def _place(by_name: dict[str, dict[str, Any]]) -> tuple[bool, int]:
    first = next(iter(by_name.values()))
    return first["classes"], first["rows"]


def _against(records: Records, name: str) -> list[str]:
    pairs = paired(records, OURS, name)
    lines = []
    for kind, classes in (("numbers", False), ("classes", True)):
        here = {t: r for t, r in pairs.items() if r[OURS]["classes"] == classes}
        if not here:
            continue
        ratios = {t: _ratio(r, OURS, name) for t, r in here.items()}
        wins, losses = sum(q < 1 - TIE for q in ratios.values()), sum(q > 1 + TIE for q in ratios.values())
        better = sum(q < 1 for q in ratios.values())
        worst = max(ratios, key=lambda t: ratios[t])
        times = {t: r[OURS]["seconds"] / max(r[name]["seconds"], 1e-3) for t, r in here.items()}
        large = [times[t] for t in here if here[t][OURS]["rows"] >= LARGE]
        pace = f"; from {LARGE:,} rows on {min(large):.2f} to {max(large):.2f}" if large else ""
        lines.append(
            f"{kind}: {OURS} against {name}: {wins} wins, {len(ratios) - wins - losses} ties, {losses} losses "
            f"(better at all: {better} of {len(ratios)}); errors over its, geometric mean "
            f"{np.exp(np.mean(np.log(list(ratios.values())))):.3f}, at worst {ratios[worst]:.2f} ({worst}); seconds "
            f"over its, median {np.median(list(times.values())):.2f}{pace}"
        )
    return lines


def _ratio(by_name: dict[str, dict[str, Any]], one: str, other: str) -> float:
    return float(max(by_name[one]["error"], _NO_ERROR) / max(by_name[other]["error"], _NO_ERROR))


def _cell(found: dict[str, Any] | None) -> str:
    if found is None:
        return "–"
    error = f"{100 * found['error']:.2f} %" if found["classes"] else f"{found['error']:.4f}"
    loss = f", {found['log_loss']:.3f}" if "log_loss" in found else ""
    return f"{error}{loss} ({found['seconds']:.1f} s)"


def draw(records: Records, path: Path) -> None:
    """Draw error against processor seconds, one part per table: ours with growing time limits, the others as points."""
    from matplotlib import pyplot as plt

    # All means are over the same splits.
    timed = {(r["table"], r["split"]) for r in records if r["name"] == "ours-1s"}
    found = means([r for r in records if (r["table"], r["split"]) in timed])
    there = [table for table in DRAWN if "ours-1s" in found.get(table, {})]
    figure, axes = plt.subplots(1, len(there), figsize=(3.6 * len(there), 3.4), layout="constrained", squeeze=False)
    for ax, table in zip(axes.flat, there, strict=False):
        results = found[table]
        unit = 100 if next(iter(results.values()))["classes"] else 1
        ours = [results[name] for name in (f"ours-{seconds}s" for seconds in (1, 3, 10, 30)) if name in results]
        ax.plot(
            [r["seconds"] for r in ours], [unit * r["error"] for r in ours], "o-", color="tab:blue", label="nystrom"
        )
        for (name, label), marker, colour in zip(
            POINTS.items(), "^sDv", ("tab:orange", "tab:green", "tab:red", "tab:purple"), strict=True
        ):
            if name in results:
                ax.plot(results[name]["seconds"], unit * results[name]["error"], marker, color=colour, label=label)
        highest = unit * max(r["error"] for r in results.values())
        ax.set(
            xscale="log",
            xlim=(0.05, 150),
            title=table,
            ylim=(0, 1.1 * highest),
            ylabel="wrong classes, %" if unit > 1 else "RMSE ÷ deviation of the target",
        )
        ax.set_xticks(ticks := [0.1, 1, 10, 100], [f"{tick:g}" for tick in ticks])
        ax.grid(True, alpha=0.25)
    handles = {label: handle for ax in axes.flat for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles, loc="outside upper center", ncols=5, frameon=False)
    figure.supxlabel("processor seconds of fit and prediction, one thread", fontsize=10)
    figure.savefig(path, dpi=130)
    plt.close(figure)
