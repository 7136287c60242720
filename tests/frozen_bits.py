"""Fit many configurations and compare a hash of each result with the stored one.

A change of structure must leave every bit as it was; the tests allow rounding, this script does not.

    python tests/frozen_bits.py --check              # exit code 1 if any array differs
    python tests/frozen_bits.py --write              # store the results of this version
    python tests/frozen_bits.py --check ridge pca    # only configurations whose names contain one of these

Bits depend on the processor and on the versions of NumPy, SciPy and OpenBLAS, so results are stored per machine, with
the compiled loops and without. A machine without stored results is "not comparable", which is not a failure.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

STORE = Path(__file__).with_suffix(".json")
SECTIONS = {"compiled": "1", "numpy": "0"}


def fingerprint(value):
    """Return a hash of the bytes, a sum that rounding hardly changes, and dtype and shape."""
    import numpy as np

    if isinstance(value, str):
        return [re.sub(" at 0x[0-9a-f]+", "", value), 0.0, "str"]
    sparse = hasattr(value, "toarray")
    array = np.ascontiguousarray(value.toarray() if sparse else value)
    kind = f"{'csr ' if sparse else ''}{array.dtype}{list(np.shape(value))}"
    digest = hashlib.sha256(array.tobytes()).hexdigest()[:12]
    if array.dtype.kind not in "fiub":
        return [digest, 0.0, kind]
    flat = array.astype(np.float64).ravel()
    # Unlike the plain sum it has no cancellation, and it sees signs and order.
    total = (np.abs(flat) + flat / 2) @ np.linspace(1, 2, flat.size)
    return [digest, float(f"{total:.7g}"), kind]


def machine():
    """Return what bits depend on: processor, loops, versions."""
    import numpy as np
    import scipy.linalg
    from threadpoolctl import threadpool_info

    from nystrom.loops.extension import instruction_set

    info = [each for each in threadpool_info() if each["user_api"] == "blas"]
    blas = sorted({f"{each['internal_api']} {each['version']} {each.get('architecture')}" for each in info})
    try:
        from numpy._core._multiarray_umath import __cpu_features__ as features
    except ImportError:
        from numpy.core._multiarray_umath import __cpu_features__ as features
    widest = max((name for name in features if name.startswith("AVX") and features[name]), default="baseline")
    parts = [f"numpy {np.__version__} {widest}", f"scipy {scipy.__version__}", *blas, f"loops {instruction_set()}"]
    return ", ".join(parts)


def run(wanted):
    """Run the configurations in this process and print their fingerprints as JSON."""
    import dask

    from frozen_configurations import REGISTRY, scratch

    warnings.simplefilter("ignore")
    results = {}
    with tempfile.TemporaryDirectory() as folder, dask.config.set(scheduler="synchronous"):
        scratch.folder = folder
        for name, function in REGISTRY.items():
            if not chosen(name, wanted):
                continue
            start = time.process_time()
            try:
                results[name] = {key: fingerprint(value) for key, value in function().items()}
            except Exception as error:
                results[name] = {"error": [f"{type(error).__name__}: {error}", 0.0, "error"]}
            seconds = time.process_time() - start
            if seconds > 2:
                print(f"{seconds:6.1f} s  {name}", file=sys.stderr)
    json.dump({"machine": machine(), "results": results}, sys.stdout)


def chosen(name, wanted):
    return not wanted or any(part in name for part in wanted)


def run_section(section, wanted):
    """Run the configurations in a new process, for the environment must be set before NumPy is imported."""
    single = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    environment = {**os.environ, **single, "PYTHONHASHSEED": "0", "NYSTROM_COMPILED": SECTIONS[section]}
    command = [sys.executable, __file__, "--run", *wanted]
    return json.loads(subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout)


def compare(section, stored, found):
    """Print what differs and return the number of configurations that do."""
    different = 0
    for name in {**stored, **found}:
        old, new = stored.get(name, {}), found.get(name, {})
        lines = [describe(key, old.get(key), new.get(key)) for key in {**old, **new} if old.get(key) != new.get(key)]
        different += bool(lines)
        for line in lines:
            print(f"{section}: {name}: {line}")
    return different


def describe(key, old, new):
    if old is None or new is None:
        return f"{key} is {'new' if old is None else 'gone'}" + (f": {new[0]}" if key == "error" else "")
    if old[2] != new[2] or old[2] == "str":
        return f"{key} was {old[0]} {old[2]}, is {new[0]} {new[2]}"
    change = abs(new[1] - old[1]) / max(abs(old[1]), 1e-300)
    return f"{key} differs, its sum by {change:.1e} (relative)"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--check", action="store_true", help="compare with the stored results")
    action.add_argument("--write", action="store_true", help="store the results of this version")
    action.add_argument("--run", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--section", choices=SECTIONS, help="only with the compiled loops, or only without")
    parser.add_argument("names", nargs="*", help="only configurations whose names contain one of these")
    arguments = parser.parse_args()
    if arguments.run:
        return run(arguments.names)
    store = json.loads(STORE.read_text()) if STORE.exists() else {}
    different = 0
    for section in [arguments.section] if arguments.section else SECTIONS:
        start = time.perf_counter()
        answer = run_section(section, arguments.names)
        here, found = answer["machine"], answer["results"]
        machines = store.setdefault(section, {})
        seconds = f"{time.perf_counter() - start:.0f} s"
        if arguments.write:
            failed = {name: each["error"][0] for name, each in found.items() if "error" in each}
            if failed:
                sys.exit("\n".join(f"{section}: {name}: {error}" for name, error in failed.items()))
            kept = machines.get(here, {}) if arguments.names else {}
            machines[here] = {**kept, **found}
            print(f"{section}: stored {len(found)} configurations, {seconds} ({here})")
        elif here not in machines:
            print(f"{section}: not comparable: no results are stored for {here}")
        else:
            stored = {name: each for name, each in machines[here].items() if chosen(name, arguments.names)}
            count = compare(section, stored, found)
            different += count
            print(f"{section}: {count} of {len(found)} configurations differ, {seconds}")
    if arguments.write:
        STORE.write_text(dump(store))
    return sys.exit(different > 0)


def dump(store):
    """Return JSON with one line per configuration."""
    text = json.dumps(store, indent=1)
    parts = []
    for line in text.splitlines():
        depth = len(line) - len(line.lstrip())
        parts.append(line.lstrip() if depth > 3 else "\n" + line)
    # The closing brace of a configuration belongs to its line.
    return "".join(parts).replace("\n   }", "}").lstrip() + "\n"


if __name__ == "__main__":
    main()
