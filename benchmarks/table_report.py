"""Results of ``benchmarks.tables`` as a table of means, as counts of wins and losses, and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

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
    ours = {(r["table"], r["split"]) for r in records if r["name"] == "ours"}
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
    if "ours" in there:
        lines += [line for name in there if name != "ours" for line in _against(records, name)]
    return "\n".join(lines)


def _place(by_name: dict[str, dict[str, Any]]) -> tuple[bool, int]:
    first = next(iter(by_name.values()))
    return first["classes"], first["rows"]


def _against(records: Records, name: str) -> list[str]:
    pairs = paired(records, "ours", name)
    lines = []
    for kind, classes in (("numbers", False), ("classes", True)):
        here = {t: r for t, r in pairs.items() if r["ours"]["classes"] == classes}
        if not here:
            continue
        ratios = {t: _ratio(r, "ours", name) for t, r in here.items()}
        wins, losses = sum(q < 1 - TIE for q in ratios.values()), sum(q > 1 + TIE for q in ratios.values())
        better = sum(q < 1 for q in ratios.values())
        worst = max(ratios, key=lambda t: ratios[t])
        times = {t: r["ours"]["seconds"] / max(r[name]["seconds"], 1e-3) for t, r in here.items()}
        large = [times[t] for t in here if here[t]["ours"]["rows"] >= LARGE]
        pace = f"; from {LARGE:,} rows on {min(large):.2f} to {max(large):.2f}" if large else ""
        lines.append(
            f"{kind}: ours against {name}: {wins} wins, {len(ratios) - wins - losses} ties, {losses} losses "
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


def draw(records: Records, names: Sequence[str], path: Path) -> None:
    """Draw the ratio of each contestant's error to that of default boosting on the same splits, one line per table."""
    from nystrom.plotting import MARKERS, PALETTE, new_figure, save_figure

    results = {t: r for t, r in means(with_ours(records)).items() if "boosting" in r and "ours" in r}
    order = sorted(results, key=lambda t: (results[t]["ours"]["classes"], -_ratio(results[t], "ours", "boosting")))
    figure, (ax,) = new_figure(7, 1.4 + 0.26 * len(order))
    there = [name for name in names if name != "boosting" and any(name in r for r in results.values())]
    for i, name in enumerate(there):
        pairs = paired(records, name, "boosting")
        at = [k for k, t in enumerate(order) if t in pairs]
        ax.plot(
            np.clip([_ratio(pairs[order[k]], name, "boosting") for k in at], 0.25, 4),
            at,
            linestyle="",
            marker=MARKERS[i % len(MARKERS)],
            markersize=8 if name == "ours" else 5,
            alpha=1.0 if name == "ours" else 0.7,
            zorder=3 if name == "ours" else 2,
            color=PALETTE[i % len(PALETTE)],
            label=name,
        )
    numbers = sum(not results[t]["ours"]["classes"] for t in order)
    ax.axhline(numbers - 0.5, color="#d9d9d9", linewidth=0.8)
    ax.axvline(1.0, color="#6b6b6b", linewidth=0.8)
    ax.set_yticks(range(len(order)), order)
    ax.set(xscale="log", xlabel="test error over that of default boosting", ylim=(-0.7, len(order) - 0.3))
    ticks = [0.25, 0.5, 1, 2, 4]
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    ax.legend(frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=6)
    save_figure(figure, path)
