"""Callbacks of scikit-learn 1.9 and newer, such as ``ProgressBar``: a fit is a task, its stages are subtasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from nystrom.engine.progress import WATCHER

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn before 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Nothing: there are no callbacks."""


__all__ = ["CallbackSupportMixin", "tell_callbacks"]


def tell_callbacks(fit: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method ``fit`` that tells the callbacks of its machine, if it has any, of its stages and its result."""

    @wraps(fit)
    def told(machine: Any, X: Any, y: Any = None, *more: Any, **named: Any) -> Any:
        inside = hasattr(machine, "_callback_fit_ctx")  # called by the fit of a subclass
        run = fit if inside or not getattr(machine, "_skl_callbacks", None) else with_callbacks(_run)
        return run(machine, X, y, *more, **named) if run is fit else run(machine, fit, X, y, *more, **named)

    return told


def _run(machine: Any, fit: Callable[..., Any], X: Any, y: Any, *more: Any, **named: Any) -> Any:
    root = machine._init_callback_context(max_subtasks=None)
    given = {"X": X, "y": y, "metadata": {name: named[name] for name in ("sample_weight",) if name in named}}

    @contextmanager
    def watch(stage: str) -> Iterator[None]:
        task = root.subcontext(task_name=stage).call_on_fit_task_begin(estimator=machine)
        yield
        task.call_on_fit_task_end(estimator=machine)

    root.call_on_fit_task_begin(estimator=machine, **given)
    token = WATCHER.set(watch)
    try:
        fitted = fit(machine, X, y, *more, **named)
    finally:
        WATCHER.reset(token)
    results = {name: value for name, value in vars(machine).items() if name not in machine._get_param_names()}
    results = {name: value for name, value in results.items() if "callback" not in name}
    root.call_on_fit_task_end(estimator=machine, **given, reconstruction_attributes=results)
    return fitted
