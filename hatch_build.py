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
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parent / "src" / "nystrom"
SOURCE = PACKAGE / "compiled.c"
LIBRARY = PACKAGE / ("_compiled.dll" if sys.platform == "win32" else "_compiled.so")
FLAGS = ["-std=c11", "-O3", "-ffp-contract=fast", "-fvisibility=hidden", "-shared", "-fPIC"]
# Which processor it is, the library finds out when it is loaded.
PROCESSOR_FLAGS = {"x86_64": ["-mavx2", "-mfma"], "AMD64": ["-mavx2", "-mfma"]}


def compile_library() -> bool:
    """Compile the library beside the package's modules; say why not if it cannot be done."""
    LIBRARY.unlink(missing_ok=True)
    if os.environ.get("NYSTROM_COMPILED", "1") == "0":
        return False
    wanted = [os.environ["CC"]] if "CC" in os.environ else ["cc", "gcc", "clang"]
    compilers = [shlex.split(name) for name in wanted if shutil.which(shlex.split(name)[0])]
    flags = FLAGS + PROCESSOR_FLAGS.get(platform.machine(), [])
    if sys.platform == "win32":
        flags.remove("-fPIC")
    reason = f"no C compiler ({', '.join(wanted)}) was found"
    for compiler in compilers:
        with tempfile.TemporaryDirectory(dir=PACKAGE) as scratch:
            made = Path(scratch) / LIBRARY.name
            done = subprocess.run([*compiler, *flags, str(SOURCE), "-o", str(made)], capture_output=True, text=True)
            if done.returncode == 0:
                made.replace(LIBRARY)
                return True
            reason = f"{' '.join(compiler)} failed:\n{done.stderr}"
    print(f"nystrom: {reason}. The package works without its compiled loops, more slowly.", file=sys.stderr)
    return False


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run by hand
    pass
else:

    class CustomBuildHook(BuildHookInterface):
        """Adds the compiled library to the wheel, whose tag then names the platform but no version of Python."""

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            if self.target_name != "wheel" or not compile_library():
                return
            build_data["artifacts"].append(f"src/nystrom/{LIBRARY.name}")
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


if __name__ == "__main__":
    sys.exit(0 if compile_library() else 1)
