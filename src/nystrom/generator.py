"""From what a user calls ``random_state`` to the one generator used inside."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

RandomState: TypeAlias = int | np.random.Generator | np.random.RandomState | None


def make_generator(random_state: RandomState) -> np.random.Generator:
    """Return a Generator from a seed, a Generator, a legacy RandomState, or None.

    Examples
    --------
    >>> bool(make_generator(0).random() == make_generator(0).random())
    True
    """
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(0, 2**31, size=4))
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"random_state must be None, a non-negative integer, a numpy Generator or RandomState; "
            f"got {random_state!r}."
        ) from error
