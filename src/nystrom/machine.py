"""What this machine has."""

from __future__ import annotations

import os


def machine_memory() -> float | None:
    """Return the bytes of memory of this machine; None where the system does not tell."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return None
