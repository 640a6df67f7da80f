"""Writes expressions so that two engines read them alike."""

from __future__ import annotations

import operator
import re
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise

from jinja2 import nodes
from jinja2.compiler import operators
from jinja2.tests import TESTS

from h2o_pack.errors import shown
from h2o_pack.resolved.jinja.names import KEYWORDS, UNDEFINED
from h2o_pack.resolved.jinja.values import LISTS, PRINTED, Kind, Values

LINE_ENDS = "\x85\u2028\u2029"
"""Characters that swift-jinja replaces with a line end wherever they are in a template."""
ESCAPES = {
    "\\": "\\\\",
    '"': '\\"',
    "\n": "\\n",
    "\t": "\\t",
    "\r": "\\r",
    "\b": "\\b",
    "\f": "\\f",
    "\v": "\\v",
}
PLAIN = re.compile(r"[ -\"$&-z|~][ -\"$&-z|~\u00a0-\U0010ffff]*")
"""Text of one line without the characters of tags."""
DASHED = re.compile(r"(?<=\{%)(?=-)|(?<=\{\{)(?=-)|(?<=-)(?=%\}|\}\})")
"""Places where swift-jinja would take a text for a tag that trims."""


def extends(character: str) -> bool:
    """Whether Swift joins a character to the one before it, so that neither is read alone."""
    joins = unicodedata.category(character) in ("Mn", "Me", "Mc") or character in "\u200c\u200d"
    return joins or "\U0001f3fb" <= character <= "\U0001f3ff" or character >= "\U000e0020"


def literal(text: str) -> str | None:
    """Write a text as a string that both engines read; None if there is no way."""
    if any(letter in LINE_ENDS or "\ud800" <= letter <= "\udfff" for letter in text):
        return None
    pieces = []
    for part in DASHED.split(text):
        if part and (extends(part[0]) or unicodedata.category(part[-1]) == "Cf"):
            return None
        if re.search(r"[\\\"\n\t\r\b\f\v]", part) and any(
            extends(after) and before in ESCAPES for before, after in pairwise(part)
        ):
            return None
        pieces.append('"' + "".join(ESCAPES.get(letter, letter) for letter in part) + '"')
    return pieces[0] if len(pieces) == 1 else f"({' ~ '.join(pieces)})"


SYMBOLS = {
    operator.eq: "==",
    operator.ne: "!=",
    operator.gt: ">",
    operator.ge: ">=",
    operator.lt: "<",
    operator.le: "<=",
}
COMPARISONS = {name: SYMBOLS[test] for name, test in TESTS.items() if test in SYMBOLS}
"""The operators of tests that compare, such as equalto, by the names of the tests."""
COMPARISONS["in"] = "in"
SAME_TESTS = (
    *("defined", "undefined", "none", "string", "mapping", "boolean", "float", "even", "odd"),
    *("callable", "true", "false"),
)
WIDER_TESTS = {
    "number": ("number", "boolean"),
    "integer": ("integer", "boolean"),
    "iterable": ("iterable", "undefined"),
    "sequence": ("sequence", "mapping", "undefined"),
}
"""Tests that are true for more values in Python, with all tests that together are the same."""


