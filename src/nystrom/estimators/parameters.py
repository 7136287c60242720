"""The parameters that the estimators share: written, documented and given their defaults once.

A class takes those of its base as ``**shared`` and hands them on. :func:`complete` then writes them out, so that
``help``, ``inspect.signature`` and scikit-learn's ``get_params`` see each by name, with the default of that class.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Iterable, Iterator
from inspect import Parameter
from itertools import takewhile
from typing import Any, TypedDict

from nystrom.generator import RandomState
from nystrom.kernels import GammaLike, KernelLike
from nystrom.landmarks import LandmarksLike
from nystrom.solvers.metric import MetricLike

_SECTION = "Parameters\n----------\n"
_MARKER = "**shared"
# What to use instead of parameters that scikit-learn's estimators of the same names have.
_SUBSTITUTES = {
    "affinity": "Give it as kernel.",
    "copy_X": "Leave it out: X is never changed.",
    "copy_X_train": "Leave it out: no row of X is kept.",
    "eigen_solver": "Leave it out: the eigenvalues are those of a small matrix.",
    "kernel_params": "Bind them to the function: kernel=functools.partial(function, **kernel_params).",
    "n_restarts_optimizer": "Leave it out: the bandwidth is searched over a wide grid, which needs no restarts.",
    "optimizer": "Leave it out: gamma='auto', alpha='auto' and amplitude='auto' are optimised, numbers are kept.",
    "remove_zero_eig": "Leave it out: directions with eigenvalue zero are always dropped.",
}


class CommonParameters(TypedDict, total=False):
    """Shared parameters whose defaults are the same in every estimator."""

    degree: int
    coef0: float
    n_landmarks: int | str | None
    landmarks: LandmarksLike
    factor: str
    max_memory: str | float | None
    n_jobs: int | None
    engine: str
    random_state: RandomState
    verbose: int


class SharedParameters(CommonParameters, total=False):
    """All parameters of :class:`nystrom.estimators.base.KernelMachine`."""

    kernel: KernelLike
    gamma: GammaLike
    n_components: int | None


def check_names(cls: type, names: Iterable[str]) -> None:
    """Raise ``TypeError`` for a parameter that the class does not have, and say what to use instead."""
    known = inspect.signature(cls).parameters
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            advice = _SUBSTITUTES.get(name) or (f"Did you mean {near[0]!r}?" if near else "")
            raise TypeError(f"{cls.__name__} got an unexpected keyword argument {name!r}. {advice}".rstrip())


class SupervisedParameters(SharedParameters, total=False):
    """All parameters of :class:`nystrom.estimators.supervised.SupervisedMachine`."""

    metric: MetricLike


def complete(cls: type) -> None:
    """Write the parameters that ``**shared`` stands for into the signature and the docstring of a class."""
    init = vars(cls).get("__init__")
    if init is not None:
        signature = init.__dict__["__signature__"] = _full_signature(cls, init)
        # Set it on the class too, without self, because inspect looks at __new__ first.
        cls.__signature__ = signature.replace(parameters=[*signature.parameters.values()][1:])  # type: ignore[attr-defined]
    if cls.__doc__ and _MARKER in cls.__doc__:
        cls.__doc__ = _full_docstring(cls)


def _full_signature(cls: type, init: Any) -> inspect.Signature:
    signature = inspect.signature(init)
    own = [p for p in signature.parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
    if len(own) == len(signature.parameters):
        return signature
    parent = next(vars(base)["__init__"] for base in cls.__mro__[1:] if "__init__" in vars(base))
    inherited = [p for name, p in inspect.signature(parent).parameters.items() if name not in {o.name for o in own}]
    own += [p.replace(kind=Parameter.KEYWORD_ONLY) for p in inherited if p.kind is not Parameter.VAR_KEYWORD]
    return signature.replace(parameters=own)


def _full_docstring(cls: type) -> str:
    """Return the docstring with the entry ``**shared`` replaced by those of the bases, in the signature's order."""
    doc = inspect.cleandoc(cls.__doc__ or "") + "\n"
    entries: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        entries.update(_entries(inspect.cleandoc(base.__doc__ or "")))
    documented = _entries(doc)
    defaults = {name: p.default for name, p in inspect.signature(cls).parameters.items()}
    wanted = [name for name in defaults if name in entries and name not in documented]
    written = [_with_default(entries[name], defaults[name]) for name in wanted]
    return doc.replace(documented[_MARKER], "".join(written))


def _entries(doc: str) -> dict[str, str]:
    """Return the text of each entry in the Parameters section, under its name."""
    _, _, section = doc.partition(_SECTION)
    found: dict[str, str] = {}
    for header, entry in _split(section):
        for name in header.partition(" : ")[0].split(", "):
            found[name.strip()] = entry
    return found


def _split(section: str) -> Iterator[tuple[str, str]]:
    lines = list(takewhile(lambda line: line.strip(), section.splitlines(keepends=True)))
    starts = [i for i, line in enumerate(lines) if not line.startswith(" ")]
    for start, stop in zip(starts, [*starts, len(lines)][1:], strict=True):
        yield lines[start], "".join(lines[start:stop]).rstrip("\n") + "\n"


def _with_default(entry: str, value: Any) -> str:
    shown = f'"{value}"' if isinstance(value, str) else repr(value)
    return re.sub(r", default=.*", lambda _: f", default={shown}", entry, count=1)
