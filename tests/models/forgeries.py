"""Damaged and forged model files, made of a good one: what :func:`nystrom.load` must refuse in one line."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

Members = dict[str, bytes]


class Canary:
    """A pickle that leaves a file behind when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def members_of(raw: bytes) -> Members:
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def archive_of(members: Members, compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def sealed(members: Members, manifest: Any = None) -> bytes:
    """Return a file whose checksums are right, whatever is in it: the work of somebody who knows the format."""
    described = json.loads(members["manifest.json"]) if manifest is None else manifest
    arrays = {name: raw for name, raw in members.items() if not name.startswith("manifest.")}
    if isinstance(described, dict):
        described["members"] = {name: hashlib.sha256(raw).hexdigest() for name, raw in arrays.items()}
    text = json.dumps(described).encode()
    return archive_of({"manifest.json": text, "manifest.sha256": hashlib.sha256(text).hexdigest().encode(), **arrays})


def flipped(raw: bytes, rng: np.random.Generator, canary: Path) -> bytes:
    damaged = bytearray(raw)
    for position in rng.integers(len(raw), size=int(rng.integers(1, 4))):
        damaged[position] ^= 1 << int(rng.integers(8))
    return bytes(damaged)


def cut(raw: bytes, rng: np.random.Generator, canary: Path) -> bytes:
    return raw[: int(rng.integers(len(raw)))]


def torn(raw: bytes, rng: np.random.Generator, canary: Path) -> bytes:
    begin, length = int(rng.integers(len(raw))), int(rng.integers(1, 2000))
    middle = [b"", bytes(length), rng.bytes(length), 2 * raw[begin : begin + length]][int(rng.integers(4))]
    return raw[:begin] + middle + raw[begin + length :]


def _nodes(node: Any) -> Iterator[tuple[Any, Any]]:
    items: Any = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield node, key
        yield from _nodes(value)


_NASTY: tuple[Any, ...] = (
    None, True, 0, -1, 10**30, 1e308, 0.5, "", "auto", "x" * 1000, [], [[]], {}, {"$array": "no.npy"}, {"$tuple": 3},
    {"$object": "os.system", "fields": {"command": "true"}}, {"$object": "Gaussian", "fields": {}},
    {"$object": "Precomputed", "fields": {"indices": [99999, -5]}}, {"$float": "nan"}, {"$float": "1e5"},
    {"$objects": [1, 2], "shape": [10**12]}, {"$dict": [[[], 1]]}, {"$left_out": "x"}, {"$scalar": "landmarks_.npy"},
    {"$csr": {"data": {"$array": "landmarks_.npy"}, "indices": [0], "indptr": [0], "shape": [10**18, 2]}},
    {"$object": "FromCallable", "fields": {"function": "eval"}}, {"$object": "Pipeline", "fields": {"a": 1}},
)  # fmt: skip


def rewritten(raw: bytes, rng: np.random.Generator, canary: Path) -> bytes:
    """A manifest with one or two values replaced, renamed or removed."""
    members = members_of(raw)
    manifest = json.loads(members["manifest.json"])
    for _ in range(int(rng.integers(1, 3))):
        places = list(_nodes(manifest))
        node, key = places[int(rng.integers(len(places)))]
        way = rng.integers(4)
        if way == 0 and isinstance(node, dict):
            del node[key]
        elif way == 1 and isinstance(node, dict):
            node[f"{key}x"] = node.pop(key)
        else:
            node[key] = json.loads(json.dumps(_NASTY[int(rng.integers(len(_NASTY)))]))
    return sealed(members, manifest)


def nested(raw: bytes, rng: np.random.Generator, canary: Path) -> bytes:
    members = members_of(raw)
    depth = int(rng.integers(100, 20_000))
    text = (b'{"members": ' + b"[" * depth) + b"]" * depth + b"}"
    members["manifest.json"], members["manifest.sha256"] = text, hashlib.sha256(text).hexdigest().encode()
    return archive_of(members)


def _npy(descr: str, shape: Any, payload: bytes) -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + payload


def other_array(raw: bytes, rng: np.random.Generator, canary: Path) -> bytes:
    """An array of another type, shape or content, its checksum right."""
    members = members_of(raw)
    names = [name for name in members if name.endswith(".npy")]
    if not names:  # an encoder alone has no arrays
        return rewritten(raw, rng, canary)
    name = names[int(rng.integers(len(names)))]
    array = np.load(io.BytesIO(members[name]))
    whole = array.tobytes()
    choices: list[Callable[[], bytes]] = [
        lambda: _npy("'|O'", (1,), pickle.dumps(Canary(canary))),
        lambda: pickle.dumps(Canary(canary)),
        lambda: _npy("'<f8'", (10**15, 10**15), whole),
        lambda: _npy("'<f8'", (-1, 8), whole),
        lambda: _npy("'<f8'", (2**62, 4), b""),
        lambda: _npy("[('a', '<f8')]", array.shape, whole),
        lambda: _npy("'<M8[s]'", array.shape, whole),
        lambda: _npy("'<U4'", (2,), rng.bytes(32)),
        lambda: _npy("'<f8', " + "1" * 60_000, array.shape, whole),
        lambda: _saved(np.atleast_1d(array)[:-1]),
        lambda: _saved(np.full(array.shape, np.nan)),
        lambda: _saved(np.ones(array.shape, np.int64)),
        lambda: _saved(np.zeros((0, *array.shape[1:]))),
        lambda: _saved(np.ones((*array.shape, 1))),
        lambda: _saved(rng.normal(size=tuple(rng.integers(0, 6, size=int(rng.integers(0, 4)))))),
        lambda: _saved(np.array(["a", "b"])),
        lambda: b"",
        lambda: rng.bytes(200),
    ]
    members[name] = choices[int(rng.integers(len(choices)))]()
    return sealed(members)


def _saved(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def tricked(raw: bytes, rng: np.random.Generator, canary: Path) -> bytes:
    """An archive that lies about itself."""
    members = members_of(raw)
    way = int(rng.integers(9))
    if way == 0:
        return archive_of(members, zipfile.ZIP_DEFLATED)
    if way == 1:
        return archive_of({**members, "bomb.npy": bytes(10**7)}, zipfile.ZIP_DEFLATED)
    if way == 2:
        return archive_of({"../../outside.npy": b"x", **members})
    if way == 3:
        return archive_of({"model.nystrom": raw})
    if way == 4:
        buffer = io.BytesIO(archive_of(members))
        import warnings

        with warnings.catch_warnings(), zipfile.ZipFile(buffer, "a") as archive:
            warnings.simplefilter("ignore")
            archive.writestr("manifest.json", b"{}")
        return buffer.getvalue()
    if way == 5:  # sizes in the central directory
        damaged = bytearray(raw)
        at = raw.rfind(b"PK\x01\x02")
        struct.pack_into("<II", damaged, at + 20, 2**31, 2**31)
        return bytes(damaged)
    if way == 6:  # where the central directory begins, and how long it is
        damaged = bytearray(raw)
        at = raw.rfind(b"PK\x05\x06")
        struct.pack_into("<HHII", damaged, at + 8, 65535, 65535, 2**32 - 1, int(rng.integers(2**32)))
        return bytes(damaged)
    if way == 7:  # every member at the same place
        damaged = bytearray(raw)
        at = raw.find(b"PK\x01\x02")
        while at >= 0:
            struct.pack_into("<I", damaged, at + 42, 0)
            at = raw.find(b"PK\x01\x02", at + 1)
        return bytes(damaged)
    del members[list(members)[int(rng.integers(len(members)))]]
    return archive_of(members)


def other_file(raw: bytes, rng: np.random.Generator, canary: Path) -> bytes:
    """Something that is no model file at all."""
    choices = [
        b"",
        pickle.dumps(Canary(canary)),
        b"PK\x03\x04" + pickle.dumps(Canary(canary)),
        b"a,b\n1,2\n",
        rng.bytes(int(rng.integers(1, 500))),
        b"PK\x03\x04" + rng.bytes(300),
        archive_of({"x.npy": _saved(np.eye(2))}),
        archive_of({}),
        raw + pickle.dumps(Canary(canary)),
        pickle.dumps(Canary(canary)) + raw,
    ]
    return choices[int(rng.integers(len(choices)))]


WAYS = (flipped, cut, torn, rewritten, nested, other_array, tricked, other_file)


def forgeries(raw: bytes, count: int, seed: int, canary: Path) -> Iterator[tuple[str, bytes]]:
    """Yield ``count`` damaged or forged files made of the good one, each with the way it was made."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        way = WAYS[number % len(WAYS)]
        yield f"{way.__name__} {number}", way(raw, rng, canary)
