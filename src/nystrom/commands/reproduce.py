"""``nystrom reproduce``: run the paper's experiments, draw its figures, check its claims, write a report."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from nystrom.commands.options import Subparsers, parse_count, require_package


def add_parser(subparsers: Subparsers) -> None:
    """Add ``nystrom reproduce``."""
    parser = subparsers.add_parser(
        "reproduce",
        help="run the paper's experiments again and write a report with a verdict on each of its claims",
        description="Run the paper's experiments (Sections 4 and 6), draw its figures and check its claims. Rows "
        "of results are kept as they are made: the same command goes on after an interruption. Data files are looked "
        "for in the folders of the environment variable NYSTROM_DATA; what is missing is reported as missing.",
    )
    parser.add_argument(
        "figure", nargs="*", help="toy, fig1 to fig8, or digits (ours, needs no data file); all if none is given"
    )
    parser.add_argument("--quick", action="store_true", help="fewer rows, sizes and trials: about two minutes")
    parser.add_argument(
        "--trials", type=parse_count, metavar="N", help="repetitions (default: 50 as in the paper; quick: 3)"
    )
    parser.add_argument(
        "--clustered-trials",
        type=parse_count,
        metavar="N",
        help="at most so many of k-means on the rows, the costly one",
    )
    parser.add_argument("--minutes", type=float, metavar="M", help="begin nothing new after so many minutes")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("nystrom-report"),
        metavar="DIR",
        help="where rows, figures and report.html go (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print the verdicts as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run, draw, check, report; return the exit code."""
    from nystrom.experiments.catalogue import QUICK_TRIALS, TRIALS, quick, select
    from nystrom.experiments.records import RowFile
    from nystrom.experiments.runner import Outcome, Plan
    from nystrom.experiments.runner import run as run_experiments
    from nystrom.progress import make_progress

    require_package("matplotlib", "plot", "Drawing the paper's figures")
    experiments = select(tuple(args.figure))
    clustered = args.clustered_trials
    if args.quick:
        experiments = tuple(map(quick, experiments))
        clustered = clustered or 2
    plan = Plan(
        trials=args.trials or (QUICK_TRIALS if args.quick else TRIALS),
        clustered_trials=clustered,
        seconds=None if args.minutes is None else 60 * args.minutes,
    )
    # Quick rows are of other data: they must never count as the paper's.
    file = RowFile(args.output / ("rows-quick.jsonl" if args.quick else "rows.jsonl"))
    outcome = Outcome((), stopped=False)
    interrupted = False
    try:
        outcome = run_experiments(experiments, file, plan, progress=make_progress(1))
    except KeyboardInterrupt:
        interrupted = True
        print("interrupted: reporting what is done; the same command goes on from here", file=sys.stderr)
    write_outputs(experiments, file.rows, args, outcome)
    return 130 if interrupted else 0


def write_outputs(experiments: Any, rows: Any, args: argparse.Namespace, outcome: Any) -> None:
    """Draw the figures, check the claims, write the page, print the verdicts; all from the rows alone."""
    from nystrom.commands.data_out import print_json
    from nystrom.commands.terminal import print_table
    from nystrom.experiments.claims import check_all
    from nystrom.experiments.environment import machine, versions
    from nystrom.experiments.figures import as_svg, draw, save
    from nystrom.experiments.paper_claims import CLAIMS
    from nystrom.experiments.report import Facts, build_html, build_markdown, write_report

    figures = {}
    for experiment in experiments:
        written = save(experiment, rows, args.output / "figures")
        narrow = draw(experiment, rows, columns=1) if written else None
        if narrow is not None:
            svg = as_svg(narrow, f"{experiment.key} narrow")
            figures[experiment.key] = (written["svg"].read_text(encoding="utf-8"), svg)
    checked = check_all(CLAIMS, rows, experiments)
    facts = Facts(
        command=shlex.join(["nystrom", "reproduce", *_words(args)]),
        machine=machine(),
        versions=versions(),
        quick=args.quick,
        missing=outcome.missing,
        stopped=outcome.stopped,
    )
    page = args.output / "report.html"
    write_report(page, build_html(experiments, rows, checked, figures, facts))
    (args.output / "verdicts.md").write_text(build_markdown(checked), encoding="utf-8")
    verdicts = {item.claim.name: item.verdict.status for item in checked}
    missing = list(dict.fromkeys(outcome.missing))
    if args.json:
        print_json({"verdicts": verdicts, "missing": missing, "stopped": outcome.stopped, "report": page})
        return
    print_table(["claim", "verdict"], list(verdicts.items()))
    for key, dataset in missing:
        print(f"missing: {dataset} ({key})")
    print(f"report: {page}")


def _words(args: argparse.Namespace) -> list[str]:
    words = [*args.figure, *(["--quick"] if args.quick else [])]
    for name in ("trials", "clustered_trials", "minutes"):
        value = getattr(args, name)
        if value is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return words
