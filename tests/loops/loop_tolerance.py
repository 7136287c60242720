"""How far two ways to the same sums may be apart."""

import numpy as np


def assert_close(found, exact, scale, dtype, terms):
    """Hold to what sums of ``terms`` products may differ by in ``dtype``, relative to the sum of their magnitudes."""
    eps, tiny = np.finfo(dtype).eps, np.finfo(dtype).tiny
    assert found.shape == exact.shape
    assert np.all(np.abs(found - exact) <= (4 + 2 * np.sqrt(terms)) * eps * scale + tiny)
