"""``nystrom score``: the score of a saved model on rows with a known target."""

from __future__ import annotations

import argparse
import math

from nystrom.commands.data_in import labelled_chunks, open_source, split_model
from nystrom.commands.data_out import print_json
from nystrom.commands.options import Subparsers
from nystrom.commands.terminal import print_table
from nystrom.scoring import make_scores


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Add the ``score`` subcommand."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "score",
        help="score a saved model on rows whose target is known",
        description="Compare predictions with the target. Classes: accuracy, compared with always naming the most "
        "frequent one; balanced accuracy (the mean recall); AUC (of each class against the others, averaged); log-loss "
        "and calibration error where there are probabilities; recall and precision of each class. Numbers: R², root "
        "mean square error, compared with always predicting the mean of these rows; mean absolute error.",
        epilog="example: nystrom score houses.nystrom held-out.csv",
    )
    parser.add_argument("model", metavar="MODEL", help="a model file")
    parser.add_argument("data", metavar="DATA", help="the file, or - for a table on standard input")
    parser.add_argument("--target", metavar="COL", help="the target's column in a matrix; tables know theirs")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the scores."""
    from nystrom import load

    encoder, machine = split_model(load(args.model))
    if not hasattr(machine, "score"):
        raise ValueError(f"{args.model} holds a {type(machine).__name__}, which has learned no target to be scored by.")
    scores = make_scores(machine)
    with open_source(args.data) as source:
        for X, y in labelled_chunks(source, encoder, args.target):
            scores.judge(machine, X, y)
    found = scores.result()
    if args.json:
        print_json(found)
    else:
        classes = found.pop("classes", {})
        for name, value in found.items():
            print(f"{name:<22} {value:,}" if isinstance(value, int) else f"{name:<22} {value:.6g}")
        if classes:
            print()
            cells = (
                [label, f"{c['rows']:,}", _share(c["recall"]), _share(c["precision"])] for label, c in classes.items()
            )
            print_table(["class", "rows", "recall", "precision"], cells)
    return 0


def _share(value: float) -> str:
    # A class that is never predicted has no precision, and one without rows no recall.
    return "-" if math.isnan(value) else f"{value:.3f}"
