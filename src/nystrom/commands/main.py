"""The ``nystrom`` command.

A subcommand is a module with ``add_parser(subparsers)``, which adds one parser and names the function that
runs it: ``parser.set_defaults(run=run)``, where ``run(args)`` returns nothing, or an exit code. To add
one, add its module to ``COMMANDS``. All are imported on every call: import what is slow inside ``run``.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module

from nystrom import __version__
from nystrom.commands.options import Parser
from nystrom.exceptions import NystromError

COMMANDS = (
    "nystrom.commands.fit",
    "nystrom.commands.predict",
    "nystrom.commands.transform",
    "nystrom.commands.score",
    "nystrom.commands.report",
    "nystrom.commands.inspect",
    "nystrom.commands.error",
    "nystrom.commands.compare",
    "nystrom.commands.demo",
    "nystrom.commands.data",
    "nystrom.commands.plan",
)

USER_ERROR = 2
INTERRUPTED = 130  # exit code that a shell reports after Ctrl-C
BROKEN_PIPE = 141


class _Version(argparse.Action):
    """Print the version, and whether the compiled loops are in use, since an install without them succeeds silently."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from nystrom.loops.extension import instruction_set

        loops = instruction_set() or "none, NumPy does their work more slowly"
        print(f"nystrom {__version__}\ncompiled loops: {loops}")
        parser.exit()


def make_parser() -> argparse.ArgumentParser:
    """Return the parser with every command of ``COMMANDS``."""
    parser = Parser(
        prog="nystrom",
        description="Kernel machines at any scale, from a few landmarks.",
        epilog="'nystrom COMMAND --help' explains one command.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and the compiled loops, and exit")
    parser.add_argument("--traceback", action="store_true", help="on an error, show where in the code it arose")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND")
    for module in COMMANDS:
        import_module(module).add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the ``nystrom`` command and return its exit code.

    0: done; 2: a wrong option, value, file or missing package, reported in one line; 130: interrupted.

    Parameters
    ----------
    argv : sequence of str, optional
        The words after ``nystrom``; None for the arguments of this process.
    """
    args = argparse.Namespace(traceback=False)
    try:
        # Inside the try block: this imports the commands, and Ctrl-C may arrive meanwhile.
        parser = make_parser()
        args = parser.parse_args(argv)
        if not hasattr(args, "run"):
            parser.print_help(sys.stderr)
            return USER_ERROR
        run: Callable[[argparse.Namespace], int | None] = args.run
        # The program owns its process, so it may set the warning filters of all threads.
        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = _show_warning
            code = run(args) or 0
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("nystrom: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader went away (as in `nystrom demo | head`): no error, and nothing more can be written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except (NystromError, ValueError, TypeError, OSError) as error:
        if args.traceback:
            raise
        print(f"nystrom: error: {_message(error)}", file=sys.stderr)
        return USER_ERROR
    return code


def _message(error: Exception) -> str:
    """Return the error in one line, without the system's error number."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split())


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(f"nystrom: warning: {' '.join(str(message).split())}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
