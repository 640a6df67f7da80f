"""Which attention in mlx-lm's model files routing can reach, read from their text."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from h2o_py.families import UNFIT, WITHOUT_SCORES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LISTED = frozenset({*UNFIT, *WITHOUT_SCORES, "deepseek_v32.Indexer"})
"""Classes that are known not to pass what a cache returns straight to attention; the indexer
is part of an attention that is listed."""


def attention(models: Path) -> Iterator[tuple[str, bool]]:
    """Yield "file.Class" of all that write to a cache, and whether routing reaches it."""
    for path in sorted(models.glob("*.py")):
        if path.stem == "cache":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef) and "update_and_fetch" in ast.unparse(node):
                yield f"{path.stem}.{node.name}", _can_be_routed(node)


def _can_be_routed(attention: ast.ClassDef) -> bool:
    """Whether what the cache returns goes unchanged to the function that routing replaces."""
    nodes = list(ast.walk(attention))
    fetched = [n for n in nodes if isinstance(n, ast.Assign) and _fetches(n.value)]
    calls = [
        n
        for n in nodes
        if isinstance(n, ast.Call)
        and isinstance(n.func, ast.Name)
        and n.func.id == "scaled_dot_product_attention"
    ]
    if not fetched or not calls:
        return False
    names = ast.unparse(fetched[0].targets[0]).strip("()").split(", ")
    uncached = {
        inner
        for n in nodes
        if isinstance(n, ast.If) and any(fetched[0] in ast.walk(s) for s in n.body)
        for statement in n.orelse
        for inner in ast.walk(statement)
    }
    changed = [
        n
        for n in nodes
        if isinstance(n, ast.Assign)
        and n.lineno > (fetched[0].end_lineno or 0)
        and n not in uncached
        and any(ast.unparse(target) in names for target in n.targets)
    ]
    passed = all([ast.unparse(a) for a in call.args[1:3]] == names for call in calls)
    return passed and not changed


def _fetches(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func).endswith("update_and_fetch")
