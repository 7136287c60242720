"""Wheels and source archives: what is in them, and that they are the same every time."""

import hashlib
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LARGEST_WHEEL = 3_000_000

pytestmark = pytest.mark.slow


def run(*command, **options):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(kind, source, folder):
    """Build a wheel or a source archive with a fixed date, and return its path."""
    environment = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}
    run(sys.executable, "-m", "build", f"--{kind}", "--outdir", folder, source, env=environment)
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("build")
    return tmp_path_factory.mktemp("packaging")


@pytest.fixture(scope="module")
def sdist(folder):
    return build("sdist", ROOT, folder / "sdist")


@pytest.fixture(scope="module")
def wheel(folder, sdist):
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (source,) = (folder / "unpacked").iterdir()
    return build("wheel", source, folder / "wheel")


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_wheel_holds_the_package_and_nothing_else(wheel):
    assert wheel.stat().st_size < LARGEST_WHEEL
    names = zipfile.ZipFile(wheel).namelist()
    inside = [name for name in names if not re.match(r"nystrom-[^/]+\.dist-info/", name)]
    assert {name.partition("/")[0] for name in inside} == {"nystrom"}
    assert {Path(name).suffix for name in inside} <= {".py", ".pyi", ".typed", ".so", ".pyd", ".toml", ".html"}
    data = sorted(name for name in inside if name.endswith((".toml", ".html")))
    assert data == ["nystrom/datasets/registry.toml", "nystrom/report.html"]
    assert not [name for name in inside if "test" in Path(name).name or "/native/" in name]
    assert {"nystrom/py.typed", "nystrom/loops/_native.pyi"} <= set(inside)


def test_a_source_archive_holds_what_a_build_needs(sdist):
    with tarfile.open(sdist) as archive:
        tops = {Path(name).parts[1] for name in archive.getnames() if len(Path(name).parts) > 1}
    # Those that git leaves out, and what a developer keeps at hand, stay out as well.
    assert {"CMakeLists.txt", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml", "src"} <= tops
    assert not tops & {"tests", "docs", "benchmarks", "examples", "tools", "build", "site"}
    assert not [top for top in tops if top.startswith(".") and top != ".gitignore"]


def test_the_source_archive_gives_the_wheel_of_the_repository_bit_for_bit(wheel, folder):
    again = build("wheel", ROOT, folder / "again")
    assert again.name == wheel.name
    assert digest(again) == digest(wheel)


def test_the_source_archive_is_the_same_every_time(sdist, folder):
    assert digest(build("sdist", ROOT, folder / "second")) == digest(sdist)


def test_a_wheel_installs_and_works_in_an_empty_environment(wheel, folder):
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    run(python, "-m", "pip", "install", "--quiet", wheel)
    script = (
        "import numpy as np, nystrom;"
        "X = np.random.default_rng(0).normal(size=(200, 3));"
        "print(nystrom.__version__, nystrom.Nystroem(n_components=5, random_state=0).fit_transform(X).shape)"
    )
    # From elsewhere, so that the repository is not what is imported.
    assert run(python, "-c", script, cwd=folder).split(" ", 1)[1].strip() == "(200, 5)"
    assert "compiled loops" in run(python, "-m", "nystrom", "--version", cwd=folder)
