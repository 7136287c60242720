"""Where data files are looked for, and where what is made of them is kept."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from pathlib import Path

_SUFFIXES = ("", ".bz2", ".xz", ".gz")


def user_cache() -> Path:
    """Return the folder for files of this library in the user's cache."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "nystrom"


def data_homes() -> tuple[Path, ...]:
    """Return the folders searched for data files, first to last.

    The environment variable ``NYSTROM_DATA`` names one folder, or several separated as in ``PATH``; without
    it, the folder is ``nystrom`` in the user's cache.
    """
    value = os.environ.get("NYSTROM_DATA", "")
    named = tuple(Path(part).expanduser() for part in value.split(os.pathsep) if part)
    return named or (user_cache(),)


def find_file(name: str) -> Path | None:
    """Return the data file ``name``, under its own or another compression's suffix, or None."""
    stem = name
    for suffix in _SUFFIXES[1:]:
        stem = stem.removesuffix(suffix)
    names = [name, *(stem + suffix for suffix in _SUFFIXES if stem + suffix != name)]
    for home in data_homes():
        for candidate in names:
            path = home / candidate
            if path.is_file():
                return path
    return None


def is_writable(folder: Path) -> bool:
    """Return whether files may be put in ``folder``.

    The write bits count even for the superuser, who could write anyway: a folder that its owner has marked as
    read-only is left alone.
    """
    try:
        mode = folder.stat().st_mode
    except OSError:
        return False
    return bool(mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)) and os.access(folder, os.W_OK)


def download_folder() -> Path:
    """Return the first data home that exists and can be written to, or that could be made; nothing is made here."""
    for home in data_homes():
        parent = next((folder for folder in (home, *home.parents) if folder.exists()), home)
        if parent.is_dir() and is_writable(parent):
            return home
    return user_cache()


def parsed_path(source: Path) -> Path | None:
    """Return where the binary form of ``source`` is kept: in the user's cache, or where ``NYSTROM_CACHE`` says.

    The environment variable names a folder, or is ``off`` for none.
    """
    chosen = os.environ.get("NYSTROM_CACHE", "")
    if chosen.lower() in ("off", "0", "no", "false"):
        return None
    real = source.resolve()
    tag = hashlib.sha256(str(real).encode()).hexdigest()[:12]
    folder = Path(chosen).expanduser() if chosen else user_cache() / "parsed"
    return folder / f"{real.name}.{tag}.npz"
