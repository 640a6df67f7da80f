"""What is known of the values in a template before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NoReturn

from jinja2 import nodes

from h2o_pack.errors import model_error
from h2o_pack.resolved.jinja.names import UNDEFINED, targets

WHAT_TO_DO = (
    "Write this part of the template otherwise in a local copy of the model, and give the "
    "copy's folder as --model."
)


class Kind(Enum):
    """What is known of a value before the template runs.

    TEXT is a string, a number or nothing: what both engines print alike. STRINGS is a list of
    strings. LAZY is what Python computes while a loop reads it; it is always true there. SAFE
    is a string that is not escaped; Python escapes what is added to it.
    """

    ANY = 0
    TEXT = 1
    STRING = 2
    NUMBER = 3
    BOOL = 4
    LIST = 5
    STRINGS = 6
    LAZY = 7
    SAFE = 8


PRINTED = (Kind.TEXT, Kind.STRING, Kind.NUMBER, Kind.SAFE)
LISTS = (Kind.LIST, Kind.STRINGS, Kind.LAZY)
FILTERS = {
    **dict.fromkeys(("trim", "upper", "lower", "string", "join", "replace"), Kind.STRING),
    **dict.fromkeys(("tojson", "capitalize", "title", "indent"), Kind.STRING),
    **dict.fromkeys(("safe", "e", "escape", "forceescape"), Kind.SAFE),
    **dict.fromkeys(("length", "count", "int", "abs"), Kind.NUMBER),
    **dict.fromkeys(("map", "select", "reject", "selectattr", "rejectattr"), Kind.LAZY),
    **dict.fromkeys(("unique", "items", "reverse"), Kind.LAZY),
}
"""The kinds of what filters return."""
METHODS = {
    **dict.fromkeys(("split", "rsplit"), Kind.STRINGS),
    **dict.fromkeys(("startswith", "endswith", "isdigit", "isspace"), Kind.BOOL),
    **dict.fromkeys(("find", "rfind", "count"), Kind.NUMBER),
    **dict.fromkeys(("strip", "lstrip", "rstrip", "replace", "upper", "lower"), Kind.STRING),
    **dict.fromkeys(("title", "capitalize", "join"), Kind.STRING),
    **dict.fromkeys(("removeprefix", "removesuffix"), Kind.STRING),
}
"""The kinds of what methods return."""
FUNCTIONS = {
    "caller": Kind.STRING,
    "strftime_now": Kind.STRING,
    "range": Kind.LIST,
    "raise_exception": Kind.TEXT,
}
"""The kinds of what functions return."""


class Values:
    """What is known of the values of one template.

    tree: the template, in which each variable has a name of its own. where: its file. line: the
    line that is read. macros: by name.
    """

    def __init__(self, tree: nodes.Template, where: str) -> None:
        self.tree = tree
        self.where = where
        self.line = 1
        self.macros: dict[str, nodes.Macro] = {}
        self._values: dict[str, list[nodes.Node | None]] = {}
        self._computing: set[str] = set()
        self._collect()

    def refuse(self, construct: str, effect: str) -> NoReturn:
        """Refuse a construct at the current line; effect: what the app would do with it."""
        what = f"the chat template uses {construct}; the app's template engine {effect}"
        raise model_error(what, WHAT_TO_DO, where=f"{self.where}:{self.line}")

    def _collect(self) -> None:
        """Note what the template assigns to each name."""
        for loop in self.tree.find_all(nodes.For):
            for variable in targets(loop.target):
                self.note(variable.name, None)
        for call in self.tree.find_all(nodes.CallBlock):
            for variable in call.args:
                self.note(variable.name, None)
        for macro in self.tree.find_all(nodes.Macro):
            for variable in macro.args:
                self.note(variable.name, None)
            if macro.name in self.macros:
                self.line = macro.lineno
                self.refuse(f"two macros with the name {macro.name}", "knows only the last one")
            self.macros[macro.name] = macro
        for block in self.tree.find_all(nodes.AssignBlock):
            self._assign(block.target, nodes.Const("") if block.filter is None else None)
        for assignment in self.tree.find_all(nodes.Assign):
            self._assign(assignment.target, assignment.node)

    def note(self, name: str, value: nodes.Node | None) -> None:
        """Note that a name, or a namespace's field, may have a value; None: it is not known."""
        self._values.setdefault(name, []).append(value)

    def _assign(self, target: nodes.Node, value: nodes.Node | None) -> None:
        """Note an assignment."""
        match target:
            case nodes.NSRef():
                self.note(f"{target.name}.{target.attr}", value)
            case nodes.Name():
                self.note(target.name, value)
                for field in namespace_fields(value):
                    self.note(f"{target.name}.{field.key}", field.value)
            case _:
                for name in targets(target):
                    self.note(name.name, None)

    def _joined(self, key: str, values: Sequence[nodes.Node | None]) -> Kind:
        """Return the kind of a variable with these values."""
        if key in self._computing:
            return Kind.STRING
        self._computing.add(key)
        kinds = {Kind.ANY if value is None else self.kind(value) for value in values}
        self._computing.discard(key)
        if len(kinds) == 1:
            return kinds.pop()
        return Kind.TEXT if kinds and kinds <= set(PRINTED) else Kind.ANY

    def kind(self, node: nodes.Node) -> Kind:  # noqa: PLR0911, PLR0912 - one case a line
        """Return what is known of an expression's value."""
        match node:
            case nodes.Const(value=bool()):
                return Kind.BOOL
            case nodes.Const(value=str()) | nodes.Concat():
                return Kind.STRING
            case nodes.Const(value=int() | float()):
                return Kind.NUMBER
            case nodes.List() | nodes.Tuple():
                return Kind.LIST
            case nodes.Compare() | nodes.Not() | nodes.Test():
                return Kind.BOOL
            case nodes.Name(name=name) if name == UNDEFINED or name.endswith("os_token"):
                return Kind.TEXT
            case nodes.Name(name=name) if name in self._values:
                return self._joined(name, self._values[name])
            case nodes.Getattr(node=nodes.Name(name="loop"), attr=attr):
                return Kind.NUMBER if "index" in attr or attr == "length" else Kind.ANY
            case nodes.Getattr(node=nodes.Name(name=name), attr=attr) if (
                f"{name}.{attr}" in self._values
            ):
                return self._joined(f"{name}.{attr}", self._values[f"{name}.{attr}"])
            case nodes.And() | nodes.Or():
                return self.either(node.left, node.right)
            case nodes.CondExpr():
                return self.either(node.expr1, node.expr2 or nodes.Name(UNDEFINED, "load"))
            case nodes.Add():
                kinds = {self.kind(node.left), self.kind(node.right)}
                for kind in (Kind.SAFE, Kind.STRING, Kind.NUMBER, Kind.LIST):
                    if kind in kinds:
                        return kind
                return Kind.LIST if Kind.STRINGS in kinds else Kind.ANY
            case nodes.Mul():
                kinds = {self.kind(node.left), self.kind(node.right)}
                return Kind.STRING if Kind.STRING in kinds else Kind.TEXT
            case nodes.Sub() | nodes.Div() | nodes.FloorDiv() | nodes.Mod() | nodes.Neg():
                return Kind.NUMBER
            case nodes.Getitem():
                return self.item_kind(node)
            case nodes.Filter():
                return self.filter_kind(node)
            case nodes.Call():
                return self.call_kind(node)
        return Kind.ANY

    def either(self, first: nodes.Node, second: nodes.Node) -> Kind:
        """Return the kind of a value that is one of two."""
        kinds = {self.kind(first), self.kind(second)}
        if len(kinds) == 1:
            return kinds.pop()
        return Kind.TEXT if kinds <= set(PRINTED) else Kind.ANY

    def item_kind(self, node: nodes.Getitem) -> Kind:
        """Return the kind of an element or slice."""
        whole = self.kind(node.node)
        if isinstance(node.arg, nodes.Slice):
            return whole if whole in (Kind.STRING, Kind.STRINGS, Kind.LIST) else Kind.ANY
        return Kind.TEXT if whole in (Kind.STRINGS, Kind.STRING) else Kind.ANY

    def filter_kind(self, node: nodes.Filter) -> Kind:
        """Return the kind of a filter's value."""
        inner = Kind.ANY if node.node is None else self.kind(node.node)
        match node.name:
            case "list" | "sort":
                return Kind.STRINGS if inner == Kind.STRINGS else Kind.LIST
            case "first" | "last":
                return Kind.TEXT if inner == Kind.STRINGS else Kind.ANY
            case "default" | "d" if node.node is not None:
                return self.either(node.node, node.args[0] if node.args else nodes.Const(""))
        return FILTERS.get(node.name, Kind.ANY)

    def call_kind(self, node: nodes.Call) -> Kind:
        """Return the kind of a call's value."""
        match node.node:
            case nodes.Getattr(attr=name):
                return METHODS.get(name, Kind.ANY)
            case nodes.Name(name=name):
                return Kind.STRING if name in self.macros else FUNCTIONS.get(name, Kind.ANY)
        return Kind.ANY


def namespace_fields(value: nodes.Node | None) -> list[nodes.Keyword]:
    """Return the named values with which a namespace is made; [] if it is none."""
    if isinstance(value, nodes.Call) and isinstance(value.node, nodes.Name):
        return list(value.kwargs) if value.node.name == "namespace" else []
    return []
