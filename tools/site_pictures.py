"""A hook of the documentation site: for narrow screens, stack the two panels of the start page's picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

WIDE, NARROW = "images/demo.png", "images/demo-narrow.png"


def on_post_build(config: Any) -> None:
    """Write the narrow picture to the folder of the wide one."""
    site = Path(config["site_dir"])
    if not (site / WIDE).is_file() or NARROW not in (site / "index.html").read_text(encoding="utf-8"):
        raise ValueError(f"the start page should show {WIDE}, and {NARROW} on narrow screens")
    stack_panels(site / WIDE, site / NARROW)


def stack_panels(wide: Path, narrow: Path) -> None:
    """Cut a picture where its left panel ends, at a white column near the middle, and stack the two parts.

    Grid lines cross the panel, so no column within it is white.
    """
    import numpy as np
    from matplotlib.image import imread, imsave

    picture = imread(wide)[:, :, :3]
    white = (picture.min(axis=2) > 0.99).all(axis=0)
    first, last = int(0.35 * len(white)), int(0.65 * len(white))
    if not white[first:last].any():
        raise ValueError(f"{wide} has no white column between two panels")
    cut = first + int(np.argmax(white[first:last])) + 2
    panels = [picture[:, :cut], picture[:, cut:]]
    width = max(panel.shape[1] for panel in panels)
    padded = [np.pad(p, ((0, 0), (0, width - p.shape[1]), (0, 0)), constant_values=1.0) for p in panels]
    imsave(narrow, np.concatenate(padded))
