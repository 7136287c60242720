"""``python -m reproduction``: run the paper's experiments, draw its figures, check its claims, write a report."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from nystrom.commands.data_out import print_json
from nystrom.commands.options import Parser, parse_count, require_package
from nystrom.commands.terminal import print_table
from nystrom.engine.progress import make_progress
from nystrom.exceptions import NystromError
from reproduction.catalogue import QUICK_TRIALS, TRIALS, Experiment, quick, select
from reproduction.claims import check_all
from reproduction.environment import machine, versions
from reproduction.figures import as_svg, draw, save
from reproduction.paper_claims import CLAIMS
from reproduction.records import Row, RowFile
from reproduction.report import Facts, build_html, build_markdown, write_report
from reproduction.runner import RunLimits, Unfinished
from reproduction.runner import run as run_experiments


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of ``python -m reproduction``."""
    parser = Parser(
        prog="python -m reproduction",
        description="Run the paper's experiments (Sections 4 and 6), draw its figures and check its claims. Rows "
        "of results are kept as they are made: the same command continues after an interruption. Data files are looked "
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
        help="at most N repetitions of k-means on the rows, the costly method",
    )
    parser.add_argument("--minutes", type=float, metavar="M", help="begin nothing new after M minutes")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("nystrom-report"),
        metavar="DIR",
        help="where rows, figures and report.html go (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print the verdicts as JSON")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run, draw, check, report; return the exit code: 2 after an error that one line explains, 130 if interrupted."""
    args = make_parser().parse_args(argv)
    try:
        return _run(args)
    except (NystromError, ValueError, OSError) as error:
        print(f"reproduction: error: {error}", file=sys.stderr)
        return 2


def _run(args: argparse.Namespace) -> int:
    require_package("matplotlib", "plot", "Drawing the paper's figures")
    experiments = select(tuple(args.figure))
    clustered = args.clustered_trials
    if args.quick:
        experiments = tuple(map(quick, experiments))
        clustered = clustered or 2
    limits = RunLimits(
        trials=args.trials or (QUICK_TRIALS if args.quick else TRIALS),
        clustered_trials=clustered,
        seconds=None if args.minutes is None else 60 * args.minutes,
    )
    # Rows of --quick use other data, and must never count as the paper's.
    file = RowFile(args.output / ("rows-quick.jsonl" if args.quick else "rows.jsonl"))
    unfinished = Unfinished((), stopped=False)
    interrupted = False
    try:
        unfinished = run_experiments(experiments, file, limits, progress=make_progress(1))
    except KeyboardInterrupt:
        interrupted = True
        print("interrupted: reporting what is done; the same command continues from here", file=sys.stderr)
    write_outputs(experiments, file.rows, args, unfinished)
    return 130 if interrupted else 0


def write_outputs(
    experiments: tuple[Experiment, ...], rows: list[Row], args: argparse.Namespace, unfinished: Unfinished
) -> None:
    """Draw the figures, check the claims, write the page, print the verdicts; all from the rows alone."""
    figures = {}
    for experiment in experiments:
        written = save(experiment, rows, args.output / "figures")
        narrow = draw(experiment, rows, columns=1) if written else None
        if narrow is not None:
            svg = as_svg(narrow, f"{experiment.key} narrow")
            figures[experiment.key] = (written["svg"].read_text(encoding="utf-8"), svg)
    checked = check_all(CLAIMS, rows, experiments)
    facts = Facts(
        command=shlex.join(["python", "-m", "reproduction", *_words(args)]),
        machine=machine(),
        versions=versions(),
        quick=args.quick,
        missing=unfinished.missing,
        stopped=unfinished.stopped,
    )
    page = args.output / "report.html"
    write_report(page, build_html(experiments, rows, checked, figures, facts))
    (args.output / "verdicts.md").write_text(build_markdown(checked), encoding="utf-8")
    verdicts = {item.claim.name: item.verdict.status for item in checked}
    missing = list(dict.fromkeys(unfinished.missing))
    if args.json:
        print_json({"verdicts": verdicts, "missing": missing, "stopped": unfinished.stopped, "report": page})
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


if __name__ == "__main__":
    sys.exit(main())
