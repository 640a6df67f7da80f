"""The reference of the Python package, from its docstrings; nothing is imported for it."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from docs.docgen.markdown import code, fence, plain

if TYPE_CHECKING:
    from collections.abc import Iterator

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Definition: TypeAlias = Function | ast.ClassDef

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "h2o_py"
MODULES = ("h2o_py.fast",)
SECTION = re.compile(r"(Args|Arguments|Attributes|Returns|Yields|Raises|Source):")
ENTRY = re.compile(r"([\w.*, ]+): ")
TOLD_DECORATORS = ("property", "classmethod", "staticmethod")
WIDTH = 90
NAMING = ("Args", "Arguments", "Attributes", "Raises")
INTRODUCTION = """\
# Python

The package `h2o_py`: the cache, its routing in mlx-lm, and what is around it. Shapes use B
batch, Hq query heads, Hkv KV heads, L new tokens, D head dim, C capacity, N rows in use.
"""


@dataclass(frozen=True)
class Module:
    """A module's source: its name, syntax tree, and the files of others beside it."""

    name: str
    tree: ast.Module

    @property
    def definitions(self) -> dict[str, Definition]:
        """Functions and classes by name, in the order of the file."""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        return {each.name: each for each in self.tree.body if isinstance(each, kinds)}


def page() -> str:
    """Return the page."""
    sections = [package_section(name) for name in packages()]
    sections += [module_section(read(name)) for name in MODULES]
    return "\n\n".join([INTRODUCTION, *sections]) + "\n"


def packages() -> Iterator[str]:
    """Yield the package and those below it that say what is public."""
    for path in sorted((ROOT / PACKAGE).rglob("__init__.py")):
        name = ".".join(path.parent.relative_to(ROOT).parts)
        if public_names(read(name)):
            yield name


def read(name: str) -> Module:
    """Parse a module by its full name."""
    path = ROOT.joinpath(*name.split("."))
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return Module(name, ast.parse(source.read_text("utf-8")))


def public_names(module: Module) -> tuple[str, ...]:
    """Return `__all__`, or nothing."""
    for each in module.tree.body:
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "__all__":
            return tuple(ast.literal_eval(each.value))
    return ()


def package_section(name: str) -> str:
    """Describe what a package exports, wherever it is defined."""
    module = read(name)
    homes = {
        alias.asname or alias.name: (each.module or "", alias.name)
        for each in ast.walk(module.tree)
        if isinstance(each, ast.ImportFrom) and each.level == 0
        for alias in each.names
    }
    parts = [f"## {name}", docstring(module.tree)]
    for public in public_names(module):
        home, original = homes.get(public, (name, public))
        if home.startswith(PACKAGE):
            definition = read(home).definitions.get(original)
            if definition is not None:
                parts.append(described(definition, f"{name}.{public}"))
    return "\n\n".join(part for part in parts if part)


def module_section(module: Module) -> str:
    """Describe a module's public functions and classes."""
    parts = [f"## {module.name}", docstring(module.tree)]
    for name, definition in module.definitions.items():
        if not name.startswith("_"):
            parts.append(described(definition, f"{module.name}.{name}"))
    return "\n\n".join(part for part in parts if part)


def described(definition: Definition, name: str) -> str:
    """Describe a function, or a class with its public members."""
    parts = [f"### {name}", fence(signature(definition), "python"), docstring(definition)]
    if isinstance(definition, ast.ClassDef):
        parts += [member(each) for each in definition.body if is_public_function(each)]
    return "\n\n".join(part for part in parts if part)


def member(definition: ast.stmt) -> str:
    """Describe a method or property."""
    if not isinstance(definition, Function):
        return ""
    return f"{fence(signature(definition), 'python')}\n\n{docstring(definition)}"


def is_public_function(each: ast.stmt) -> bool:
    """Whether a member is told: it has a docstring and no private name."""
    return (
        isinstance(each, Function)
        and not each.name.startswith("_")
        and ast.get_docstring(each) is not None
    )


def signature(definition: Definition) -> str:
    """Write a definition's first lines: decorators that matter, arguments, fields."""
    if isinstance(definition, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in definition.bases)
        head = f"class {definition.name}" + (f"({bases})" if bases else "")
        return (
            "\n".join([head + ":", *class_body(definition)]) if class_body(definition) else head
        )
    marks = [ast.unparse(each) for each in definition.decorator_list]
    shown = [
        f"@{mark}" for mark in marks if mark in ("property", "classmethod", "staticmethod")
    ]
    returns = f" -> {ast.unparse(definition.returns)}" if definition.returns else ""
    line = f"def {definition.name}({ast.unparse(definition.args)}){returns}"
    return "\n".join([*shown, line if len(line) <= WIDTH else broken(definition, returns)])


def broken(definition: Function, returns: str) -> str:
    """Write a long signature with one argument a line."""
    arguments = split_arguments(ast.unparse(definition.args))
    return (
        f"def {definition.name}(\n" + "".join(f"    {a},\n" for a in arguments) + f"){returns}"
    )


def split_arguments(text: str) -> list[str]:
    """Split arguments at the commas that stand in no bracket."""
    found, depth, start = [], 0, 0
    for index, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            found.append(text[start:index].strip())
            start = index + 1
    return [*found, text[start:].strip()]


def class_body(definition: ast.ClassDef) -> list[str]:
    """Return a class's public fields, or the arguments of its maker."""
    fields = [
        f"    {ast.unparse(each)}"
        for each in definition.body
        if isinstance(each, ast.AnnAssign) and not ast.unparse(each.target).startswith("_")
    ]
    makers = [e for e in definition.body if isinstance(e, Function) and e.name == "__init__"]
    for maker in makers:
        line = signature(maker)
        fields += [f"    {part}" for part in line.splitlines()]
    return fields


def docstring(node: ast.Module | Definition) -> str:
    """Return a docstring as Markdown, its sections (Args, Returns, ...) as lists."""
    text = inspect.cleandoc(ast.get_docstring(node) or "")
    written: list[str] = []
    for block in re.split(r"\n\s*\n", text):
        head, _, body = block.partition("\n")
        title = SECTION.fullmatch(head)
        written.append(section(title[1], textwrap.dedent(body)) if title else plain(block))
    return "\n\n".join(written)


def section(title: str, body: str) -> str:
    """Write one section of a docstring: a list where its lines name things."""
    entries = re.split(r"\n(?=\S)", body.strip())
    named = [ENTRY.match(entry) for entry in entries]
    if title in NAMING and all(named):
        lines = [
            f"- {code(match[1])}: {plain(joined(entry[match.end() :]))}"
            for entry, match in zip(entries, named, strict=True)
            if match
        ]
        return f"{title}:\n\n" + "\n".join(lines)
    return f"{title}: {plain(joined(body))}"


def joined(text: str) -> str:
    """Put a wrapped sentence on one line."""
    return " ".join(text.split())