class Expressions(Values):
    """Writes the expressions of one template; each text can stand anywhere.

    needed: names of the macros that they use. before: loops that run before the statement.
    """

    def __init__(self, tree: nodes.Template, where: str) -> None:
        super().__init__(tree, where)
        self.needed: set[str] = set()
        self.before: list[str] = []
        self._number = 0

    @contextmanager
    def loops(self) -> Iterator[list[str]]:
        """Collect the loops that expressions need before the statement that has them."""
        outer, self.before = self.before, []
        yield self.before
        self.before = outer

    def string(self, text: str) -> str:
        """Write a text as a string literal."""
        written = literal(text)
        if written is None:
            self.refuse(
                f"the text {shown(text)}",
                "joins one of its characters with a tag, or reads it as a line end",
            )
        return written

    def new(self, what: str) -> str:
        """Return a name for a variable of this writer."""
        self._number += 1
        return f"h2o_{what}_{self._number}"

    def tag(self, words: str) -> str:
        """Write a tag. Its end is on a line of its own, so that no engine trims anything."""
        return f"{{% {words}\n%}}"

    def expr(self, node: nodes.Node) -> str:
        """Write an expression."""
        self.line = node.lineno or self.line
        name = type(node).__name__
        write: Callable[[nodes.Node], str] | None = getattr(self, f"expr_{name.lower()}", None)
        if write is None:
            self.refuse(f"an expression of the kind {name}", "does not know it")
        return write(node)

    def printed(self, node: nodes.Node) -> str:
        """Write the text of a value as Python prints it."""
        if self.kind(node) in PRINTED:
            return self.expr(node)
        if self.kind(node) == Kind.LAZY:
            self.refuse("a printed result of a filter without | list", "prints a list")
        if is_pairs(node):
            self.refuse("printed pairs of values", "prints them as lists")
        return self.helped("h2o_text", self.expr(node))

    def helped(self, macro: str, *arguments: str) -> str:
        """Write a call of one of `MACROS`."""
        self.needed.add(macro)
        return f"{macro}({', '.join(arguments)})"

    def truth(self, node: nodes.Node) -> str:
        """Write a condition."""
        return "true" if self.kind(node) == Kind.LAZY else self.expr(node)

    def elements(self, node: nodes.Node) -> str:
        """Write what a loop or a filter of lists reads: nothing if it is not there."""
        if isinstance(node, nodes.List | nodes.Tuple) or self.kind(node) == Kind.LAZY:
            return self.expr(node)
        items = isinstance(node, nodes.Call) and isinstance(node.node, nodes.Getattr)
        if items or self.kind(node) in LISTS:
            return self.expr(node)
        value = self.expr(node)
        return f"({value} if ({value} is defined) else [])"

    def listed(self, node: nodes.Node) -> str:
        """Write what a loop reads as a list: of the keys if it is a dictionary."""
        if self.kind(node) in LISTS:
            return f"({self.elements(node)} | list)"
        value = self.expr(node)
        return f"({value}.keys() | list if {value} is mapping else {value} | list)"

    def expr_name(self, node: nodes.Name) -> str:
        """Write a variable."""
        if node.name in self.macros:
            self.refuse(f"the macro {node.name} as a value", "keeps other variables for it")
        return node.name

    def expr_const(self, node: nodes.Const) -> str:
        """Write a constant."""
        value = node.value
        if isinstance(value, str):
            return self.string(value)
        if value is None or isinstance(value, bool):
            return {None: "none", True: "true", False: "false"}[value]
        text = repr(value)
        if "e" in text or "n" in text or (isinstance(value, int) and value >= 1 << 63):
            self.refuse(f"the number {shown(value)}", "reads another number")
        return text

    def expr_list(self, node: nodes.List) -> str:
        """Write a list."""
        return f"[{', '.join(map(self.expr, node.items))}]"

    def expr_tuple(self, node: nodes.Tuple) -> str:
        """Write a tuple, which both engines use as a list."""
        items = list(map(self.expr, node.items))
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"

    def expr_dict(self, node: nodes.Dict) -> str:
        """Write a dictionary whose keys are texts or whole numbers."""
        pairs = []
        for pair in node.items:
            key = pair.key.value if isinstance(pair.key, nodes.Const) else None
            if type(key) not in (str, int):
                self.refuse("a dictionary whose key is no text and no whole number", "fails")
            written = self.expr(pair.key)
            if written.startswith("("):
                self.refuse(f"a dictionary with the key {shown(key)}", "reads another key")
            pairs.append(f"{written}: {self.expr(pair.value)}")
        return f"{{{', '.join(pairs)} }}" if pairs else "{ }"

    def expr_condexpr(self, node: nodes.CondExpr) -> str:
        """Write a choice of two values."""
        other = UNDEFINED if node.expr2 is None else self.expr(node.expr2)
        return f"({self.expr(node.expr1)} if {self.truth(node.test)} else {other})"

    def expr_concat(self, node: nodes.Concat) -> str:
        """Write joined texts."""
        parts = [self.printed(part) for part in node.nodes]
        first = [] if self.kind(node.nodes[0]) not in (Kind.TEXT, Kind.NUMBER) else ['""']
        return f"({' ~ '.join([*first, *parts])})"

    def chain(self, node: nodes.BinExpr, write: Callable[[nodes.Node], str]) -> str:
        """Write operators of one kind that are read from left to right."""
        parts: list[str] = []
        left: nodes.Node = node
        while type(left) is type(node) and isinstance(left, nodes.BinExpr):
            parts.append(write(left.right))
            left = left.left
        parts.append(write(left))
        return f"({f' {node.operator} '.join(reversed(parts))})"

    def expr_add(self, node: nodes.Add) -> str:
        """Write a sum. If a part of it is marked as safe, Python escapes the others."""
        if self.kind(node) != Kind.SAFE:
            return self.chain(node, self.expr)
        parts = [
            self.expr(part)
            if self.kind(part) == Kind.SAFE
            else f"({self.printed(part)} | escape)"
            for part in terms(node)
        ]
        return f"({' ~ '.join(parts)})"

    def expr_and(self, node: nodes.And) -> str:
        """Write a conjunction."""
        return self.chain(node, self.truth)

    def expr_or(self, node: nodes.Or) -> str:
        """Write a disjunction."""
        return self.chain(node, self.expr)

    def expr_not(self, node: nodes.Not) -> str:
        """Write a negation."""
        return f"(not {self.truth(node.node)})"

    def expr_neg(self, node: nodes.Neg | nodes.Pos) -> str:
        """Write a number with a sign."""
        return f"({node.operator}{self.expr(node.node)})"

    expr_pos = expr_neg

    def expr_sub(self, node: nodes.Sub | nodes.Div) -> str:
        """Write a difference or a quotient."""
        return f"({self.expr(node.left)} {node.operator} {self.expr(node.right)})"

    expr_div = expr_sub

    def expr_mul(self, node: nodes.Mul) -> str:
        """Write a product: repeating a text less than 0 times would end the app."""
        left, right = self.expr(node.left), self.expr(node.right)
        if self.kind(node.left) in LISTS or self.kind(node.right) in LISTS:
            self.refuse("a list that is multiplied", "fails")
        if self.kind(node.left) == Kind.STRING:
            right = f"([{right}, 0] | max)"
        elif self.kind(node.right) == Kind.STRING:
            left = f"([{left}, 0] | max)"
        return f"({left} * {right})"

    def expr_mod(self, node: nodes.Mod) -> str:
        """Write a remainder, which has the sign of the divisor in Python."""
        if self.kind(node.left) == Kind.STRING:
            self.refuse("a text with % as a format", "fails")
        left, right = self.expr(node.left), self.expr(node.right)
        if not_negative(node.left) and not_negative(node.right):
            return f"({left} % {right})"
        return f"((({left} % {right}) + {right}) % {right})"

    def expr_floordiv(self, node: nodes.FloorDiv) -> str:
        """Write a whole quotient, which is rounded down in Python."""
        left, right = self.expr(node.left), self.expr(node.right)
        if not_negative(node.left) and not_negative(node.right):
            return f"({left} // {right})"
        return f"(({left} - ((({left} % {right}) + {right}) % {right})) // {right})"

    def expr_compare(self, node: nodes.Compare) -> str:
        """Write comparisons; of a chain, each pair."""
        left, pairs = self.expr(node.expr), []
        for operand in node.ops:
            right = self.expr(operand.expr)
            pairs.append(f"({left} {operators[operand.op]} {right})")
            left = right
        return pairs[0] if len(pairs) == 1 else f"({' and '.join(pairs)})"

    def expr_getattr(self, node: nodes.Getattr) -> str:
        """Write an attribute."""
        if isinstance(node.node, nodes.Name) and node.node.name == "loop":
            if node.attr in ("depth", "depth0", "changed"):
                self.refuse(f"loop.{node.attr}", "does not know it")
        elif node.attr in (
            "copy",
            "pop",
            "popitem",
            "clear",
            "update",
            "setdefault",
            "fromkeys",
        ):
            self.refuse(f"the method {node.attr}", "takes it for a key")
        value = self.expr(node.node)
        if node.attr in KEYWORDS or not node.attr.isidentifier():
            return f"{value}[{self.string(node.attr)}]"
        return f"{value}.{node.attr}"

    def expr_getitem(self, node: nodes.Getitem) -> str:
        """Write an element or a slice."""
        value = self.expr(node.node)
        if not isinstance(node.arg, nodes.Slice):
            return f"{value}[{self.expr(node.arg)}]"
        start, stop, step = (
            "" if part is None else self.expr(part)
            for part in (node.arg.start, node.arg.stop, node.arg.step)
        )
        return f"{value}[{start}:{stop}{f':{step}' if step else ''}]"

    def expr_test(self, node: nodes.Test) -> str:
        """Write a test."""
        if node.name in ("defined", "undefined") and isinstance(node.node, nodes.Name):
            value = node.node.name
        else:
            value = self.expr(node.node)
        if node.name in COMPARISONS and node.args:
            return f"({value} {COMPARISONS[node.name]} {self.expr(node.args[0])})"
        if node.name in SAME_TESTS:
            return f"({value} is {node.name})"
        if node.name in WIDER_TESTS:
            tests = " or ".join(f"({value} is {name})" for name in WIDER_TESTS[node.name])
            return f"({tests})"
        if node.name == "divisibleby" and node.args:
            return f"({value} is divisibleby({self.expr(node.args[0])}))"
        if node.name == "sameas" and node.args and isinstance(node.args[0], nodes.Const):
            wanted = node.args[0].value
            if wanted is None or isinstance(wanted, bool):
                return f"({value} is {str(wanted).lower()})"
        return self.refuse(f"the test {node.name}", "decides otherwise, or does not know it")


def is_pairs(node: nodes.Node) -> bool:
    """Whether an expression is, or lists, tuples, which Python prints in parentheses."""
    match node:
        case nodes.Tuple() | nodes.Filter(name="dictsort" | "items"):
            return True
        case nodes.Call(node=nodes.Getattr(attr="items")):
            return True
    return False


def terms(node: nodes.Expr) -> list[nodes.Expr]:
    """Return the parts of a sum."""
    if isinstance(node, nodes.Add):
        return [*terms(node.left), *terms(node.right)]
    return [node]


def not_negative(node: nodes.Expr) -> bool:
    """Whether a number is surely not below 0."""
    match node:
        case nodes.Const(value=int(value)):
            return value >= 0
        case nodes.Getattr(node=nodes.Name(name="loop")):
            return True
        case nodes.Filter(name="length" | "count"):
            return True
        case nodes.Add():
            return not_negative(node.left) and not_negative(node.right)
    return False
