"""Finds settings that are defined but that nothing uses."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

from interface.source import Source, SourceError

REFERENCE = ("bridge/h2o_pack/parity/reference/*.py",)
CACHES = ("h2o_py/*.py", *REFERENCE)
RULES = ("cexport/h2o/policy_rules.cpp",)
CORE = ("cexport/h2o/**/*.cpp", "cexport/h2o/**/*.h", "metal/kernels/*.h")


def check_used(source: Source, root: Path, generated: Iterable[str]) -> None:
    """Refuse settings that nothing uses.

    A setting of the policy must be used by a rule, or by both the reference
    (h2o_pack.parity.reference) and the core. A setting of recall must be used by the caches or
    the reference, and also by the core unless policy.toml says `core = false`.

    Raises:
        SourceError: lists these settings, and the parts of the project that do not use them.

    """
    skipped = {root / path for path in generated}
    reference = set().union(*(_attributes(path) for path in _files(root, REFERENCE, skipped)))
    core = set().union(*(_members(path) for path in _files(root, CORE, skipped)))
    in_rules = set().union(*(_members(path) for path in _files(root, RULES, skipped)))
    problems = []
    for field in source.fields:
        places = [
            place
            for place, names in (
                ("the reference (h2o_pack.parity.reference)", reference),
                ("the core", core),
            )
            if field.name not in names
        ]
        if places and field.name not in in_rules:
            problems.append(
                f"interface/policy.toml: {field.name} is not used by {' or '.join(places)}. "
                "Use it there or remove it."
            )
    caches = set().union(*(_attributes(path) for path in _files(root, CACHES, skipped)))
    problems += [
        f"interface/policy.toml: recall.{field.name} is stated, but the caches "
        f"{'or the core never use' if field.core else 'never use'} it. Use it or remove it."
        for field in source.recall_fields
        if field.name not in caches or (field.core and field.name not in core)
    ]
    if problems:
        raise SourceError("\n".join(problems))


def _files(root: Path, patterns: Iterable[str], skipped: set[Path]) -> list[Path]:
    paths = (path for pattern in patterns for path in root.glob(pattern))
    return [path for path in paths if path not in skipped]


def _attributes(path: Path) -> set[str]:
    """Return the names of attributes that a Python file reads."""
    tree = ast.parse(path.read_text("utf-8"))
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def _members(path: Path) -> set[str]:
    """Return the names of members that a C++ or Metal file reads or passes."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", path.read_text("utf-8"), flags=re.DOTALL)
    return set(re.findall(r"(?:\.|->)\s*(\w+)", text))
