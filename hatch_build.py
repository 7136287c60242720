"""Compile ``compiled.c`` when the package is built or installed; without a C compiler the package is pure Python.

``python hatch_build.py`` does the same by hand, for work on the C file.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parent / "src" / "nystrom"
SOURCE = PACKAGE / "compiled.c"
LIBRARY = PACKAGE / "_compiled.so"
FLAGS = ["-std=c11", "-O3", "-ffp-contract=fast", "-fvisibility=hidden", "-shared", "-fPIC"]
# Which processor it is, the library finds out when it is loaded.
PROCESSOR_FLAGS = {"x86_64": ["-mavx2", "-mfma"]}


def compile_library() -> bool:
    """Compile the library beside the package's modules; say why not if it cannot be done."""
    if os.environ.get("NYSTROM_COMPILED", "1") != "0":
        try:
            reason = _compile()
        except OSError as error:
            reason = f"compiling failed: {error}"
        if not reason:
            return True
        print(f"nystrom: {reason}. The package works without its compiled loops, more slowly.", file=sys.stderr)
    try:
        LIBRARY.unlink(missing_ok=True)
    except OSError as error:
        print(f"nystrom: {LIBRARY} is from another build and cannot be removed: {error}.", file=sys.stderr)
    return False


def _compile() -> str:
    """Put the library in its place; return why that failed, or nothing."""
    if sys.platform == "win32":
        # GCC does not align the stack there as vectors need it, and the programs it makes end in access violations.
        return "the loops are not compiled on Windows"
    named = os.environ.get("CC", "").strip()
    wanted = [named] if named else ["cc", "gcc", "clang"]
    reason = f"no C compiler ({', '.join(wanted)}) was found"
    flags = FLAGS + PROCESSOR_FLAGS.get(platform.machine(), [])
    for compiler in map(shlex.split, wanted):
        if not shutil.which(compiler[0]):
            continue
        with tempfile.TemporaryDirectory(dir=PACKAGE) as scratch:
            made = Path(scratch) / LIBRARY.name
            done = subprocess.run([*compiler, *flags, str(SOURCE), "-o", str(made)], capture_output=True, text=True)
            if done.returncode == 0 and made.exists():
                made.replace(LIBRARY)
                return ""
            reason = f"{' '.join(compiler)} failed:\n{done.stderr}"
    return reason


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run by hand
    pass
else:

    class CustomBuildHook(BuildHookInterface):
        """Adds the compiled library to the wheel, which is then for this platform only."""

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            if self.target_name != "wheel" or not compile_library():
                return
            build_data["artifacts"].append(f"src/nystrom/{LIBRARY.name}")
            build_data["pure_python"] = False
            build_data["infer_tag"] = True


if __name__ == "__main__":
    sys.exit(0 if compile_library() else 1)
