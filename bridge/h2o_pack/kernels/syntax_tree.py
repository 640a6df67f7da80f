"""Walks clang's syntax trees in JSON, where a place is told only when it changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

FUNCTIONS = {
    *("FunctionDecl", "CXXMethodDecl", "CXXConstructorDecl", "CXXConversionDecl"),
    "CXXDestructorDecl",
}


@dataclass(frozen=True)
class Node:
    """A node of the tree, where it begins, and the function that it is part of.

    implicit: whether the compiler has made it, or something around it.
    """

    data: dict[str, Any]
    file: str
    line: int
    function: str
    implicit: bool

    @property
    def kind(self) -> str:
        """Its class in clang."""
        return str(self.data.get("kind", ""))

    @property
    def type(self) -> str:
        """Its type, without aliases."""
        of = self.data.get("type", {})
        return str(of.get("desugaredQualType", of.get("qualType", "")))

    @property
    def parts(self) -> list[dict[str, Any]]:
        """What it consists of."""
        inner: list[dict[str, Any]] = self.data.get("inner", [])
        return [each for each in inner if each]


class Walk:
    """Follows the order in which clang printed a tree."""

    def __init__(self) -> None:
        self.file = ""
        self.line = 0

    def nodes(
        self, data: dict[str, Any], function: str = "", *, implicit: bool = False
    ) -> Iterator[Node]:
        """Yield a node and all below it."""
        written = self.place(data["loc"]) if data.get("loc") else None
        begins = self.file, self.line
        if "range" in data:
            begins = self.place(data["range"].get("begin", {}))
            self.place(data["range"].get("end", {}))
        if data.get("kind") in FUNCTIONS:
            function = str(data.get("mangledName", function))
        implicit = implicit or bool(data.get("isImplicit", False))
        yield Node(data, *(written or begins), function, implicit)
        for part in data.get("inner", ()):
            yield from self.nodes(part, function, implicit=implicit)

    def place(self, place: dict[str, Any]) -> tuple[str, int]:
        """Read a place as clang printed it; a macro's is where it was expanded."""
        result = self.file, self.line
        for each in (place.get("spellingLoc"), place.get("expansionLoc"), place):
            if each is None:
                continue
            self.file = each.get("file", self.file)
            self.line = each.get("line", self.line)
            if "offset" in each:
                result = self.file, self.line
        return result


def walk(tree: dict[str, Any]) -> Iterator[Node]:
    """Yield every node of a tree."""
    return Walk().nodes(tree)
