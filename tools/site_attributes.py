"""An extension of the documentation site: do not show the docstring of a value's type as that of an attribute."""

from __future__ import annotations

from typing import Any

import griffe


class Attributes(griffe.Extension):
    """Drop the docstring that inspection finds for a class attribute if it is that of its type, as ``bool``."""

    def on_attribute_instance(self, *, node: Any, attr: griffe.Attribute, **_: Any) -> None:
        """Drop the docstring of an attribute that is not a property, if it belongs to its type."""
        value = getattr(node, "obj", None)
        if attr.docstring is not None and not isinstance(value, property):
            inherited = type(value).__doc__
            # The docstring of some types is a descriptor.
            if isinstance(inherited, str) and attr.docstring.value.strip()[:40] == inherited.strip()[:40]:
                attr.docstring = None
