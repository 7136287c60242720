"""Fetch a file of the archive. The only file that imports pooch."""

from __future__ import annotations

import sys
from pathlib import Path

from nystrom.exceptions import MissingDependencyError, NystromError


class DataUnavailableError(NystromError, FileNotFoundError):
    """A data file is neither in the data home nor reachable; the message says where to get and put it."""


def fetch(address: str, folder: Path, *, sha256: str | None, progress: bool | None = None) -> Path:
    """Download ``address`` into ``folder`` and return the file.

    The file appears under its name only when it is complete and, where ``sha256`` is known, correct.
    ``progress`` shows a bar (default: if standard error is a terminal and the package tqdm is there).
    """
    try:
        import pooch
    except ImportError as error:
        raise MissingDependencyError("pooch", "io", "downloading data") from error
    name = address.rsplit("/", 1)[1]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        path = pooch.retrieve(
            url=address,
            known_hash=f"sha256:{sha256}" if sha256 else None,
            fname=name,
            path=folder,
            downloader=pooch.HTTPDownloader(progressbar=_can_show(progress), timeout=30),
        )
    except OSError as error:
        raise DataUnavailableError(_advice(name, address, folder, f"the download failed ({error})")) from error
    except ValueError as error:
        raise DataUnavailableError(_advice(name, address, folder, f"the download is damaged ({error})")) from error
    return Path(path)


def missing(name: str, address: str | None, folder: Path) -> DataUnavailableError:
    """Return the error for a file that is not here and is not to be downloaded, or cannot be."""
    return DataUnavailableError(_advice(name, address, folder, "it is not in the data home"))


def _advice(name: str, address: str | None, folder: Path, reason: str) -> str:
    get = (
        f"Get it from {address}" if address else "It is not part of the LIBSVM archive: copy it from where it was made"
    )
    return (
        f"The data file {name!r} could not be had: {reason}. {get} and put it into {folder} "
        f"(or set the environment variable NYSTROM_DATA to the folder that holds it)."
    )


def _can_show(progress: bool | None) -> bool:
    if progress is False or (progress is None and not sys.stderr.isatty()):
        return False
    try:
        import tqdm  # type: ignore[import-untyped]  # noqa: F401
    except ImportError:
        return False
    return True
