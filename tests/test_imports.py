"""The house in one direction: no cycle, no import upwards, each optional package in one place."""

import ast
import sys
from pathlib import Path

import nystrom

SOURCE = Path(nystrom.__file__).parent
HOME = Path(__file__).parents[1]

# From the ground up: a room imports from rooms before it only. Within the order of DESIGN (rows, engine, kernels, ...)
# each stands where its own imports allow: loops below the rows' users, pictures and plans above solvers.
ORDER = [
    "exceptions",
    "types",
    "disk",
    "checks",
    "machine",
    "devices",
    "loops",
    "rows",
    "engine",
    "kernels",
    "linalg",
    "sketch",
    "kmeans",
    "landmarks",
    "nystroem",
    "errors",
    "theory",
    "solvers",
    "tuning",
    "sizing",
    "output",
    "plotting",
    "planning",
    "conformal",
    "estimators",
    "scoring",
    "comparison",
    "tables",
    "preprocessing",
    "models",
    "explanation",
    "shapley",
    "reporting",
    "datasets",
    "commands",
    "__main__",
]

# Needed by every installation; everything else from outside is optional.
REQUIRED = {"numpy", "scipy", "sklearn", "threadpoolctl"}
# Packages that are used together all over one room, which nothing else may import.
ROOMS = {"dask": "nystrom.engine.dask", "distributed": "nystrom.engine.dask", "cloudpickle": "nystrom.engine.dask"}


def module_name(path):
    parts = ("nystrom", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts).removesuffix(".__init__")


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}


def imports(path):
    """Yield every module that a file imports, at its top or on use; not those for type checkers alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {
        id(inside)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inside in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            for alias in node.names:
                inside = f"{node.module}.{alias.name}"
                # A submodule, the compiled extension, or a name of the module.
                yield inside if inside in MODULES or alias.name == "_native" else node.module


# The package itself is the door to the public names, which are imported when first asked for: it is no room.
GRAPH = {
    name: {found for found in imports(path) if found in MODULES and found not in (name, "nystrom")}
    for name, path in MODULES.items()
    if name != "nystrom"
}


def room(name):
    return name.split(".")[1]


def test_no_file_is_longer_than_700_lines():
    beside = [path for folder in ("tests", "benchmarks", "reproduction") for path in (HOME / folder).rglob("*.py")]
    files = MODULES | {str(path.relative_to(HOME)): path for path in beside}
    long = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in files.items()}
    assert {name: lines for name, lines in long.items() if lines > 700} == {}


def test_every_room_has_its_place():
    assert {room(name) for name in GRAPH} == set(ORDER)


def test_no_room_imports_upwards():
    place = {name: i for i, name in enumerate(ORDER)}
    upwards = [
        f"{name} imports {found}"
        for name, imported in GRAPH.items()
        for found in imported
        if place[room(found)] > place[room(name)]
    ]
    assert not upwards


def test_no_module_imports_itself_through_others():
    done, path = set(), []

    def visit(name):
        if name in path:
            raise AssertionError(" imports ".join([*path[path.index(name) :], name]))
        if name not in done:
            path.append(name)
            for found in sorted(GRAPH[name]):
                # A module of a package does not wait for the package's own file, which may name it.
                visit(found)
            path.pop()
            done.add(name)

    for name in GRAPH:
        visit(name)


def test_an_optional_package_is_imported_in_one_place():
    known = REQUIRED | set(sys.stdlib_module_names) | {"nystrom"}
    places = {}
    for name, path in MODULES.items():
        for found in imports(path):
            package = found.partition(".")[0]
            if package not in known:
                home = ROOMS.get(package)
                inside = home is not None and (name == home or name.startswith(home + "."))
                places.setdefault(package, set()).add(home if inside else name)
    assert "pyarrow" in places
    assert {package: found for package, found in places.items() if len(found) > 1} == {}


def files_with(text):
    return {name for name, path in MODULES.items() if text in path.read_text(encoding="utf-8")}


def test_warnings_go_one_way():
    assert files_with("warnings.warn(") == {"nystrom.exceptions"}
    # Filters belong to all threads: a program may change them, a library may not.
    assert files_with("catch_warnings(") == {"nystrom.commands.main"}


def test_type_checkers_see_which_matrices_are_sparse():
    assert files_with("sp.issparse(") == {"nystrom.types"}
