"""An extension of the documentation site: parameters of the machines in groups, and no docstring of a value's type."""

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


class GroupedDocstring(griffe.Docstring):
    """A docstring whose parameters are listed by group, each with its title."""

    def parse(self, *args: Any, **options: Any) -> list[griffe.DocstringSection]:
        """Return the sections, that of the parameters as one per group."""
        sections: list[griffe.DocstringSection] = []
        for section in super().parse(*args, **options):
            if isinstance(section, griffe.DocstringSectionParameters):
                names = {entry.name for entry in section.value}
                for title in ("model", "landmarks", "resources"):
                    members = [entry for entry in section.value if group(entry.name, names) == title]
                    sections.append(griffe.DocstringSectionParameters(members, title=f"Parameters: {title}"))
            else:
                sections.append(section)
        return sections


class Attributes(griffe.Extension):
    """Group the parameters of machines; drop docstrings that inspection takes from the type of an attribute."""

    def on_class_instance(self, *, node: Any, cls: griffe.Class, **_: Any) -> None:
        """Group the parameters of a class if it has those of a machine."""
        docstring = cls.docstring
        if docstring is not None and "\nn_landmarks : " in docstring.value and "\nn_jobs : " in docstring.value:
            cls.docstring = GroupedDocstring(
                docstring.value,
                lineno=docstring.lineno,
                endlineno=docstring.endlineno,
                parent=cls,
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
