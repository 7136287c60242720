"""Weigh the library: what a fit runs, how large the classes are, and how much code there is.

python tools/weigh.py                  # all figures with their goals; --json for programs
python tools/weigh.py --trace fit      # the files and functions that a fit runs; also predict, nystroem
python tools/weigh.py --constants      # module-level numbers: file, line, value, comment
"""

from __future__ import annotations

import argparse
import ast
import inspect
import io
import json
import re
import subprocess
import sys
import threading
import tokenize
import warnings
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "nystrom"
SHORT = 40
IMPORT = "import sys, nystrom; nystrom.KernelRidge; print(sum(m.partition('.')[0] == 'nystrom' for m in sys.modules))"
MACHINES = (
    *("Nystroem", "KernelRidge", "KernelRidgeClassifier", "KernelLogisticRegression", "KernelSVC", "KernelSVR"),
    *("KernelPCA", "KernelKMeans", "SpectralClustering", "GaussianProcessRegressor"),
)
GOALS = {
    "fit": {"functions": 210, "files": 38},
    "predict": {"functions": 40, "files": 14},
    "machine": {"classes": 4, "methods": 40},
    "size": {"modules": 140, "lines": 17_500, "constants": 300, "modules imported": 100},
}


class Trace:
    """Records the functions that run. Create it before the first fit, so that it also sees the threads of a pool."""

    def __init__(self):
        self.seen = set()
        threading.setprofile(self.note)

    def note(self, frame, event, _):
        if event == "call":
            self.seen.add(frame.f_code)

    def of(self, action):
        """Return the names of our functions that an action runs, by file."""
        self.seen.clear()
        sys.setprofile(self.note)
        action()
        sys.setprofile(None)
        found = defaultdict(set)
        for code in self.seen.copy():
            # Lambdas count as functions; comprehensions and the bodies of modules and classes do not.
            is_function = code.co_flags & inspect.CO_OPTIMIZED and not re.fullmatch("<.*(comp|expr)>", code.co_name)
            if SOURCE in Path(code.co_filename).parents and is_function:
                found[Path(code.co_filename).relative_to(SOURCE).as_posix()].add(code.co_qualname)
        return {name: sorted(found[name]) for name in sorted(found)}


def traces():
    """Return the functions that the second fit in a process runs, the second predict, and the second fit to ``tol``."""
    import numpy as np

    import nystrom

    trace = Trace()
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 10))
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2]
    ridge, features = nystrom.KernelRidge(random_state=0), nystrom.Nystroem(tol=0.05, random_state=0)
    warnings.simplefilter("ignore")
    actions = {"fit": lambda: ridge.fit(X, y), "predict": lambda: ridge.predict(X), "nystroem": lambda: features.fit(X)}
    for action in actions.values():
        action()
    return {name: trace.of(action) for name, action in actions.items()}


def weigh_machine(name):
    """Return the number of our classes that a machine inherits from, and of the names that they define."""
    import nystrom

    ours = [cls for cls in getattr(nystrom, name).__mro__ if cls.__module__.partition(".")[0] == "nystrom"]
    kinds = (property, classmethod, staticmethod)
    members = {key for cls in ours for key, value in vars(cls).items() if callable(value) or isinstance(value, kinds)}
    plain = {key for key in members if not (key.startswith("__") and key.endswith("__"))}
    return {"classes": len(ours), "methods": len(plain), "with dunder": len(members)}


def code_lines(text):
    """Return the number of lines of code: without blank lines, comments and docstrings."""
    skip = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    held = {line for t in tokens if t.type not in skip for line in range(t.start[0], t.end[0] + 1)}
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            held -= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(held)


def is_number(node):
    """Whether an expression is a number, or arithmetic of numbers."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (int, float)) and not isinstance(node.value, bool)
    if isinstance(node, ast.UnaryOp):
        return is_number(node.operand)
    return isinstance(node, ast.BinOp) and is_number(node.left) and is_number(node.right)


def constants(sources):
    """Return (file:line, name, value, comment) of the module-level constants that are numbers."""
    found = []
    for path, text in sources.items():
        lines = text.splitlines()
        for node in ast.parse(text).body:
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            if not isinstance(target, ast.Name) or target.id != target.id.upper() or not is_number(node.value):
                continue
            first = node.lineno - 1
            while first and lines[first - 1].startswith("#"):
                first -= 1
            above = " ".join(line.lstrip("# ") for line in lines[first : node.lineno - 1])
            beside = lines[node.end_lineno - 1][node.end_col_offset :].lstrip(" #")
            found.append((f"{path}:{node.lineno}", target.id, ast.unparse(node.value), f"{above} {beside}".strip()))
    return found


def importers(sources):
    """Return, for each of our modules, the modules of ours that import it, at the top or on use."""
    names = {"nystrom." + p.removesuffix(".py").removesuffix("/__init__").replace("/", "."): p for p in sources}
    found = defaultdict(set)
    for importer, path in names.items():
        for node in ast.walk(ast.parse(sources[path])):
            wanted = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                full = [f"{node.module}.{a.name}" for a in node.names]
                wanted = [each if each in names else node.module for each in full]
            for name in (names.keys() & wanted) - {importer}:
                found[name].add(importer)
    return found


def weigh(sources):
    runs = traces().items()
    found = {name: {"functions": sum(map(len, files.values())), "files": len(files)} for name, files in runs}
    found["machines"] = {name: weigh_machine(name) for name in MACHINES}
    found["size"] = {
        "modules": len(sources),
        "lines": sum(map(code_lines, sources.values())),
        "constants": len(constants(sources)),
        "modules imported": int(subprocess.check_output([sys.executable, "-c", IMPORT])),
    }
    found["short files"] = {p: n for p, t in sources.items() if (n := len(t.splitlines())) < SHORT}
    found["imported by one"] = {m: min(by) for m, by in sorted(importers(sources).items()) if len(by) == 1}
    return found


def report(found):
    """Yield the lines of the report."""
    for label, figures, goals in (
        ("KernelRidge().fit", found["fit"], GOALS["fit"]),
        ("KernelRidge().predict", found["predict"], GOALS["predict"]),
        ("Nystroem(tol=0.05).fit", found["nystroem"], {}),
        *((name, figures, GOALS["machine"]) for name, figures in found["machines"].items()),
        ("src/nystrom", found["size"], GOALS["size"]),
    ):
        goal = {key: f" (goal {value:,})" for key, value in goals.items()}
        yield f"{label:28}" + ", ".join(f"{value:,} {key}{goal.get(key, '')}" for key, value in figures.items())
    short, single = found["short files"], found["imported by one"]
    yield f"{len(short)} files under {SHORT} lines: " + ", ".join(f"{path} ({n})" for path, n in short.items())
    yield f"{len(single)} modules that one other imports: " + ", ".join(f"{m} (by {by})" for m, by in single.items())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--trace", choices=("fit", "predict", "nystroem"))
    parser.add_argument("--constants", action="store_true")
    arguments = parser.parse_args()
    sources = {p.relative_to(SOURCE).as_posix(): p.read_text() for p in sorted(SOURCE.rglob("*.py"))}
    if arguments.trace:
        answer = traces()[arguments.trace]
        text = "\n".join("\n  ".join([f"{path} ({len(names)})", *names]) for path, names in answer.items())
    elif arguments.constants:
        answer = constants(sources)
        text = "\n".join("  ".join(each) for each in answer)
    else:
        answer = weigh(sources)
        text = "\n".join(report(answer))
    print(json.dumps(answer, indent=1) if arguments.json else text)


if __name__ == "__main__":
    main()
