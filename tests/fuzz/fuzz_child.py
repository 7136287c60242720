"""Read damaged files, one after another, in a process that may die of it: ``FORMAT[,FORMAT…] FIRST STOP FOLDER``.

Each file's number is written to the folder before it is read and its outcome after, so that the parent knows which
file ended the process. Memory is bounded to a gigabyte above what the imports take.
"""

from __future__ import annotations

import os
import resource
import shutil
import sys
import warnings
from pathlib import Path

import numpy as np
from fuzz_formats import FORMATS, Format

_ROOM = 2**30


def main(names: list[str], first: int, stop: int, folder: Path) -> None:
    warnings.simplefilter("ignore")
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for name in names:
        form = FORMATS[name]
        good, bad = folder / f"good {name}", folder / f"bad {name}"
        good.mkdir(exist_ok=True)
        form.make(good)
        _copy(good, bad)
        form.read(bad / name)  # imports everything, and shows that the good file is good
        _limit_memory()
        for number in range(first, stop):
            _copy(good, bad)
            form.damage(bad / name, np.random.default_rng([number, len(name), sum(name.encode())]))
            os.write(log, f"{name} {number} begun\n".encode())
            os.write(log, f"{name} {number} {_outcome(form, bad / name)}\n".encode())


def _copy(good: Path, bad: Path) -> None:
    shutil.rmtree(bad, ignore_errors=True)
    shutil.copytree(good, bad)


def _outcome(form: Format, path: Path) -> str:
    try:
        form.read(path)
    except ValueError as error:
        return "refused" if path.name in str(error) else _shown("unnamed", error)
    except MemoryError as error:
        return "memory" if path.name in str(error) else _shown("unnamed", error)
    except Exception as error:
        return _shown("wrong class", error)
    return "read"


def _shown(what: str, error: BaseException) -> str:
    return f"{what}: {type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + _ROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main(sys.argv[1].split(","), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
