"""Python values as JSON and arrays, and back: a closed set of kinds, so that reading a file runs no code of its own.

Numbers, text, booleans, None and lists are plain JSON. Everything else is an object with one key that begins with
``$``: ``$float`` (not finite), ``$scalar`` (a NumPy number), ``$tuple``, ``$slice``, ``$dict`` (pairs), ``$array`` (a
member of the file), ``$csr``, ``$left_out``, or ``$object``, whose type is looked up by name in a fixed table. If
the user requests it, ``$import`` names a function or class of the user's own, with the fields of an object of that
class.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import reduce
from importlib import import_module
from typing import Any, NoReturn, TypeAlias

import numpy as np

from nystrom.exceptions import ModelFileError, NotInModelFileError, warn_caller
from nystrom.models.container import ArrayStore, Container
from nystrom.rows.sparse import csr_rows
from nystrom.types import Array, SparseMatrix, issparse

# What json reads and writes; other values are objects with one key that begins with "$".
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Node: TypeAlias = dict[str, Any]

_MAX_DEPTH = 40


class LeftOut:
    """Placeholder in a loaded model for what its file does not hold; any use of it raises an error that says so."""

    def __init__(self, name: str) -> None:
        self._name = name

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise NotInModelFileError(
            f"this model was loaded from a file that holds only what predictions need, and {self._name!r} is not "
            f"among it. Save the fitted model with save(path, full=True) to keep it."
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse()

    __array__ = __getitem__ = __len__ = __iter__ = __matmul__ = __rmatmul__ = __mul__ = __rmul__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __truediv__ = _refuse
    __array_ufunc__ = _refuse

    def __getstate__(self) -> dict[str, str]:
        return {"_name": self._name}

    def __setstate__(self, state: dict[str, str]) -> None:
        self._name = state["_name"]

    def __repr__(self) -> str:
        return f"<{self._name}: not in the model file>"


@dataclass(frozen=True)
class Kind:
    """How one type of object is split into fields and rebuilt.

    ``parts`` returns the fields of an object by name; ``build`` makes an object from them, and raises ``ValueError`` or
    ``TypeError`` if they do not fit.
    """

    type: type
    parts: Callable[[Any], Mapping[str, object]]
    build: Callable[[dict[str, Any]], Any]


def dataclass_kind(cls: type) -> Kind:
    """Return the kind of a dataclass: its fields, and its constructor with the checks made there."""
    names = {field.name for field in fields(cls)}

    def parts(value: object) -> dict[str, object]:
        return {name: getattr(value, name) for name in names}

    def build(given: dict[str, Any]) -> Any:
        unknown = sorted(set(given) - names)
        if unknown:
            raise ValueError(f"{cls.__name__} has no field {unknown[0]!r}")
        return cls(**given)

    assert is_dataclass(cls)
    return Kind(cls, parts, build)


class Packer:
    """Turns values into JSON, and their arrays into members of a file."""

    def __init__(self, kinds: Mapping[str, Kind], left_out: frozenset[str], *, imports: bool = False) -> None:
        self._imports = imports
        self._names = {kind.type: name for name, kind in kinds.items()}
        self._kinds = kinds
        self._left_out = left_out
        self.arrays = ArrayStore()

    def pack(self, value: object, path: str) -> Json:
        """Return the JSON of a value; ``path`` is its dotted name in the model."""
        if path in self._left_out:
            return {"$left_out": path}
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, (np.ndarray, np.generic)):
            return self._pack_numpy(value, path)
        if isinstance(value, int):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"$float": repr(value)}
        if issparse(value):
            return self._pack_csr(value, path)
        if isinstance(value, (list, tuple)):
            items = [self.pack(item, f"{path}.{i}") for i, item in enumerate(value)]
            return items if isinstance(value, list) else {"$tuple": items}
        if isinstance(value, dict):
            pairs: list[Json] = [
                [self.pack(k, f"{path}.{i}.k"), self.pack(v, f"{path}.{i}")] for i, (k, v) in enumerate(value.items())
            ]
            return {"$dict": pairs}
        if isinstance(value, slice):
            ends = (value.start, value.stop, value.step)
            return {"$slice": [self.pack(end, f"{path}.{i}") for i, end in enumerate(ends)]}
        if isinstance(value, LeftOut):
            value._refuse()
        return self._pack_object(value, path)

    def _pack_numpy(self, value: Array | np.generic, path: str) -> Json:
        if isinstance(value, np.generic):
            value = np.asarray(value)
            scalar = True
        else:
            scalar = False
        if value.dtype.kind == "O":
            return {
                "$objects": [self.pack(item, f"{path}.{i}") for i, item in enumerate(value.ravel().tolist())],
                "shape": list(value.shape),
            }
        if value.dtype.kind not in "fiubU":
            raise TypeError(f"{path} holds {value.dtype}, which a model file does not hold.")
        name = self.arrays.add(path.replace(".", "/"), value)
        return {"$scalar" if scalar else "$array": name}

    def _pack_csr(self, value: SparseMatrix, path: str) -> Json:
        X = value.tocsr()
        parts = {part: self.pack(getattr(X, part), f"{path}.{part}") for part in ("data", "indices", "indptr")}
        return {"$csr": {**parts, "shape": list(X.shape)}}

    def _pack_object(self, value: object, path: str) -> Json:
        name = self._names.get(type(value))
        if name is None and self._imports and (inspect.isroutine(value) or hasattr(value, "__dict__")):
            return self._pack_import(value, path)
        if name is None:
            what = f"the function {value!r}" if callable(value) else f"a {type(value).__name__}"
            raise TypeError(
                f"the model cannot be saved: its {path!r} is {what}, and a model file holds numbers, text and the "
                f"library's own types alone, never code. save(..., imports=True) saves where to import it from."
            )
        parts = self._kinds[name].parts(value)
        return {
            "$object": name,
            "fields": {key: self.pack(part, f"{path}.{key}" if path else key) for key, part in parts.items()},
        }

    def _pack_import(self, value: Any, path: str) -> Json:
        """Return the import path of a function, or that of the class of an object with its fields."""
        if inspect.isroutine(value):
            return {"$import": _import_path(value, path)}
        named = fields(value) if is_dataclass(value) else ()
        parts = value.get_params(deep=False) if hasattr(value, "get_params") else vars(value)
        parts = {field.name: getattr(value, field.name) for field in named} or parts
        packed = {key: self.pack(part, f"{path}.{key}") for key, part in parts.items()}
        return {"$import": _import_path(type(value), path), "fields": packed}


def _import_path(value: Any, path: str) -> str:
    """Return the path module:name of a function or class, after checking that it can be imported from there."""
    place = f"{value.__module__}:{value.__qualname__}"
    try:
        found = _import(place) if value.__module__ != "__main__" else None
    except (ImportError, AttributeError):
        found = None
    if found is not value:
        raise TypeError(
            f"the model cannot be saved: its {path!r} is {value!r}, which cannot be imported as {place}. Define it at "
            f"the top of a module that can be imported where the model is loaded."
        )
    return place


def _import(place: str) -> Any:
    module, _, name = place.partition(":")
    return reduce(getattr, name.split("."), import_module(module))


class Unpacker:
    """Turns the JSON of a file back into values; anything unexpected is a :class:`ModelFileError`."""

    def __init__(self, kinds: Mapping[str, Kind], container: Container, *, imports: bool = False) -> None:
        self._kinds = kinds
        self._container = container
        self._imports = imports

    def unpack(self, node: Any, depth: int = 0) -> Any:
        """Return the value of a JSON node."""
        if depth > _MAX_DEPTH:
            self._container.fail("damaged or forged: its values are nested too deeply.")
        if node is None or isinstance(node, (bool, int, float, str)):
            return node
        if isinstance(node, list):
            return [self.unpack(item, depth + 1) for item in node]
        key = next((key for key in self._METHODS if key in node), None)
        if key is None:
            self._container.fail(f"damaged or forged: unknown value {str(node)[:80]!r} in its manifest.")
        try:
            return self._METHODS[key](self, node, depth + 1)
        except (ModelFileError, NotInModelFileError):
            raise
        except (ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError) as error:
            problem = " ".join(str(error).split())[:300]
            self._container.fail(f"damaged, forged, or of another version: {key[1:]}: {problem}")

    def _float(self, node: Node, depth: int) -> float:
        return {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[node["$float"]]

    def _array(self, node: Node, depth: int) -> object:
        return self._container.array(node["$array"])

    def _scalar(self, node: Node, depth: int) -> object:
        return self._container.array(node["$scalar"]).reshape(())[()]

    def _objects(self, node: Node, depth: int) -> object:
        items = self.unpack(node["$objects"], depth)
        values = np.empty(len(items), dtype=object)
        values[:] = items
        return values.reshape([int(length) for length in node["shape"]])

    def _tuple(self, node: Node, depth: int) -> object:
        return tuple(self.unpack(list(node["$tuple"]), depth))

    def _slice(self, node: Node, depth: int) -> object:
        return slice(*self.unpack(list(node["$slice"]), depth))

    def _dict(self, node: Node, depth: int) -> object:
        return {self.unpack(key, depth): self.unpack(value, depth) for key, value in node["$dict"]}

    def _csr(self, node: Node, depth: int) -> object:
        parts = node["$csr"]
        data, indices, indptr = (self.unpack(parts[name], depth) for name in ("data", "indices", "indptr"))
        n, p = (int(length) for length in parts["shape"])
        if any(not isinstance(part, np.ndarray) for part in (data, indices, indptr)):
            raise ValueError("a sparse matrix needs three arrays")
        return csr_rows(data, indices, indptr, (n, p), "a sparse matrix")

    def _left(self, node: Node, depth: int) -> object:
        return LeftOut(str(node["$left_out"])[:100])

    def _object(self, node: Node, depth: int) -> object:
        name = node["$object"]
        if name not in self._kinds:
            self._container.fail(
                f"it holds an object of the type {str(name)[:80]!r}, which this version of nystrom does not know."
            )
        given = {str(key): self.unpack(value, depth) for key, value in node["fields"].items()}
        return self._kinds[name].build(given)

    def _own(self, node: Node, depth: int) -> object:
        place = str(node["$import"])[:200]
        if not self._imports:
            self._container.fail(
                f"it needs {place}, which is not part of nystrom. Loading it runs the code of that module: if you "
                f"trust the file and the module, load it with imports=True."
            )
        warn_caller(f"{self._container.path} imports {place}: its code runs.", UserWarning)
        try:
            found = _import(place)
        except (ImportError, AttributeError) as error:
            self._container.fail(f"{place} cannot be imported here ({error}).")
        if "fields" not in node:
            return found
        return found(**{str(key): self.unpack(value, depth) for key, value in node["fields"].items()})

    _METHODS: Mapping[str, Callable[[Any, Node, int], object]] = {
        "$float": _float,
        "$array": _array,
        "$scalar": _scalar,
        "$objects": _objects,
        "$tuple": _tuple,
        "$slice": _slice,
        "$dict": _dict,
        "$csr": _csr,
        "$left_out": _left,
        "$object": _object,
        "$import": _own,
    }
