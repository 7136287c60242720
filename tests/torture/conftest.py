"""Makes ``torture`` importable as a package of helpers, whatever the folder that pytest is started from."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
