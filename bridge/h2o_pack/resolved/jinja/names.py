"""Gives each variable of a chat template a name of its own.

In Jinja2 a loop, a macro or a block has variables of its own, and a variable that a loop sets
is forgotten before the next step. swift-jinja keeps it, keeps what a block sets, and lets a
macro read the variables of its caller. With names that are used once, and with a value at the
beginning of each step, both read a template alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from jinja2 import nodes

UNDEFINED = "h2o_undefined"
"""A name that nothing defines."""
KEYWORDS = {
    *("call", "endcall", "filter", "endfilter", "generation", "endgeneration", "macro"),
    *("endmacro", "elif", "endif", "endfor", "endset", "null"),
}
"""Words that swift-jinja does not read as names, but Jinja2 does."""


@dataclass
class Scope:
    """A part of a template with variables of its own.

    given: names that have a value when the part begins: the variables of a loop, the parameters
    of a macro. assigned: names that the part sets. renamed: the new names of both, where they
    change.
    """

    parent: Scope | None
    given: set[str] = field(default_factory=set)
    assigned: set[str] = field(default_factory=set)
    renamed: dict[str, str] = field(default_factory=dict)

    def binds(self, name: str) -> bool:
        """Whether the name is a variable of this part."""
        return name in self.given or name in self.assigned

    def resolve(self, name: str) -> str:
        """Return the new name of a variable that this part reads."""
        scope: Scope | None = self
        while scope is not None:
            if scope.binds(name):
                return scope.renamed.get(name, name)
            scope = scope.parent
        return UNDEFINED if name in KEYWORDS else name


def rename(tree: nodes.Template) -> None:
    """Rename the variables of a template in place, and add the values that steps begin with."""
    names = Renaming(tree)
    root = Scope(None, set(), set(names.root))
    root.renamed = {name: names.fresh(name) for name in sorted(names.root & KEYWORDS)}
    names.part(tree.body, root)


def targets(node: nodes.Node) -> list[nodes.Name]:
    """Return the names that an assignment sets."""
    if isinstance(node, nodes.Name):
        return [node]
    return [name for item in node.iter_child_nodes() for name in targets(item)]


def names_of(node: nodes.Node) -> Iterator[nodes.Name]:
    """Return the names in a node, itself included."""
    if isinstance(node, nodes.Name):
        yield node
    yield from node.find_all(nodes.Name)


def assigned_names(body: Iterable[nodes.Node]) -> Iterator[str]:
    """Return the names that statements set, without those of inner parts."""
    for node in body:
        if isinstance(node, nodes.Assign | nodes.AssignBlock):
            yield from (name.name for name in targets(node.target))
        elif isinstance(node, nodes.Macro):
            yield node.name
        elif isinstance(node, nodes.If):
            yield from assigned_names([*node.body, *node.elif_, *node.else_])


class Renaming:
    """The names of one template."""

    def __init__(self, tree: nodes.Template) -> None:
        self.names = {name.name for name in tree.find_all(nodes.Name)} | KEYWORDS
        self.names |= {macro.name for macro in tree.find_all(nodes.Macro)}
        self.shared = {name for macro in tree.find_all(nodes.Macro) for name in free(macro)}
        self.bound: Counter[str] = Counter(binders(tree))
        self.root = set(assigned_names(tree.body))
        self.open = free(tree)

    def fresh(self, name: str) -> str:
        """Return a name like `name` that the template does not use."""
        number = 2
        while f"{name}_{number}" in self.names:
            number += 1
        self.names.add(f"{name}_{number}")
        return f"{name}_{number}"

    def inner(
        self, parent: Scope, given: Iterable[nodes.Name], body: Sequence[nodes.Node]
    ) -> Scope:
        """Return the scope of an inner part, with new names where others have them too."""
        scope = Scope(parent, {name.name for name in given})
        scope.assigned = set(assigned_names(body)) - scope.given
        for name in sorted(scope.given - {"loop"}):
            if name in self.shared or name in KEYWORDS:
                scope.renamed[name] = self.fresh(name)
        for name in sorted(scope.assigned):
            others = self.bound[name] > 1 or name in self.root or name in self.open
            if others or name in self.shared or name in KEYWORDS or use(body, name) != "set":
                scope.renamed[name] = self.fresh(name)
        return scope

    def part(self, body: list[nodes.Node], scope: Scope) -> None:
        """Rename the names in a part; those that it may read too early are set at its start."""
        first: list[nodes.Node] = []
        if scope.parent is not None:
            for name in sorted(scope.assigned):
                if use(body, name) != "set":
                    outer = nodes.Name(scope.parent.resolve(name), "load", lineno=1)
                    own = nodes.Name(scope.resolve(name), "store", lineno=1)
                    first.append(nodes.Assign(own, outer, lineno=1))
        for node in body:
            self.statement(node, scope)
        body[:0] = first

    def statement(self, node: nodes.Node, scope: Scope) -> None:  # noqa: PLR0912 - the kinds
        """Rename the names in a statement."""
        match node:
            case nodes.For():
                self.expression(node.iter, scope)
                loop = [*targets(node.target), nodes.Name("loop", "store")]
                inner = self.inner(scope, loop, node.body)
                if node.test is not None:
                    step = Scope(scope, inner.given, set(), inner.renamed)
                    self.expression(node.test, step)
                self.expression(node.target, inner)
                self.part(node.body, inner)
                self.part(node.else_, self.inner(scope, [], node.else_))
            case nodes.Macro():
                inner = self.inner(scope, node.args, node.body)
                node.name = scope.resolve(node.name)
                for child in [*node.args, *node.defaults]:
                    self.expression(child, inner)
                self.part(node.body, inner)
            case nodes.CallBlock():
                self.expression(node.call, scope)
                inner = self.inner(scope, node.args, node.body)
                for child in [*node.args, *node.defaults]:
                    self.expression(child, inner)
                self.part(node.body, inner)
            case nodes.AssignBlock():
                self.part(node.body, self.inner(scope, [], node.body))
                self.expression(node.target, scope)
                if node.filter is not None:
                    self.expression(node.filter, scope)
            case nodes.FilterBlock():
                self.expression(node.filter, scope)
                self.part(node.body, self.inner(scope, [], node.body))
            case nodes.With():
                self.with_block(node, scope)
            case nodes.If():
                self.expression(node.test, scope)
                for part in [*node.body, *node.elif_, *node.else_]:
                    self.statement(part, scope)
            case _:
                self.expression(node, scope)

    def with_block(self, node: nodes.With, scope: Scope) -> None:
        """Rename what is in a with block, and assign its variables at its beginning."""
        for value in node.values:
            self.expression(value, scope)
        inner = self.inner(scope, [], node.body)
        inner.given = {name.name for target in node.targets for name in targets(target)}
        inner.renamed |= {name: self.fresh(name) for name in sorted(inner.given)}
        inner.assigned -= inner.given
        for target in node.targets:
            self.expression(target, inner)
        self.part(node.body, inner)
        node.body[:0] = [
            nodes.Assign(variable, value, lineno=node.lineno)
            for variable, value in zip(node.targets, node.values, strict=True)
        ]

    def expression(self, node: nodes.Node, scope: Scope) -> None:
        """Rename what is in an expression or in a simple statement."""
        if isinstance(node, nodes.Name | nodes.NSRef):
            node.name = scope.resolve(node.name)
        for child in node.iter_child_nodes():
            self.expression(child, scope)


def binders(tree: nodes.Node) -> Iterator[str]:
    """Return each name once for each part that has it as its variable."""
    parts: list[tuple[list[nodes.Name], list[nodes.Node]]] = []
    for loop in tree.find_all(nodes.For):
        parts += [(targets(loop.target), loop.body), ([], loop.else_)]
    parts += [(macro.args, macro.body) for macro in tree.find_all(nodes.Macro)]
    parts += [(call.args, call.body) for call in tree.find_all(nodes.CallBlock)]
    parts += [([], block.body) for block in tree.find_all(nodes.AssignBlock)]
    parts += [([], block.body) for block in tree.find_all(nodes.FilterBlock)]
    parts += [([], block.body) for block in tree.find_all(nodes.With)]
    for given, body in parts:
        yield from {name.name for name in given} | set(assigned_names(body))


def free(node: nodes.Node, bound: frozenset[str] = frozenset()) -> set[str]:
    """Return the names that a part of a template reads and does not have itself."""
    match node:
        case nodes.Name():
            reads = node.ctx == "load" and node.name not in bound
            return {node.name} if reads else set()
        case nodes.NSRef():
            return set() if node.name in bound else {node.name}
        case nodes.Template():
            own = bound | set(assigned_names(node.body))
            return {name for child in node.body for name in free(child, own)}
        case nodes.For():
            own = bound | {name.name for name in targets(node.target)} | {"loop"}
            inner = own | set(assigned_names(node.body))
            last = bound | set(assigned_names(node.else_))
            parts = [(node.iter, bound), *((child, inner) for child in node.body)]
            parts += [(child, last) for child in node.else_]
            parts += [(node.test, own)] if node.test is not None else []
        case nodes.Macro() | nodes.CallBlock():
            own = bound | {name.name for name in node.args}
            inner = own | set(assigned_names(node.body))
            parts = [(child, own) for child in node.defaults]
            parts += [(child, inner) for child in node.body]
            parts += [(node.call, bound)] if isinstance(node, nodes.CallBlock) else []
        case nodes.AssignBlock() | nodes.FilterBlock():
            inner = bound | set(assigned_names(node.body))
            parts = [(child, inner) for child in node.body]
            parts += [(node.filter, bound)] if node.filter is not None else []
        case nodes.With():
            own = bound | {name.name for target in node.targets for name in targets(target)}
            inner = own | set(assigned_names(node.body))
            parts = [(value, bound) for value in node.values]
            parts += [(child, inner) for child in node.body]
        case _:
            parts = [(child, bound) for child in node.iter_child_nodes()]
    return {name for child, own in parts for name in free(child, own)}


def use(body: Sequence[nodes.Node], name: str) -> str:  # noqa: PLR0911 - the kinds
    """Say how statements use a name first: "set", "read" or "" for not at all."""
    for node in body:
        match node:
            case nodes.Assign() if name in {target.name for target in targets(node.target)}:
                return "read" if name in free(node.node) else "set"
            case nodes.AssignBlock() if name in {t.name for t in targets(node.target)}:
                return "read" if any(name in free(child) for child in node.body) else "set"
            case nodes.Macro() if node.name == name:
                return "set"
            case nodes.If():
                if name in free(node.test):
                    return "read"
                if any(name in free(branch.test) for branch in node.elif_):
                    return "read"
                branches = [node.body, *(branch.body for branch in node.elif_), node.else_]
                ways = {use(branch, name) for branch in branches}
                if "read" in ways:
                    return "read"
                if ways == {"set"}:
                    return "set"
                if "set" in ways:
                    return "read"
            case _ if name in free(node):
                return "read"
    return ""
