"""An extension of the documentation site: parameters as in the signature, in groups; no docstring of a value's type."""

from __future__ import annotations

from typing import Any

import griffe

# Groups in the order of a page. Parameters without a group belong to the model.
LANDMARKS = {"n_landmarks", "landmarks", "n_components", "factor", "tol_norm"}
RESOURCES = {"max_memory", "max_device_memory", "max_time", "n_jobs", "engine", "random_state", "verbose"}


def group(name: str, others: set[str]) -> str:
    """Return the group of a parameter: model, landmarks or resources."""
    # With tol_norm, tol is the error that decides the number of landmarks; otherwise that of a solver.
    if name in LANDMARKS or (name == "tol" and "tol_norm" in others):
        return "landmarks"
    return "resources" if name in RESOURCES else "model"


class SiteDocstring(griffe.Docstring):
    """A docstring whose parameters have their own defaults and types; those of a machine are listed by group."""

    def parse(self, *args: Any, **options: Any) -> list[griffe.DocstringSection]:
        """Return the sections; the parameters of a machine are one section per group, each with its title."""
        sections: list[griffe.DocstringSection] = []
        for section in super().parse(*args, **options):
            if not isinstance(section, griffe.DocstringSectionParameters):
                sections.append(section)
                continue
            self._correct(section.value)
            names = {entry.name for entry in section.value}
            if not (isinstance(self.parent, griffe.Class) and {"n_landmarks", "n_jobs"} <= names):
                sections.append(section)
                continue
            for title in ("model", "landmarks", "resources"):
                members = [entry for entry in section.value if group(entry.name, names) == title]
                sections.append(griffe.DocstringSectionParameters(members, title=f"Parameters: {title}"))
        return sections

    def _correct(self, entries: list[griffe.DocstringParameter]) -> None:
        """Give each parameter what its signature says: an entry for several names shows that of the first for all."""
        signature = {each.name: each for each in getattr(self.parent, "parameters", ())}
        for entry in entries:
            if entry.name in signature:
                own = signature[entry.name]
                entry.value = own.default
                if any(entry.annotation is each.annotation for each in signature.values()):
                    entry.annotation = own.annotation


class Attributes(griffe.Extension):
    """Correct the parameters of the docstrings; drop docstrings that inspection takes from the type of an attribute."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Have the docstring of a class or function list its parameters as above."""
        docstring = obj.docstring
        if docstring is not None and isinstance(obj, (griffe.Class, griffe.Function)):
            obj.docstring = SiteDocstring(
                docstring.value,
                lineno=docstring.lineno,
                endlineno=docstring.endlineno,
                parent=obj,
                parser=docstring.parser,
                parser_options=docstring.parser_options,
            )

    def on_attribute_instance(self, *, node: Any, attr: griffe.Attribute, **_: Any) -> None:
        """Drop the docstring of an attribute that is not a property, if it belongs to its type, as ``bool``."""
        value = getattr(node, "obj", None)
        if attr.docstring is not None and not isinstance(value, property):
            inherited = type(value).__doc__
            # The docstring of some types is a descriptor.
            if isinstance(inherited, str) and attr.docstring.value.strip()[:40] == inherited.strip()[:40]:
                attr.docstring = None
