"""Writes templates so that two engines read them alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from jinja2 import nodes

from h2o_pack.resolved.jinja.expressions import PLAIN, literal
from h2o_pack.resolved.jinja.functions import HIDDEN, Functions
from h2o_pack.resolved.jinja.macros import MACROS, too_deep
from h2o_pack.resolved.jinja.names import names_of, targets
from h2o_pack.resolved.jinja.values import Kind

STACK = 90
"""Blocks inside each other, with which the stack of a thread of the app is enough."""


class Writer(Functions):
    """Writes one template."""

    def text(self) -> str:
        """Return the canonical text."""
        body = self.block(self.tree.body)
        free = {name.name for name in self.tree.find_all(nodes.Name)}
        missing = "".join(
            f"{{% if ({name} is undefined)\n%}}{{% set {name} = none\n%}}{{% endif\n%}}"
            for name in ("tools", "documents")
            if name in free
        )
        needed = set(self.needed)
        for name, text in MACROS.items():
            if name in needed:
                needed |= set(re.findall(r"h2o_\w+", text))
        helpers = "".join(
            text
            for name, text in reversed(MACROS.items())
            if name in needed and name not in self.macros
        )
        return missing + helpers + body

    def block(self, body: Iterable[nodes.Node]) -> str:
        """Write statements."""
        return "".join(self.statement(node) for node in body)

    def statement(self, node: nodes.Node) -> str:
        """Write a statement, and before it the loops that its expressions need."""
        self.line = node.lineno or self.line
        name = type(node).__name__
        write: Callable[[nodes.Node], str] | None = getattr(self, f"write_{name.lower()}", None)
        if write is None:
            self.refuse(f"a block of the kind {name}", "does not know it")
        with self.loops() as before:
            text = write(node)
        return "".join(before) + text

    def write_output(self, node: nodes.Output) -> str:
        """Write text and values."""
        return "".join(self.output(part) for part in node.nodes)

    def output(self, node: nodes.Node) -> str:
        """Write a text or the printed value of an expression."""
        self.line = node.lineno or self.line
        if isinstance(node, nodes.TemplateData):
            if not node.data:
                return ""
            if PLAIN.fullmatch(node.data) and not node.data.isspace() and literal(node.data):
                return node.data
            return f"{{{{ {self.string(node.data)} }}}}"
        return f"{{{{ {self.printed(node)} }}}}"

    def write_if(self, node: nodes.If) -> str:
        """Write conditions."""
        text = self.tag(f"if {self.truth(node.test)}") + self.block(node.body)
        for branch in node.elif_:
            text += self.tag(f"elif {self.truth(branch.test)}") + self.block(branch.body)
        if node.else_:
            text += self.tag("else") + self.block(node.else_)
        return text + self.tag("endif")

    def write_for(self, node: nodes.For) -> str:
        """Write a loop."""
        if node.recursive:
            self.refuse("a recursive loop", "does not know it")
        names = loop_names(node.target)
        if names is None:
            self.refuse("a loop with variables in parentheses", "does not know it")
        rows = self.elements(node.iter)
        body = node.body
        if node.test is not None:
            used = any(name.name == "loop" for child in body for name in names_of(child))
            if used or node.else_:
                rows = self.chosen(node, names, rows)
            else:
                start = [child for child in body if is_start(child)]
                rest = body[len(start) :]
                body = [*start, nodes.If(node.test, rest, [], [], lineno=node.lineno)]
        text = self.tag(f"for {', '.join(names)} in {rows}") + self.block(body)
        if node.else_:
            text += self.tag("else") + self.block(node.else_)
        return text + self.tag("endfor")

    def chosen(self, node: nodes.For, names: Sequence[str], rows: str) -> str:
        """Write a loop that collects the elements for which a loop's condition is true."""
        assert node.test is not None  # noqa: S101 - only called for such loops
        with self.loops() as inner:
            condition = self.truth(node.test)
        item = names[0] if len(names) == 1 else f"[{', '.join(names)}]"
        return self.collected(names, rows, item, condition, "".join(inner))

    def write_assign(self, node: nodes.Assign) -> str:
        """Write an assignment."""
        if self.kind(node.node) == Kind.LAZY and isinstance(node.target, nodes.Name):
            uses = [
                name
                for name in self.tree.find_all(nodes.Name)
                if name.name == node.target.name and name.ctx == "load"
            ]
            if len(uses) > 1:
                self.refuse(
                    f"{node.target.name} twice, which a filter computes only once in Python",
                    "gives it each time; add | list",
                )
        return self.tag(f"set {self.target(node.target)} = {self.expr(node.node)}")

    def target(self, node: nodes.Node) -> str:
        """Write what an assignment sets."""
        if isinstance(node, nodes.NSRef):
            if node.attr in HIDDEN:
                self.refuse(f"the name {node.attr} in a namespace", "takes it for a method")
            return f"{node.name}.{node.attr}"
        return ", ".join(name.name for name in targets(node))

    def write_assignblock(self, node: nodes.AssignBlock) -> str:
        """Write an assignment of a rendered block."""
        target = self.target(node.target)
        text = self.tag(f"set {target}") + self.block(node.body) + self.tag("endset")
        if node.filter is None:
            return text
        kept = self.new("block")
        text = self.tag(f"set {kept}") + self.block(node.body) + self.tag("endset")
        return text + self.tag(f"set {target} = {self.expr(filled(node.filter, kept))}")

    def write_filterblock(self, node: nodes.FilterBlock) -> str:
        """Write a block to which a filter is applied."""
        kept = self.new("block")
        text = self.tag(f"set {kept}") + self.block(node.body) + self.tag("endset")
        self.note(kept, nodes.Const(""))
        return f"{text}{{{{ {self.printed(filled(node.filter, kept))} }}}}"

    def write_macro(self, node: nodes.Macro) -> str:
        """Write a macro; calls give a value to each of its parameters."""
        for name in node.find_all(nodes.Name):
            if name.name in ("varargs", "kwargs"):
                self.line = name.lineno
                self.refuse(f"{name.name} in a macro", "does not know it")
        names, start = [name.name for name in node.args], ""
        if node.name in self.recursive:
            names.append("h2o_depth")
            start = too_deep(STACK // (nested(node) + 1))
        outer, self.inside = self.inside, node.name
        text = self.tag(f"macro {node.name}({', '.join(names)})") + start
        text += self.block(node.body) + self.tag("endmacro")
        self.inside = outer
        return text

    def write_callblock(self, node: nodes.CallBlock) -> str:
        """Write a call of a macro with a body."""
        if node.defaults:
            self.refuse("a call block whose parameters have values", "does not know them")
        if not (isinstance(node.call.node, nodes.Name) and node.call.node.name in self.macros):
            self.refuse("a call block for something that is no macro", "does not know it")
        given = f"({', '.join(name.name for name in node.args)})" if node.args else ""
        text = self.tag(f"call{given} {self.expr(node.call)}")
        return text + self.block(node.body) + self.tag("endcall")

    def write_scope(self, node: nodes.Scope | nodes.With) -> str:
        """Write the body: its variables have names of their own."""
        return self.block(node.body)

    write_with = write_scope

    def write_break(self, node: nodes.Break | nodes.Continue) -> str:
        """Write the end of a loop, or of its step."""
        return self.tag(type(node).__name__.lower())

    write_continue = write_break


def loop_names(target: nodes.Node) -> list[str] | None:
    """Return the variables of a loop; None if some are in parentheses."""
    if isinstance(target, nodes.Name):
        return [target.name]
    items = target.items if isinstance(target, nodes.Tuple) else []
    if all(isinstance(item, nodes.Name) for item in items):
        return [item.name for item in items if isinstance(item, nodes.Name)]
    return None


def is_start(node: nodes.Node) -> bool:
    """Whether a statement only gives a variable of a step its first value."""
    return (
        isinstance(node, nodes.Assign)
        and node.lineno == 1
        and isinstance(node.node, nodes.Name)
    )


def filled(node: nodes.Filter, name: str) -> nodes.Filter:
    """Return filters of a block with the block's text, in a variable, as their value."""
    inner = node
    while isinstance(inner.node, nodes.Filter):
        inner = inner.node
    inner.node = nodes.Name(name, "load", lineno=node.lineno)
    return node


def nested(node: nodes.Node) -> int:
    """Return how many blocks in a block are inside each other; each elif is one more."""
    deepest = 0
    for child in node.iter_child_nodes():
        deepest = max(deepest, nested(child) + isinstance(child, nodes.Stmt))
    if isinstance(node, nodes.If):
        deepest += len(node.elif_)
    return deepest
