"""The core runs where POSIX calls are missing, as on Windows. Paths and line endings of other systems are read too."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nystrom import KernelRidge, open_rows

ROOT = Path(__file__).parents[2]

# What Windows lacks. /proc and /sys are refused as if they were not there.
WITHOUT_POSIX = """
# asyncio, which scikit-learn imports, is another file on Windows.
import asyncio, builtins, os, signal, sys
for name in "fork forkpty sysconf sched_getaffinity getuid geteuid getpgid killpg statvfs mkfifo".split():
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGKILL", "SIGALRM", "SIGHUP", "SIGUSR1", "setitimer", "pthread_kill"):
    if hasattr(signal, name):
        delattr(signal, name)
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None
opened, linked = builtins.open, os.readlink
def refuse(path):
    # threadpoolctl finds libraries there on Linux, and by other calls elsewhere.
    if str(path).startswith(("/proc", "/sys")) and str(path) != "/proc/self/maps":
        raise FileNotFoundError(path)
def open_other(path, *args, **kwargs):
    refuse(path)
    return opened(path, *args, **kwargs)
def read_other_link(path, *args, **kwargs):
    refuse(path)
    return linked(path, *args, **kwargs)
builtins.open, os.readlink = open_other, read_other_link
import io
io.open = open_other
"""
WORK = """
import numpy as np
import nystrom

X = np.random.default_rng(0).normal(size=(300, 3))
np.save("X.npy", X)
rows = nystrom.open_rows("X.npy", target=np.sin(X[:, 0]))
model = nystrom.KernelRidge(alpha=0.1, n_landmarks=40, max_memory="1GB", random_state=0).fit(rows)
model.save("model.nystrom")
model.save("model.nystrom")  # over a file that is there
again = nystrom.load("model.nystrom")
assert np.array_equal(again.predict(X), model.predict(X))
features = nystrom.Nystroem(n_components=5, random_state=0).fit(X)
assert features.transform(X, out="features.npy").shape == (300, 5)
assert features.transform(X, out="features.npy").shape == (300, 5)
print(round(model.score(rows), 3))
"""


def test_the_core_runs_without_the_calls_of_posix(tmp_path):
    plain, without = (
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
        for code in (WORK, WITHOUT_POSIX + WORK)
    )
    assert plain.returncode == 0, plain.stderr
    assert without.returncode == 0, without.stderr
    assert without.stdout == plain.stdout


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("folder", ["rows", "with a blank", "räume"])
def test_lines_may_end_as_on_windows_and_folders_may_have_any_name(ending, folder, tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / folder / "t.csv"
    path.parent.mkdir()
    path.write_bytes(ending.join(["a,b,y", "1,2,3", "4,5,6", "7,8,10", ""]).encode())
    rows = open_rows(path, target="y")
    assert rows.shape == (3, 2)
    (block,) = rows.iterate()
    np.testing.assert_array_equal(block.X, [[1, 2], [4, 5], [7, 8]])
    model = KernelRidge(0.1, gamma=0.1).fit(rows)
    model.save(path.with_name("m.nystrom"))
    assert path.with_name("m.nystrom").exists()


# Compilers that are told another processor; the libraries to link its programs are not needed to ask.
@pytest.mark.parametrize(
    ("compiler", "options", "sentence"),
    [
        ("c++", ["-DCMAKE_CXX_FLAGS=-m32"], "The loops need a 64-bit system"),
        ("clang++", ["-DCMAKE_CXX_COMPILER_TARGET=s390x-linux-gnu"], "The loops need a little-endian system"),
    ],
)
def test_other_sizes_and_byte_orders_are_refused_by_the_build(compiler, options, sentence, tmp_path):
    if not (sys.platform == "linux" and shutil.which("cmake") and shutil.which(compiler)):
        pytest.skip(f"needs Linux, cmake and {compiler}")
    command = ["cmake", "-S", str(ROOT), "-B", str(tmp_path), f"-DCMAKE_CXX_COMPILER={compiler}", *options]
    asked = [*command, "-DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert sentence in done.stderr, done.stderr
