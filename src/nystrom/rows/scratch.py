"""Temporary folders that go when the last rows that need them go."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any


class Scratch:
    """A new folder, removed with this object or, at the latest, at the end of the process."""

    def __init__(self, purpose: str, folder: Path | None = None) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=f"nystrom-{purpose}-", dir=folder))
        self._removal = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def remove(self) -> None:
        """Remove the folder now."""
        self._removal()

    def __getstate__(self) -> dict[str, Any]:
        # A copy in another process may read the files but must not remove them.
        return {"path": self.path}
