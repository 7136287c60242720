"""What a fitted machine shows of itself in a notebook: a few lines above scikit-learn's diagram, and no data read."""

from __future__ import annotations

import html
from typing import Any


def summary(model: Any) -> list[tuple[str, str]]:
    """Return names and values of what is known of a fit, from its results alone; empty before the fit."""
    if not hasattr(model, "landmarks_"):
        return []
    m, p = model.landmarks_.shape
    lines = [("landmarks", f"{m:,} of {p:,} columns"), ("kernel", repr(model.kernel_))]
    certificate = getattr(model, "certificate_", None)
    if certificate is not None:
        lines.append(("rank", f"{model.n_components_:,}"))
        lines.append(("error", f"{certificate.trace} on {certificate.n_rows:,} rows"))
    for name in ("alpha_", "C_", "solver_", "n_iter_"):
        value = getattr(model, name, None)
        if value is not None:
            lines.append((name.rstrip("_"), f"{value:.4g}" if isinstance(value, float) else str(value)))
    stages = getattr(model, "_stages", None)
    if stages:
        lines.append(("passes", str(sum(stage.n_passes for stage in stages))))
        lines.append(("seconds", ", ".join(f"{stage.name} {stage.seconds:.2g}" for stage in stages)))
    quality = getattr(model, "quality_", None)
    if quality is not None:
        lines.append(("quality", str(quality)))
    return lines


def summary_html(model: Any) -> str:
    """Return the summary as a small table that follows the page's colours."""
    lines = summary(model)
    if not lines:
        return ""
    cell = "padding:0 1em 0 0;text-align:left;background:none;border:none"
    rows = "".join(
        f'<tr><th scope="row" style="{cell};font-weight:600">{html.escape(name)}</th>'
        f'<td style="{cell}">{html.escape(value)}</td></tr>'
        for name, value in lines
    )
    style = "border-collapse:collapse;margin:0 0 .5em;font-family:monospace;font-size:.9em"
    return f'<table class="nystrom-summary" style="{style}"><tbody>{rows}</tbody></table>'
