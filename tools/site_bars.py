"""A hook of the documentation site: the first table of the performance page, drawn as bars above it."""

from __future__ import annotations

import re
from html import escape
from typing import Any

_LEFT, _WIDE, _STEP = 4, 400, 46
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Put the picture before the first table with a column of time ratios."""
    if page.file.src_uri != "performance.md":
        return markdown
    table = re.search(r"^\|.*\|\n\|[-|: ]+\|\n(?:\|.*\|\n)+", markdown, re.MULTILINE)
    if table is None:
        raise ValueError("docs/performance.md has no table to draw: it opens with the answer")
    return f"{markdown[: table.start()]}{draw(table[0])}\n\n{markdown[table.start() :]}"


def draw(table: str) -> str:
    """Return the rows of a Markdown table as an SVG: a bar for the column of times, a line at 1."""
    head, _, *lines = ([cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().splitlines())
    time = next(i for i, name in enumerate(head) if "time" in name)
    alone = f"{head[0]} " if time == 1 else ""
    rows = [(alone + " · ".join(line[:time]), line[time]) for line in lines]
    ratios = [sum(map(float, found)) / len(found) if (found := _NUMBER.findall(text)) else None for _, text in rows]
    widest = max(1.25, *(ratio for ratio in ratios if ratio is not None))
    unit = (_WIDE - _LEFT - 70) / widest
    parts = []
    for i, ((name, text), ratio) in enumerate(zip(rows, ratios, strict=True)):
        y = 14 + i * _STEP
        shown = escape(re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", name))
        parts.append(f'<text x="{_LEFT}" y="{y}" font-size="13">{shown}</text>')
        if ratio is not None:
            parts.append(f'<rect class="ours" x="{_LEFT}" y="{y + 6}" width="{ratio * unit:.1f}" height="14" rx="2"/>')
            parts.append(f'<text x="{_LEFT + ratio * unit + 6:.1f}" y="{y + 17}" font-size="13">{escape(text)}</text>')
    height = 24 + len(rows) * _STEP
    at_one = _LEFT + unit
    parts.append(f'<line class="axis" x1="{at_one:.1f}" x2="{at_one:.1f}" y1="4" y2="{height - 18}" stroke="gray"/>')
    parts.append(f'<text x="{at_one:.1f}" y="{height - 4}" font-size="13" text-anchor="middle">as fast</text>')
    title = "Time, ours ÷ theirs: shorter is faster"
    body = "".join(parts)
    return f'<svg class="bars" viewBox="0 0 {_WIDE} {height}" role="img" aria-label="{title}">{body}</svg>'
