"""What C++ has and the Metal Shading Language has not, in the kernels' sources.

Most of it is also missing in C++ for OpenCL, so the compiler tells; the rest is seen
in its syntax tree, and recursion in the graph of calls.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from h2o_pack.kernels.calls import cycles, read_calls
from h2o_pack.kernels.findings import Finding
from h2o_pack.kernels.syntax_tree import walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from h2o_pack.kernels.prepared import Prepared
    from h2o_pack.kernels.syntax_tree import Node
    from h2o_pack.kernels.translation import Translation

MISSING = re.compile(
    r"not supported in C\+\+ for OpenCL|C\+\+ for OpenCL version \d+ does not support"
    r"|with exceptions disabled|thread-local storage|pointers to functions"
    r"|taking address of function|variadic arguments|file not found"
    r"|is not a constant expression"
    r"|undeclared identifier '(malloc|calloc|realloc|free|alloca|printf|memcpy|std)'"
)
OPENCL = re.compile(r"(C\+\+ for )?OpenCL( version \d+)?")
STATEMENTS = {
    "GotoStmt": "Metal has no goto",
    "IndirectGotoStmt": "Metal has no goto",
    "LambdaExpr": "Metal before 3.2 has no lambda expressions",
    "CXXNewExpr": "Metal has no new",
    "CXXDeleteExpr": "Metal has no delete",
    "GCCAsmStmt": "Metal has no assembler",
}
# In instances of templates clang forgets that literals are of single precision; double
# can only come from where it is written, or from such a literal.
WRITTEN = {
    *("VarDecl", "ParmVarDecl", "FieldDecl", "TypedefDecl", "TypeAliasDecl"),
    *("FunctionDecl", "CXXMethodDecl", "CXXConversionDecl", "CXXScalarValueInitExpr"),
    *("CStyleCastExpr", "CXXStaticCastExpr", "CXXFunctionalCastExpr"),
}


def is_of_language(finding: Finding) -> bool:
    """Whether an error of the compiler is about a missing part of the language."""
    return MISSING.search(finding.message) is not None


def check_language(translation: Translation, prepared: Prepared) -> list[Finding]:
    """Return what a library uses that Metal lacks."""
    found = {
        Finding(each.file, each.line, OPENCL.sub("Metal", each.message))
        for each in translation.errors
        if is_of_language(each)
    }
    places: dict[str, tuple[str, int]] = {}
    for node in walk(translation.tree):
        if prepared.inside(node.file) not in prepared.own or node.implicit:
            continue
        place = prepared.shown(node.file), node.line
        if any(part.get("kind") == "CompoundStmt" for part in node.parts) and node.function:
            places.setdefault(node.function, place)
        found.update(Finding(*place, text) for text in missing(node))
    for names in cycles(read_calls(translation.ir)):
        for name in names:
            where = places.get(name, (translation.library, 0))
            found.add(Finding(*where, "Metal has no recursion: this function calls itself"))
    return sorted(found)


def missing(node: Node) -> Iterator[str]:
    """Yield what a node of the syntax tree is that Metal lacks."""
    if node.kind in STATEMENTS:
        yield STATEMENTS[node.kind]
    if node.kind in WRITTEN and re.search(r"\bdouble\b", node.type):
        yield "Metal has no double; a number without suffix is one here if `auto` takes it"
    is_static = node.kind == "VarDecl" and node.data.get("storageClass") == "static"
    if is_static and node.function and "__constant" not in node.type:
        yield "Metal has no static variables in functions"
