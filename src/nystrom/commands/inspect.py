"""``nystrom inspect``: what is in a model file."""

from __future__ import annotations

import argparse
import os
from typing import Any

from nystrom.commands.data_in import split_model
from nystrom.commands.data_out import print_json
from nystrom.commands.options import Subparsers
from nystrom.commands.terminal import format_shares
from nystrom.engine.progress import format_numbers

_MOST_LEADING = 8


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Add the ``inspect`` subcommand."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "inspect",
        help="show what is in a model file",
        description="Check a model file, and show its estimator, parameters, landmarks, error and columns. Those that "
        "lead have the largest share in how much predictions for the landmarks change when one is shuffled among them.",
    )
    parser.add_argument("model", metavar="MODEL", help="a model file")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Print what the file holds."""
    found = describe(args.model)
    if args.json:
        print_json(found)
        return 0
    for key, value in found.items():
        if key == "columns":
            print("columns")
            for column in value:
                print(f"  {column['name']}: {column['kind']}" + (f" ({column['note']})" if column["note"] else ""))
        elif key == "leading":
            print(f"{'leading':<14} {format_shares(dict(list(value.items())[:_MOST_LEADING]))}")
        elif key == "kernel":
            print(f"{key:<14} {format_numbers(value)}")
        elif key == "parameters":
            print("parameters that differ from the defaults")
            for name, setting in value.items():
                print(f"  {name} = {setting}")
        else:
            print(f"{key:<14} {value}")
    return 0


def describe(path: str) -> dict[str, Any]:
    """Return what a model file holds, as plain values."""
    from nystrom.explanation import leading_columns
    from nystrom.models import unpack_model
    from nystrom.models.container import Container

    container = Container(path)
    model = unpack_model(container)
    encoder, machine = split_model(model)
    found: dict[str, Any] = {
        "file": path,
        "bytes": os.path.getsize(path),
        "written by": f"nystrom {container.manifest.get('nystrom')}, format {container.manifest.get('format_version')}",
        "holds": "all of the fit" if container.manifest.get("full") else "what predictions need",
        "estimator": type(machine).__name__,
    }
    if hasattr(machine, "landmarks_"):
        found.update(landmarks=machine.landmarks_.shape[0], inputs=machine.n_features_in_, kernel=repr(machine.kernel_))
    if hasattr(machine, "certificate_"):
        error = machine.certificate_.trace
        # A handwritten file may lack a rank.
        found.update(rank=getattr(machine, "n_components_", None), rows=machine.certificate_.n_rows, error=str(error))
    if hasattr(machine, "classes_"):
        found["classes"] = ", ".join(map(str, machine.classes_[:20])) + (", …" if len(machine.classes_) > 20 else "")
    if getattr(encoder, "target", None) is not None:
        found["target"] = encoder.target
    if hasattr(machine, "held_out_"):
        score = machine.held_out_
        found["held out"] = (
            f"{score['name'].replace('R2', 'R²')} {score['value']:.3f} ({score['low']:.3f} to {score['high']:.3f}) on "
            f"{score['rows']:,} rows, baseline {score['baseline']:z.3f}"
        )
    leading = leading_columns(model)
    if leading:
        found["leading"] = dict(leading)
    if encoder is not None:
        found["columns"] = [{"name": c.name, "kind": c.kind, "note": c.note} for c in encoder.columns_]
    defaults = type(machine)().get_params(deep=False) if not hasattr(machine, "steps") else {}
    found["parameters"] = {
        name: repr(value)[:100]
        for name, value in machine.get_params(deep=False).items()
        if name in defaults and repr(value) != repr(defaults[name])
    }
    return found
