"""The file of a saved model: one zip archive, nothing compressed, of ``.npy`` arrays and a JSON manifest.

The archive holds ``manifest.json``, ``manifest.sha256`` (the digest of the manifest, in hexadecimal) and one ``.npy``
member per array, whose SHA-256 is in the manifest. ``numpy.load`` opens the file as it would an ``.npz``.

Reading trusts nothing: no pickle, no compression, and every size is checked against the file itself. Any defect of a
file raises a :class:`~nystrom.exceptions.ModelFileError` that names the file.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from nystrom.disk import replacing
from nystrom.exceptions import ModelFileError
from nystrom.types import Array

MANIFEST = "manifest.json"
DIGEST = "manifest.sha256"
# Real and whole numbers, booleans, and text for class names. Object arrays are pickles, so they are refused.
_KINDS = "fiubU"
_MEMBER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,200}\.npy")
_HEADER_BYTES = 10_000
# A fixed time stamp: the same model gives the same bytes.
_DATE = (1980, 1, 1, 0, 0, 0)


class ArrayStore:
    """Arrays to be written to a file; equal arrays are stored once."""

    def __init__(self) -> None:
        self.members: dict[str, bytes] = {}
        self.digests: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def add(self, name: str, array: Array) -> str:
        """Add an array under ``name``, and return the name under which its content is stored."""
        if array.dtype.kind not in _KINDS or array.dtype.hasobject:
            raise TypeError(f"{name} is an array of {array.dtype}, which a model file does not hold.")
        raw = _npy_bytes(array)
        digest = hashlib.sha256(raw).hexdigest()
        if digest not in self._names:
            self._names[digest] = name = f"{name}.npy"
            self.members[name] = raw
            self.digests[name] = digest
        return self._names[digest]


def _npy_bytes(array: Array) -> bytes:
    buffer = io.BytesIO()
    little = np.asarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
    np.lib.format.write_array(buffer, little, allow_pickle=False)
    return buffer.getvalue()


def write_container(path: str | os.PathLike[str], manifest: Mapping[str, object], arrays: ArrayStore) -> None:
    """Write a model file under a temporary name in the same folder, flush it to the disk, then rename it."""
    described = {**manifest, "members": arrays.digests}
    text = json.dumps(described, ensure_ascii=False, allow_nan=False, indent=1).encode()
    digest = hashlib.sha256(text).hexdigest().encode()
    with replacing(Path(path)) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
        for name, raw in ((MANIFEST, text), (DIGEST, digest), *arrays.members.items()):
            archive.writestr(zipfile.ZipInfo(name, _DATE), raw)


class Container:
    """A model file that was read and checked: its manifest, and its arrays on demand."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._members = self._read()
        self.manifest = self._read_manifest()
        self._arrays: dict[str, Array] = {}

    def fail(self, problem: str) -> NoReturn:
        """Raise an error that names this file."""
        raise ModelFileError(f"{self.path}: {problem}")

    def _read(self) -> dict[str, bytes]:
        with self.path.open("rb") as stream:
            if stream.read(4) != b"PK\x03\x04":
                self.fail("not a nystrom model file (it does not begin as one).")
            stream.seek(0)
            raw = stream.read()
        try:
            with zipfile.ZipFile(io.BytesIO(raw)) as archive:
                infos = archive.infolist()
                self._check_directory(infos, len(raw))
                return {info.filename: archive.read(info) for info in infos}
        except ModelFileError:
            raise
        except (
            zipfile.BadZipFile,
            zipfile.LargeZipFile,
            ValueError,
            RuntimeError,  # also NotImplementedError: encryption, unknown compression
            EOFError,
            OSError,
            OverflowError,
            MemoryError,
            struct.error,
            IndexError,
            KeyError,
        ) as error:
            self.fail(f"the model file is damaged or cut short ({_one_line(error)}).")

    def _check_directory(self, infos: list[zipfile.ZipInfo], size: int) -> None:
        names = [info.filename for info in infos]
        if len(set(names)) < len(names):
            self.fail("damaged or forged: two members have the same name.")
        if MANIFEST not in names or DIGEST not in names:
            self.fail(f"not a nystrom model file: it has no {MANIFEST if MANIFEST not in names else DIGEST}.")
        for info in infos:
            if info.filename not in (MANIFEST, DIGEST) and not _MEMBER.fullmatch(info.filename):
                self.fail(f"damaged or forged: the member {info.filename!r} does not belong in a model file.")
            if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
                self.fail(f"damaged or forged: the member {info.filename!r} is compressed; model files are not.")
        if sum(info.file_size for info in infos) > size:
            self.fail("damaged or forged: its members claim to be larger than the file.")

    def _read_manifest(self) -> dict[str, Any]:
        text = self._members[MANIFEST]
        if hashlib.sha256(text).hexdigest().encode() != self._members[DIGEST]:
            self.fail(f"damaged: {MANIFEST} does not match its checksum.")
        try:
            manifest = json.loads(text, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            self.fail(f"damaged or forged: {MANIFEST} cannot be read ({_one_line(error)}).")
        if not isinstance(manifest, dict) or not isinstance(manifest.get("members"), dict):
            self.fail(f"damaged or forged: {MANIFEST} does not describe a model.")
        stored = set(self._members) - {MANIFEST, DIGEST}
        if set(manifest["members"]) != stored:
            self.fail("damaged or forged: its members are not those of its manifest.")
        for name, digest in manifest["members"].items():
            if hashlib.sha256(self._members[name]).hexdigest() != digest:
                self.fail(f"damaged: the member {name!r} does not match its checksum.")
        return manifest

    def array(self, name: object) -> Array:
        """Return the array of one member; always the same object, because the saved model shared it."""
        if not isinstance(name, str) or name not in self.manifest["members"]:
            self.fail(f"damaged or forged: it refers to an array {name!r} that is not there.")
        try:
            if name not in self._arrays:
                self._arrays[name] = _read_npy(self._members[name])
            return self._arrays[name]
        except (ValueError, TypeError, SyntaxError, EOFError, OverflowError, RecursionError, MemoryError) as error:
            self.fail(f"damaged or forged: the array {name!r} cannot be read ({_one_line(error)}).")


def _read_npy(raw: bytes) -> Array:
    stream = io.BytesIO(raw)
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        header = np.lib.format.read_array_header_1_0(stream, max_header_size=_HEADER_BYTES)
    elif version == (2, 0):
        header = np.lib.format.read_array_header_2_0(stream, max_header_size=_HEADER_BYTES)
    else:
        raise ValueError(f"version {version} of the .npy format is not used by model files")
    shape, fortran, dtype = header
    if dtype.kind not in _KINDS or dtype.hasobject or dtype.names is not None or dtype.subdtype is not None:
        raise ValueError(f"it holds {dtype}; only numbers and text are allowed")
    begin = stream.tell()
    # Python integers do not overflow, so a huge shape is merely wrong.
    if any(length < 0 for length in shape) or math.prod(shape) * dtype.itemsize != len(raw) - begin:
        raise ValueError(f"shape {shape} of {dtype} does not match its {len(raw) - begin} bytes")
    flat = np.frombuffer(raw, dtype=dtype, offset=begin) if len(raw) > begin else np.empty(0, dtype)
    array = flat.reshape(shape, order="F" if fortran else "C").astype(dtype.newbyteorder("="), order="K")
    if dtype.kind == "U":
        array.tolist()  # raises if the bytes are not text
    return array != 0 if dtype.kind == "b" else np.asarray(array)


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
