"""The formats of output: each writes block after block into a folder, can tell what is whole there, and ends."""

from __future__ import annotations

import os
import zlib
from abc import ABC, abstractmethod
from pathlib import Path

import numpy as np

from nystrom.disk.replace import flush, move
from nystrom.exceptions import NystromError
from nystrom.rows.arrow import count_parquet_rows, join_parquet, read_parquet_part, write_parquet_part
from nystrom.rows.zarr import create_zarr, has_chunk, read_zarr_rows, write_zarr
from nystrom.types import Array


class Writer(ABC):
    """One format of output, written in order, block by block, into the folder ``partial``.

    Beside the data a journal holds a checksum of each block, written after it: only blocks that still have theirs are
    taken up.
    """

    def __init__(self, partial: Path, shape: tuple[int, int], dtype: np.dtype, block_rows: int) -> None:
        self.partial = partial
        self.shape = shape
        self.dtype = dtype
        self.block_rows = block_rows
        self.n_blocks = -(-shape[0] // block_rows)

    @property
    def _journal(self) -> Path:
        return self.partial / "journal"

    def add(self, index: int, values: Array) -> None:
        """Write block ``index`` and note it."""
        values = np.ascontiguousarray(values, dtype=self.dtype).reshape(-1, self.shape[1])
        self._write(index, values)
        with self._journal.open("a") as stream:
            stream.write(f"{index} {_checksum(values)}\n")

    def resume(self) -> int:
        """Return how many blocks, counted from the first, are there and whole; what follows them is removed."""
        whole = 0
        try:
            lines = self._journal.read_text().splitlines()
            for line in lines:
                values = self._read(whole)
                if values is None or line != f"{whole} {_checksum(values)}":
                    break
                whole += 1
            self._cut(whole)
        except Exception:  # whatever is wrong with what is there, it can be made again
            return 0
        self._journal.write_text("".join(f"{line}\n" for line in lines[:whole]))
        return whole

    def restore(self, path: Path) -> None:
        """Undo the first half of a move into place that was interrupted."""
        old = self.partial / "old"
        if old.exists() and not path.exists():
            os.replace(old, path)

    def finish(self, path: Path) -> None:
        """Move the output to its name, once it is found to be complete."""
        complete = self._complete()
        if complete is None:
            raise NystromError(
                f"{path}: blocks in {self.partial} are missing or short, so it is not put in place. Something removed "
                f"them while they were written; call again to write them all."
            )
        self._place(complete, path)

    @abstractmethod
    def create(self) -> None:
        """Begin in the empty folder."""

    @abstractmethod
    def _write(self, index: int, values: Array) -> None: ...

    @abstractmethod
    def _read(self, index: int) -> Array | None:
        """Return block ``index`` as it is stored; None, or an error, if it is not whole."""

    @abstractmethod
    def _cut(self, count: int) -> None:
        """Remove all but the first ``count`` blocks."""

    @abstractmethod
    def _complete(self) -> Path | None:
        """Return the complete output, or None if anything is missing."""

    def _place(self, complete: Path, path: Path) -> None:
        move(complete, path)

    def _rows_of(self, index: int) -> int:
        return min(self.block_rows, self.shape[0] - index * self.block_rows)


def _checksum(values: Array) -> str:
    return f"{zlib.crc32(np.ascontiguousarray(values).reshape(-1).view(np.uint8)):08x}"  # type: ignore[arg-type]


class NpyWriter(Writer):
    """Appends to a ``.npy`` file."""

    @property
    def _file(self) -> Path:
        return self.partial / "data.npy"

    def _offset(self, index: int) -> int:
        with self._file.open("rb") as stream:
            np.lib.format.read_magic(stream)
            np.lib.format.read_array_header_1_0(stream)
            rows = min(index * self.block_rows, self.shape[0])
            return stream.tell() + rows * self.shape[1] * self.dtype.itemsize

    def create(self) -> None:
        with self._file.open("wb") as stream:
            described = {"descr": self.dtype.str, "fortran_order": False, "shape": self.shape}
            np.lib.format.write_array_header_1_0(stream, described)

    def _write(self, index: int, values: Array) -> None:
        raw = memoryview(values.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
        with self._file.open("ab", buffering=0) as stream:
            while len(raw):
                raw = raw[stream.write(raw) :]

    def _read(self, index: int) -> Array | None:
        with self._file.open("rb") as stream:
            stream.seek(self._offset(index))
            values = np.fromfile(stream, self.dtype, self._rows_of(index) * self.shape[1])
        return values if values.size == self._rows_of(index) * self.shape[1] else None

    def _cut(self, count: int) -> None:
        os.truncate(self._file, self._offset(count))

    def _complete(self) -> Path | None:
        return self._file if self._file.stat().st_size == self._offset(self.n_blocks) else None


class ZarrWriter(Writer):
    """Writes one chunk per block."""

    @property
    def _store(self) -> Path:
        return self.partial / "data.zarr"

    def create(self) -> None:
        create_zarr(self._store, self.shape, self.block_rows, self.dtype)

    def _write(self, index: int, values: Array) -> None:
        write_zarr(self._store, index * self.block_rows, values)

    def _read(self, index: int) -> Array | None:
        if not has_chunk(self._store, index):
            return None
        start = index * self.block_rows
        return read_zarr_rows(self._store, start, start + self._rows_of(index))

    def _cut(self, count: int) -> None:
        # Zarr writes a chunk under another name first; a kill at that moment leaves it behind.
        for orphan in self._store.rglob("*.partial"):
            orphan.unlink()

    def _complete(self) -> Path | None:
        return self._store if all(has_chunk(self._store, index) for index in range(self.n_blocks)) else None

    def _place(self, complete: Path, path: Path) -> None:
        for file in complete.rglob("*"):
            flush(file)
        # A folder cannot be replaced at once; restore() undoes the first step if the second was not made.
        if path.exists():
            os.replace(path, self.partial / "old")
        move(complete, path)


class ParquetWriter(Writer):
    """Writes a file per block, and joins them at the end: a Parquet file that was cut short cannot be continued."""

    def _part(self, index: int) -> Path:
        return self.partial / f"{index:09d}.parquet"

    def _parts(self) -> list[Path]:
        return sorted(self.partial.glob("[0-9]*.parquet"))

    def create(self) -> None:
        pass

    def _write(self, index: int, values: Array) -> None:
        unfinished = self.partial / "unfinished"
        write_parquet_part(unfinished, values)
        os.replace(unfinished, self._part(index))

    def _read(self, index: int) -> Array | None:
        values = read_parquet_part(self._part(index))
        return values if values.shape == (self._rows_of(index), self.shape[1]) else None

    def _cut(self, count: int) -> None:
        for part in self._parts():
            if int(part.stem) >= count:
                part.unlink()

    def _complete(self) -> Path | None:
        parts = self._parts()
        if parts != [self._part(index) for index in range(self.n_blocks)]:
            return None
        joined = self.partial / "joined"
        join_parquet(parts, joined)
        return joined if count_parquet_rows(joined) == self.shape[0] else None


WRITERS: dict[str, type[Writer]] = {".npy": NpyWriter, ".zarr": ZarrWriter, ".parquet": ParquetWriter}
