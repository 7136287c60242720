"""Run the examples and write a page for each: a hook of the documentation site (``mkdocs.yml``), not an example."""

from __future__ import annotations

import ast
import runpy
import warnings
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parent
# Inches up to which a figure is readable on a phone.
_NARROW = 7
# In the order of the gallery.
NAMES = (
    "paper_maps",
    "digits_embedded",
    "denoising",
    "spectral_shapes",
    "probabilities",
    "gp_band",
    "intervals",
    "sets_of_classes",
    "reasons",
    "learned_metric",
    "sparse_text",
    "words",
    "many_landmarks",
    "out_of_core",
    "selectors_compared",
    "tolerance",
    "csv_to_model",
)


def names() -> list[str]:
    """Return the examples in the order of the gallery; every script beside this one is one of them."""
    found = {path.stem for path in EXAMPLES.glob("*.py")} - {Path(__file__).stem}
    missing = found.symmetric_difference(NAMES)
    if missing:
        raise ValueError(f"examples and the gallery's names differ: {sorted(missing)}")
    return list(NAMES)


def describe(name: str) -> tuple[str, str, str]:
    """Return the title, the text and the code of an example."""
    source = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    title, _, text = (ast.get_docstring(ast.parse(source)) or "").partition("\n")
    code = source.split('"""', 2)[2].strip()
    return title, text.strip("=\n"), code


def draw(name: str) -> Any:
    """Run an example without a screen and return its figure; warnings are errors."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.close("all")
    show, plt.show = plt.show, lambda *_, **__: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            runpy.run_path(str(EXAMPLES / f"{name}.py"))
    finally:
        plt.show = show
    return plt.gcf()


def on_config(config: Any) -> Any:
    """Run every example and add its page, before mkdocs looks for pages."""
    folder = Path(config["docs_dir"]) / "gallery"
    folder.mkdir(exist_ok=True)
    cards = [
        "# Gallery\n",
        "Each example is a short script in `examples/`, which runs when this site is built.\n",
        '<div class="grid cards" markdown>\n',
    ]
    pages = []
    for name in names():
        title, text, code = describe(name)
        figure = draw(name)
        figure.savefig(folder / f"{name}.png", dpi=110)
        picture = f"![{title}]({name}.png)"
        # On a phone, a figure of several panels scrolls.
        wide = "{ .wide }" if figure.get_figwidth() > _NARROW else ""
        (folder / f"{name}.md").write_text(
            f"# {title}\n\n{text}\n\n{picture}{wide}\n\n```python\n{code}\n```\n", "utf-8"
        )
        cards.append(f"- [{picture}]({name}.md)\n\n    **[{title}]({name}.md)**\n")
        pages.append({title: f"gallery/{name}.md"})
    (folder / "index.md").write_text("\n".join([*cards, "</div>\n"]), "utf-8")
    gallery = {"Gallery": ["gallery/index.md", *pages]}
    config["nav"] = [gallery if "Gallery" in entry else entry for entry in config["nav"]]
    return config
