"""A hook of the documentation site: roles of docstrings become links to the pages of their names; dates do not wrap."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc):(?:<code>|`)([~.\w]+)(?:</code>|`)")
_DATE = re.compile(r"<td>((?:before )?\d{4}-\d\d-\d\d)</td>")


def on_page_content(html: str, page: Any, config: Any, **_: Any) -> str:
    """Return the page with ``:class:`nystrom.Name``` as a link, other roles as code, and dates that do not wrap."""
    names = {path.stem for path in (Path(config["docs_dir"]) / "api").glob("*.md")} - {"index"}
    up = "../" * page.url.count("/")

    def link(found: re.Match[str]) -> str:
        dotted = found[1].lstrip("~")
        package, _, last = dotted.rpartition(".")
        # Other packages may have names equal to ours.
        ours = last in names and package.partition(".")[0] in ("", "nystrom")
        shown = last if found[1].startswith("~") or ours else dotted
        return f'<a href="{up}api/{last}/"><code>{shown}</code></a>' if ours else f"<code>{shown}</code>"

    return _DATE.sub(r'<td style="white-space: nowrap">\1</td>', _ROLE.sub(link, html))
