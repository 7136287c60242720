"""An extension of the documentation site: an attribute is not described by the docstring of its value's type."""

from __future__ import annotations

from typing import Any

import griffe


class Attributes(griffe.Extension):
    """Drop what inspection takes for the docstring of a class attribute: that of ``bool`` or ``dict``."""

    def on_attribute_instance(self, *, node: Any, attr: griffe.Attribute, **_: Any) -> None:
        """Drop the docstring of an attribute that is no property, if it is its type's."""
        value = getattr(node, "obj", None)
        if attr.docstring is not None and not isinstance(value, property):
            inherited = type(value).__doc__
            # The docstring of some types is a descriptor.
            if isinstance(inherited, str) and attr.docstring.value.strip()[:40] == inherited.strip()[:40]:
                attr.docstring = None
