"""Metal's rules of address spaces, as far as clang's C++ for OpenCL has the same.

There an unqualified pointer may point anywhere but into constant memory, and so may
`this`. Metal refuses the one and takes the other for a pointer to thread memory; both
are looked for in the syntax tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from h2o_pack.kernels.findings import Finding
from h2o_pack.kernels.language import is_of_language
from h2o_pack.kernels.prepared import Prepared
from h2o_pack.kernels.syntax_tree import Node, walk
from h2o_pack.kernels.translation import Translation

WRITTEN = {
    *("VarDecl", "ParmVarDecl", "FieldDecl", "TypedefDecl", "TypeAliasDecl"),
    *("CStyleCastExpr", "CXXStaticCastExpr", "CXXReinterpretCastExpr", "CXXConstCastExpr"),
}
RETURNING = {"FunctionDecl", "CXXMethodDecl"}
ELSEWHERE = re.compile(r"__(global|local|constant)\b")
NOWHERE = "the pointer or reference needs an address space: device, threadgroup, thread"
NOT_THREAD = "the method is one of objects in thread memory: say `{}` behind its parameters"


def check_address_spaces(translation: Translation, prepared: Prepared) -> list[Finding]:
    """Return what Metal refuses about the pointers and references of a library."""
    found = {each for each in translation.errors if not is_of_language(each)}
    for node in walk(translation.tree):
        if node.implicit or prepared.inside(node.file) not in prepared.own:
            continue
        found.update(
            Finding(prepared.shown(node.file), node.line, text) for text in broken_rules(node)
        )
    return sorted(found)


def broken_rules(node: Node) -> Iterator[str]:
    """Yield the rules that a node of the syntax tree breaks."""
    type_ = node.type
    if node.kind in RETURNING:
        type_ = type_.split("(", 1)[0]
    if node.kind in WRITTEN | RETURNING and "__generic" in type_:
        yield NOWHERE
    if node.kind == "MemberExpr":
        for part in node.parts:
            space = left_space(part)
            if space:
                yield NOT_THREAD.format(space)


def left_space(expression: dict[str, object]) -> str:
    """Return the address space other than thread that an object is taken out of."""
    if expression.get("castKind") != "AddressSpaceConversion":
        return ""
    inner = expression.get("inner")
    of = inner[0].get("type", {}) if isinstance(inner, list) and inner else {}
    name = re.sub(r"<.*>", "", of.get("desugaredQualType", of.get("qualType", "")))
    match = ELSEWHERE.search(name)
    return {"global": "device", "local": "threadgroup"}.get(match[1], "") if match else ""
