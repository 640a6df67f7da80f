"""Imports point down: no cycles, and the runtime knows nothing of the tool."""

import ast
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import h2o_pack
import h2o_py

EXEMPT = {("h2o_pack.__main__", "h2o_pack.cli")}  # runs what the command line is
COMPILED = {"h2o_py._ext", "h2o_py._policy"}


def modules() -> dict[str, Path]:
    """Return {name: file} of all modules."""
    files = {}
    for package in (h2o_pack, h2o_py):
        root = Path(package.__file__).parent
        for file in root.rglob("*.py"):
            parts = (package.__name__, *file.relative_to(root).with_suffix("").parts)
            files[".".join(parts).removesuffix(".__init__")] = file
    return files


MODULES = modules()


def module_of(name: str) -> str:
    """Return the module that a dotted name is in."""
    while name and name not in MODULES:
        name = name.rpartition(".")[0]
    return name


@cache
def imports(module: str) -> set[str]:
    """Return the modules of ours that a module imports, wherever it does."""
    names = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    targets = {module_of(name) for name in names if name not in COMPILED} - {"", module}
    return {target for target in targets if (module, target) not in EXEMPT}


def folder(module: str) -> str:
    """Return the folder of a module, by its dotted name."""
    is_folder = MODULES[module].name == "__init__.py"
    return module if is_folder else module.rpartition(".")[0]


def test_no_file_imports_itself_by_way_of_others():
    TopologicalSorter({module: imports(module) for module in MODULES}).prepare()


def test_no_folder_imports_itself_by_way_of_others():
    graph: dict[str, set[str]] = {}
    for module in MODULES:
        others = {folder(target) for target in imports(module)} - {folder(module)}
        graph.setdefault(folder(module), set()).update(others)
    TopologicalSorter(graph).prepare()


def test_the_runtime_imports_nothing_of_the_tool():
    for module in MODULES:
        if module.startswith("h2o_py"):
            assert not {
                target for target in imports(module) if target.startswith("h2o_pack")
            }, module
