"""The report of a reproduction: one HTML page that needs no other file, and a table of verdicts in Markdown."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nystrom.disk import replacing
from reproduction.catalogue import Experiment
from reproduction.claims import Checked
from reproduction.records import Row
from reproduction.summary import Summary

_MARKS = {"held": "✓", "not held": "✗", "not testable here": "–"}
_CLASSES = {"held": "held", "not held": "failed", "not testable here": "open"}

_STYLE = """
:root{color-scheme:light;--ink:#1d2329;--soft:#5a6670;--line:#dfe4e8;--paper:#fff;--wash:#f5f7f8;--accent:#0b5c8f;
--held:#0a6b4a;--failed:#a8340b;--open:#5a6670}
*{box-sizing:border-box}html{scroll-behavior:smooth;-webkit-text-size-adjust:100%}
body{margin:0;color:var(--ink);background:var(--paper);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",Arial,sans-serif}
main,header.top{max-width:62rem;margin:0 auto;padding:0 1.25rem}
header.top{padding-top:2.5rem}h1{font-size:clamp(1.55rem,4.5vw,2.15rem);line-height:1.2;margin:0 0 .5rem;
letter-spacing:-.01em}h2{font-size:1.25rem;line-height:1.3;margin:0 0 .35rem}
p{margin:.4rem 0 .8rem;max-width:46rem}.soft{color:var(--soft);font-size:.9rem}a{color:var(--accent)}
nav{display:flex;flex-wrap:wrap;gap:.4rem;margin:1rem 0 .5rem;padding:0}nav a{border:1px solid var(--line);
border-radius:999px;padding:.2rem .8rem;text-decoration:none;font-size:.9rem;background:var(--wash)}
nav a:hover,nav a:focus-visible{border-color:var(--accent)}
.counts{display:grid;grid-template-columns:repeat(3,1fr);gap:.75rem;margin:1.25rem 0}
.counts div{background:var(--wash);border-radius:.5rem;padding:.75rem 1rem;border-left:4px solid var(--c)}
.counts b{display:block;font-size:1.8rem;line-height:1.1;color:var(--c)}
.held{--c:var(--held)}.failed{--c:var(--failed)}.open{--c:var(--open)}
section{border-top:1px solid var(--line);padding:1.75rem 0 .75rem}
figure{margin:.75rem 0}figure svg{display:block;width:100%;height:auto}figure.narrow{display:none}
.says{border-left:3px solid var(--accent);padding:.1rem 0 .1rem .9rem;color:#33404a;max-width:46rem}
.note{background:#fdf3e7;border:1px solid #f0c896;border-radius:.5rem;padding:.55rem .8rem;margin:.6rem 0;
font-size:.92rem;max-width:none}
table{border-collapse:collapse;width:100%;font-size:.92rem;margin:.5rem 0 1rem}th{text-align:left;color:var(--soft);
font-weight:600}th,td{padding:.5rem .6rem .5rem 0;vertical-align:top;border-bottom:1px solid var(--line)}
td.verdict{white-space:nowrap;font-weight:650;color:var(--c)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.25rem 1rem;font-size:.92rem}dt{color:var(--soft)}
dd{margin:0;overflow-wrap:anywhere}code{font-size:.88em;background:var(--wash);padding:.1em .3em;border-radius:.25rem;
overflow-wrap:anywhere}
@media (max-width:40rem){main,header.top{padding-left:1rem;padding-right:1rem}.counts{gap:.4rem}
.counts div{padding:.55rem .6rem;font-size:.82rem}.counts b{font-size:1.4rem}
table,tbody,tr,td{display:block}thead{display:none}tr{border-bottom:1px solid var(--line);padding:.6rem 0}
td{border:0;padding:.1rem 0}td.measured{color:var(--soft)}dl{grid-template-columns:1fr}dt{margin-top:.35rem}
figure.wide{display:none}figure.narrow{display:block;margin:.75rem -.5rem}}
@media print{nav{display:none}section{break-inside:avoid-page}}
"""


@dataclass(frozen=True)
class Facts:
    """Facts about the run that the report states."""

    command: str
    machine: str
    versions: Mapping[str, str]
    quick: bool
    missing: Sequence[tuple[str, str]] = ()
    stopped: bool = False


def build_html(
    experiments: Sequence[Experiment],
    rows: Iterable[Row],
    checked: Sequence[Checked],
    figures: Mapping[str, tuple[str, str]],
    facts: Facts,
) -> str:
    """Return the page: every figure, what the paper says, what was measured, and the verdicts.

    Parameters
    ----------
    experiments, rows, checked
        The experiments run, their rows, and the claims with their verdicts.
    figures : mapping
        By experiment key, two SVG texts: for a wide and for a narrow screen.
    facts : Facts
        The machine, versions, command, and what was missing.
    """
    kept = list(rows)
    links = "".join(f'<a href="#{e.key}">{html.escape(_short(e))}</a>' for e in experiments)
    sections = "".join(_section(experiment, kept, checked, figures, facts) for experiment in experiments)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<title>Randomized Clustered Nyström, reproduced</title>"
        f"<style>{_STYLE}</style></head><body>"
        '<header class="top"><h1>Randomized Clustered Nyström, reproduced</h1>'
        "<p>Sections 4 and 6 of the paper by Pourkamali-Anaraki and Becker, run again with this library: each "
        "figure, what the paper says of it, and whether that held here.</p>"
        f"{_counts(checked)}{_warnings(facts)}"
        f"<nav aria-label='figures'>{links}<a href='#run'>the run</a></nav></header>"
        f"<main>{sections}{_run(facts, kept)}</main></body></html>\n"
    )


def build_markdown(checked: Sequence[Checked]) -> str:
    """Return the verdicts as a Markdown table."""
    lines = ["| claim | what the paper says | verdict | measured |", "|---|---|---|---|"]
    for item in checked:
        mark = f" *(on the stand-in {item.verdict.stand_in})*" if item.verdict.stand_in else ""
        cells = (item.claim.name, item.claim.sentence, f"**{item.verdict.status}**", item.verdict.measured + mark)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def write_report(path: Path, page: str) -> None:
    """Write the page under a temporary name and move it into place."""
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def _short(experiment: Experiment) -> str:
    return experiment.title.split(":", 1)[0] if ":" in experiment.title else experiment.key


def _counts(checked: Sequence[Checked]) -> str:
    count: Counter[str] = Counter(item.verdict.status for item in checked)
    cells = "".join(f'<div class="{_CLASSES[status]}"><b>{count.get(status, 0)}</b>{status}</div>' for status in _MARKS)
    return f'<div class="counts">{cells}</div>'


def _warnings(facts: Facts) -> str:
    notes = []
    if facts.quick:
        notes.append(
            "<b>Quick run.</b> Fewer rows, sizes and trials than the paper: it shows that everything works, and which "
            "way the results point. It does not decide the claims; a run without <code>--quick</code> does."
        )
    if facts.missing:
        names = sorted({dataset for _, dataset in facts.missing})
        notes.append(
            f"<b>Missing data.</b> {html.escape(', '.join(names))}: not found, so not run. "
            f"<code>nystrom data NAME</code> fetches a set; <code>NYSTROM_DATA</code> names the folder that holds it."
        )
    if facts.stopped:
        notes.append("<b>Stopped early.</b> The time limit was reached; the same command continues from here.")
    return "".join(f'<p class="note">{note}</p>' for note in notes)


def _section(
    experiment: Experiment,
    rows: list[Row],
    checked: Sequence[Checked],
    figures: Mapping[str, tuple[str, str]],
    facts: Facts,
) -> str:
    mine = [item for item in checked if item.claim.experiment == experiment.key]
    picture = figures.get(experiment.key)
    lost = sorted({dataset for key, dataset in facts.missing if key == experiment.key})
    parts = [f'<section id="{experiment.key}"><h2>{html.escape(experiment.title)}</h2>']
    parts.append(f'<p class="says">{html.escape(experiment.says)}</p>')
    if lost:
        parts.append(
            f'<p class="note"><b>Missing:</b> {html.escape(", ".join(lost))}. Nothing was put in its place.</p>'
        )
    parts.extend(_studies(experiment, rows))
    if picture:
        label = html.escape(experiment.title, quote=True)
        for width, text in zip(("wide", "narrow"), picture, strict=True):
            parts.append(f'<figure class="{width}" role="img" aria-label="{label}">{inline_svg(text)}</figure>')
    if mine:
        parts.append(_table(mine))
    return "".join([*parts, "</section>"])


def _studies(experiment: Experiment, rows: list[Row]) -> list[str]:
    """Return a line on each study's data and trials, in a box if the data is a stand-in."""
    lines = []
    for study in experiment.studies:
        summary = Summary(rows, experiment.key, study)
        if not summary:
            continue
        row = summary.rows[-1]
        text = f"{html.escape(study.name)}: {row['n']:,} × {row['p']:,}, {summary.trials()}"
        if summary.stand_in:
            text = (
                f"<b>Stand-in.</b> {html.escape(summary.dataset)} in place of {html.escape(study.dataset)}, which "
                f"could not be had. {text}"
            )
            lines.append(f'<p class="note">{text}</p>')
        else:
            lines.append(f'<p class="soft">{text}</p>')
    return lines


def _table(checked: Sequence[Checked]) -> str:
    lines = []
    for item in checked:
        status = item.verdict.status
        mark = f" <em>(stand-in {html.escape(item.verdict.stand_in)})</em>" if item.verdict.stand_in else ""
        lines.append(
            f'<tr id="{item.claim.name}"><td class="verdict {_CLASSES[status]}">{_MARKS[status]} {status}</td>'
            f"<td>{html.escape(item.claim.sentence)}</td>"
            f'<td class="measured">{html.escape(item.verdict.measured)}{mark}</td></tr>'
        )
    head = "<thead><tr><th>verdict</th><th>the paper says</th><th>measured</th></tr></thead>"
    return f"<table>{head}<tbody>{''.join(lines)}</tbody></table>"


def _run(facts: Facts, rows: list[Row]) -> str:
    packages = ", ".join(f"{name} {version}" for name, version in facts.versions.items())
    pairs = (
        ("command", f"<code>{html.escape(facts.command)}</code>"),
        ("rows", f"{len(rows):,}"),
        ("machine", html.escape(facts.machine)),
        ("versions", html.escape(packages)),
        (
            "times",
            "processor seconds, the least over the trials; “run time” is choosing the landmarks, forming C and W, and "
            "the factorisation. Rows hold wall-clock seconds too, which other work on the machine distorts.",
        ),
        (
            "errors",
            "exact up to 20,000 rows; beyond, from 2,048 rows of K drawn once for all methods (with an interval).",
        ),
    )
    cells = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in pairs)
    return f'<section id="run"><h2>The run</h2><dl>{cells}</dl></section>'


def inline_svg(text: str) -> str:
    """Return the SVG element alone, scaled by its container: without the XML head, width and height."""
    start = text.index("<svg")
    end = text.index(">", start)
    head = re.sub(r'\s(width|height)="[^"]*"', "", text[start:end])
    body = re.sub(r"<metadata>.*?</metadata>", "", text[end:], flags=re.DOTALL)
    return (head + body).strip()
