"""The parameters that the estimators share: written, documented and given their defaults once.

A class takes those of its base and of its ``_options`` as ``**shared``. :func:`complete` writes them out, so that
``help``, ``inspect.signature`` and scikit-learn's ``get_params`` see each by name, with the default of that class, and
:func:`set_parameters` stores them.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from inspect import Parameter
from itertools import takewhile
from typing import Any, Self, TypedDict

from nystrom.checks import RandomState
from nystrom.kernels import GammaLike, KernelLike
from nystrom.landmarks import LandmarksLike
from nystrom.tuning.metric import MetricLike

_SECTION = "Parameters\n----------\n"
_MARKER = "**shared"
# What to use instead of parameters that scikit-learn's estimators have, where a machine does not take them.
_SUBSTITUTES = {
    "affinity": "Give it as kernel.",
    "algorithm": "Leave it out: k-means is Lloyd's.",
    "copy_X": "Leave it out: X is never changed.",
    "copy_x": "Leave it out: X is never changed.",
    "copy_X_train": "Leave it out: no row of X is kept.",
    "decision_function_shape": "Leave it out: there is one function per class, against the rest.",
    "dual": "Leave it out: the solver works on the coefficients of the landmarks.",
    "eigen_solver": "Leave it out: the eigenvalues are those of a small matrix.",
    "init": "Leave it out: k-means is seeded by k-means++, n_init times.",
    "intercept_scaling": "Leave it out: the intercept is not penalised.",
    "kernel_params": "Bind them to the function: kernel=functools.partial(function, **kernel_params).",
    "l1_ratio": "Leave it out: the penalty is half the squared norm of the function.",
    "loss": "Leave it out: each loss is a machine of its own.",
    "multi_class": "Leave it out: more than two classes are taken as they are.",
    "n_restarts_optimizer": "Leave it out: the bandwidth is searched over a wide grid, which needs no restarts.",
    "optimizer": "Leave it out: gamma='auto', alpha='auto' and amplitude='auto' are optimised, numbers are kept.",
    "penalty": "Leave it out: the penalty is half the squared norm of the function.",
    "positive": "Leave it out: coefficients have any sign.",
    "probability": "Leave it out: KernelLogisticRegression has probabilities.",
    "remove_zero_eig": "Leave it out: directions with eigenvalue zero are always dropped.",
    "solver": "Leave it out: there is one solver, which tol and max_iter steer.",
    "warm_start": "Leave it out: C given as a list is fitted from one value to the next.",
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


class TargetParameters(SharedParameters, total=False):
    """All parameters of :class:`nystrom.estimators.targets.TargetMachine`."""

    metric: MetricLike


@dataclass(frozen=True)
class Options:
    """Parameters that some machines share, as checked values."""

    @classmethod
    def of(cls, machine: Any) -> Self:
        """Return the values that a machine was given, checked."""
        return cls(**{each.name: getattr(machine, each.name) for each in fields(cls)})


def complete(cls: type) -> None:
    """Write the parameters that ``**shared`` stands for into the signature and the docstring of a class."""
    init = vars(cls).get("__init__")
    if init is not None:
        signature = init.__dict__["__signature__"] = _full_signature(cls, init)
        # Set it on the class too, without self, because inspect looks at __new__ first.
        cls.__signature__ = signature.replace(parameters=[*signature.parameters.values()][1:])  # type: ignore[attr-defined]
    if cls.__doc__ and _MARKER in cls.__doc__:
        cls.__doc__ = _full_docstring(cls)


def set_parameters(machine: object, init: Any, given: dict[str, Any]) -> None:
    """Store the parameters of a constructor, from its local names; those in ``**shared`` that are not given by default.

    Parameters
    ----------
    machine : object
        The machine.
    init : function
        Its constructor.
    given : dict
        Local names of the constructor.
    """
    given = given | given.get("shared", {})
    for name, parameter in [*inspect.signature(init).parameters.items()][1:]:
        setattr(machine, name, given.get(name, parameter.default))


def _full_signature(cls: type, init: Any) -> inspect.Signature:
    signature = inspect.signature(init)
    own = [p for p in signature.parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
    if len(own) == len(signature.parameters):
        return signature
    parent = next((vars(base)["__init__"] for base in cls.__mro__[1:] if "__init__" in vars(base)), None)
    sources = [*getattr(cls, "_options", ()), *([] if parent is None else [parent])]
    for source in sources:
        for name, parameter in inspect.signature(source).parameters.items():
            if name not in {"self", *(each.name for each in own)} and parameter.kind is not Parameter.VAR_KEYWORD:
                own.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))
    return signature.replace(parameters=own)


def _full_docstring(cls: type) -> str:
    """Return the docstring with the entry ``**shared`` replaced by those of the bases, in the signature's order."""
    doc = inspect.cleandoc(cls.__doc__ or "") + "\n"
    entries: dict[str, str] = {}
    for base in (*reversed(cls.__mro__), *getattr(cls, "_options", ())):
        entries.update(_entries(inspect.cleandoc(base.__doc__ or "")))
    documented = _entries(doc)
    defaults = {name: p.default for name, p in inspect.signature(cls).parameters.items()}
    wanted = [name for name in defaults if name in entries and name not in documented]
    # An entry of several names is written once.
    written = dict.fromkeys(_with_default(entries[name], defaults[name]) for name in wanted)
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
