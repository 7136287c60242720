from __future__ import annotations

import numpy as np
import pytest

from nystrom.loops import clusters, extension, products, sparse

MODULES = (clusters, extension, products, sparse)


def _instruction_sets():
    try:
        from nystrom.loops import _native
    except ImportError:
        return {}
    return {each.name: each for each in _native.instruction_sets()}


SETS = _instruction_sets() if extension.native is not None else {}


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def use(monkeypatch):
    """Return a function that puts the loops of one instruction set, or NumPy for None, in the place of all others."""

    def put(loops):
        for module in MODULES:
            monkeypatch.setattr(module, "native", loops)

    return put


@pytest.fixture(params=list(SETS) or [pytest.param(None, marks=pytest.mark.skip(reason="the loops are not in use"))])
def both(request, use):
    """Return a function that gives what ``run`` returns with the loops of each instruction set, and without."""
    loops = SETS.get(request.param)

    def compare(run):
        use(loops)
        fast = run()
        use(None)
        return fast, run()

    use(loops)
    return compare
