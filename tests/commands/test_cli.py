"""The ``nystrom`` command: its options, exit codes and one-line errors."""

from __future__ import annotations

import argparse
import subprocess
import sys
import types
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from nystrom import __version__
from nystrom.commands import main as cli
from nystrom.exceptions import MissingDependencyError

Run = Callable[[argparse.Namespace], int | None]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Run], None]:
    """Put one command, ``try``, in the place of the real ones."""

    def install(run: Run) -> None:
        module: Any = types.ModuleType("nystrom_command_of_a_test")
        module.add_parser = lambda subparsers: subparsers.add_parser("try").set_defaults(run=run)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setattr(cli, "COMMANDS", (module.__name__,))

    return install


def raising(error: BaseException) -> Run:
    def run(args: argparse.Namespace) -> int | None:
        raise error

    return run


@pytest.mark.parametrize("name", ["avx2", None])
def test_version_says_which_loops_are_in_use(
    name: str | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nystrom.loops.extension.instruction_set", lambda: name)
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    loops = name or "none, NumPy does their work more slowly"
    assert capsys.readouterr().out == f"nystrom {__version__}\ncompiled loops: {loops}\n"


@pytest.mark.parametrize("module", cli.COMMANDS)
def test_every_command_explains_itself(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    subparsers = parser.add_subparsers()
    import_module(module).add_parser(subparsers)
    (name,) = subparsers.choices
    with pytest.raises(SystemExit, match="0"):
        cli.main([name, "--help"])
    assert f"nystrom {name}" in capsys.readouterr().out


@pytest.mark.parametrize("argv", [["no-such-command"], ["demo", "--no-such-option"], ["fit"]])
def test_wrong_words_exit_with_2_and_one_line(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(argv)
    shown = capsys.readouterr().err
    assert shown.startswith("nystrom: error: ")
    assert shown.endswith("--help\n")
    assert shown.count("\n") == 1


def test_without_a_command_all_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("usage: nystrom")
    assert "fit a model to a data file" in shown


@pytest.mark.parametrize(("returned", "code"), [(None, 0), (0, 0), (1, 1)])
def test_the_exit_code_is_what_the_command_returns(
    returned: int | None, code: int, command: Callable[[Run], None]
) -> None:
    command(lambda args: returned)
    assert cli.main(["try"]) == code


@pytest.mark.parametrize(
    "error",
    [
        ValueError("n_landmarks must be positive;\n  got 0"),
        FileNotFoundError(2, "No such file or directory", "rows.npy"),
        MissingDependencyError("matplotlib", "plot", "Drawing a picture"),
    ],
)
def test_an_error_of_the_user_is_one_line_and_exit_code_2(
    error: Exception, command: Callable[[Run], None], capsys: pytest.CaptureFixture[str]
) -> None:
    command(raising(error))
    assert cli.main(["try"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("nystrom: error: ")
    assert err.count("\n") == 1
    assert str(error).split()[-1].strip("'") in err


def test_traceback_is_shown_when_asked_for(command: Callable[[Run], None]) -> None:
    command(raising(ValueError("n_landmarks must be positive")))
    with pytest.raises(ValueError, match="n_landmarks must be positive"):
        cli.main(["--traceback", "try"])


def test_a_fault_of_the_program_is_not_hidden(command: Callable[[Run], None]) -> None:
    command(raising(AttributeError("no such attribute")))
    with pytest.raises(AttributeError, match="no such attribute"):
        cli.main(["try"])


def test_control_c_exits_with_130_and_no_traceback(
    command: Callable[[Run], None], capsys: pytest.CaptureFixture[str]
) -> None:
    command(raising(KeyboardInterrupt()))
    assert cli.main(["try"]) == 130
    assert capsys.readouterr().err == "nystrom: interrupted\n"


def test_control_c_while_commands_are_imported_exits_with_130_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> argparse.ArgumentParser:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "make_parser", interrupted)
    assert cli.main(["demo"]) == 130
    assert capsys.readouterr().err == "nystrom: interrupted\n"


def test_a_warning_is_one_line(command: Callable[[Run], None], capsys: pytest.CaptureFixture[str]) -> None:
    def run(args: argparse.Namespace) -> None:
        warnings.simplefilter("always")
        warnings.warn("fewer landmarks\nthan asked for", UserWarning, stacklevel=1)

    command(run)
    assert cli.main(["try"]) == 0
    assert capsys.readouterr().err == "nystrom: warning: fewer landmarks than asked for\n"


def test_a_reader_that_goes_away_is_no_error() -> None:
    program = (
        "import sys, types; from nystrom.commands import main as cli; module = types.ModuleType('endless');"
        "run = lambda args: [print('line') for _ in range(100_000)] and None;"
        "module.add_parser = lambda subparsers: subparsers.add_parser('try').set_defaults(run=run);"
        "sys.modules['endless'] = module; cli.COMMANDS = ('endless',); sys.exit(cli.main(['try']))"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert (process.wait(), errors) == (141, b"")


def test_importing_waits_for_nothing_slow():
    code = "import sys, nystrom.commands.main as c; c.make_parser(); assert 'sklearn' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_modules_and_names_are_there_on_first_use():
    code = "import nystrom; nystrom.kernels.Gaussian, nystrom.plan; assert {'kernels', 'plan'} <= set(dir(nystrom))"
    subprocess.run([sys.executable, "-c", code], check=True)
