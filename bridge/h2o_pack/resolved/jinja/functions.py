"""Writes calls of functions, methods and filters so that two engines read them alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partialmethod
from typing import Any

from jinja2 import nodes
from jinja2.filters import FILTERS

from h2o_pack.resolved.jinja.expressions import Expressions
from h2o_pack.resolved.jinja.names import KEYWORDS, UNDEFINED, names_of
from h2o_pack.resolved.jinja.values import Kind

BUILT_IN = (str, list, dict, int, float, bool, tuple)
METHODS = {name for kind in BUILT_IN for name in dir(kind) if not name.startswith("_")}
"""Names of methods that Python's values have."""
CHANGES = (
    *(
        "append",
        "clear",
        "extend",
        "insert",
        "pop",
        "popitem",
        "remove",
        "setdefault",
        "update",
    ),
)
"""Methods that change a value, which the sandbox forbids."""
HIDDEN = {*KEYWORDS, "items", "keys", "values", "get"}
"""Names that swift-jinja does not find in a namespace."""
DATE = re.compile(r"(?:[^%'\"]|%[aAbBdHmMSyYjp])*")
"""Formats of dates that both write alike."""
KNOWN_FILTERS = {*FILTERS, "tojson"}
NO, NOTHING, EMPTY = (nodes.Const(value) for value in (False, None, ""))


class Functions(Expressions):
    """Writes the calls of one template.

    inside: the macro that is written, "" outside. recursive: names of macros that may call
    themselves; they count these calls, because too many would end the app.
    """

    def __init__(self, tree: nodes.Template, where: str) -> None:
        super().__init__(tree, where)
        self.inside = ""
        self.recursive = {name for name in self.macros if name in self.called(name)}

    def called(self, name: str) -> set[str]:
        """Return the macros that a macro may call, by way of others too."""
        found: set[str] = set()
        left = [name]
        while left:
            names = {part.name for part in self.macros[left.pop()].find_all(nodes.Name)}
            new = (names & self.macros.keys()) - found
            found |= new
            left += new
        return found

    def expr_call(self, node: nodes.Call) -> str:
        """Write a call."""
        if node.dyn_args is not None or node.dyn_kwargs is not None:
            self.refuse("arguments that are unpacked with *", "gives other arguments")
        if isinstance(node.node, nodes.Getattr):
            return self.method(node, node.node)
        if not isinstance(node.node, nodes.Name):
            self.refuse("a call of a value that has no name", "may call another")
        name = node.node.name
        if name in self.macros:
            return f"{name}({', '.join(self.macro_arguments(node, self.macros[name]))})"
        arguments = [self.expr(argument) for argument in node.args]
        if name in ("namespace", "dict"):
            return self.fields_of(node, name)
        if name == "strftime_now":
            form = node.args[0] if len(node.args) == 1 else None
            if not isinstance(form, nodes.Const) or not DATE.fullmatch(str(form.value)):
                self.refuse("a format of a date that is not a known one", "writes it otherwise")
        elif name in ("cycler", "lipsum", "loop", "joiner"):
            self.refuse(f"the function {name}", "does something else")
        elif node.kwargs:
            arguments += [self.expr(keyword.value) for keyword in node.kwargs]
        return f"{name}({', '.join(arguments)})"

    def fields_of(self, node: nodes.Call, name: str) -> str:
        """Write a namespace or a dictionary made from named values."""
        keywords = list(node.kwargs)
        if node.args:
            given = node.args[0]
            if not isinstance(given, nodes.Dict) or len(node.args) > 1:
                self.refuse(f"{name}() with a value that has no name", "leaves it out")
            for pair in given.items:
                key = pair.key.value if isinstance(pair.key, nodes.Const) else None
                if not isinstance(key, str) or not key.isidentifier():
                    self.refuse(f"{name}() with a key that is no name", "leaves it out")
                keywords.append(nodes.Keyword(key, pair.value, lineno=node.lineno))
        if name == "dict":
            pairs = [nodes.Pair(nodes.Const(key.key), key.value) for key in keywords]
            return self.expr_dict(nodes.Dict(pairs, lineno=node.lineno))
        for keyword in keywords:
            if keyword.key in HIDDEN:
                self.refuse(f"the name {keyword.key} in a namespace", "takes it for a method")
        values = [f"{keyword.key}={self.expr(keyword.value)}" for keyword in keywords]
        return f"namespace({', '.join(values)})"

    def macro_arguments(self, node: nodes.Call, macro: nodes.Macro) -> list[str]:
        """Return a written value for each parameter of a macro."""
        names = [name.name for name in macro.args]
        values: dict[str, str] = {}
        if len(node.args) > len(names):
            self.refuse(f"too many arguments for the macro {macro.name}", "leaves them out")
        values.update(zip(names, map(self.expr, node.args), strict=False))
        original = {name.rsplit("_", 1)[0]: name for name in names}
        for keyword in node.kwargs:
            name = keyword.key if keyword.key in names else original.get(keyword.key, "")
            if name not in names:
                self.refuse(f"{keyword.key}=, which is no parameter of a macro", "ignores it")
            values[name] = self.expr(keyword.value)
        defaults = dict(
            zip(reversed(names), reversed(macro.defaults), strict=False),
        )
        for name, default in defaults.items():
            if name not in values:
                if any(part.name in names for part in names_of(default)):
                    self.refuse("a parameter whose value is another parameter", "reads another")
                values[name] = self.expr(default)
        depth = "(h2o_depth + 1)" if self.inside in self.recursive else "0"
        own = [depth] if macro.name in self.recursive else []
        return [*(values.get(name, UNDEFINED) for name in names), *own]

    def method(self, node: nodes.Call, member: nodes.Getattr) -> str:
        """Write a call of a method."""
        name = member.attr
        write: Callable[[nodes.Call, nodes.Expr], str] | None
        write = getattr(self, f"method_{name}", None)
        if write is not None:
            return str(write(node, member.node))
        if name in CHANGES:
            return f'raise_exception("A chat template must not call {name}.")'
        same = ("upper", "lower", "startswith", "endswith", "items", "get", "keys", "values")
        loop = isinstance(member.node, nodes.Name) and member.node.name == "loop"
        if name in METHODS and name not in same and not loop:
            self.refuse(f"the method {name}", "does not know it")
        arguments = [*node.args, *(keyword.value for keyword in node.kwargs)]
        return f"{self.expr(member)}({', '.join(map(self.expr, arguments))})"

    def bound(
        self, node: nodes.Call | nodes.Filter, names: Sequence[str], what: str
    ) -> dict[str, nodes.Expr]:
        """Return the arguments of a call by the names of its parameters."""
        if len(node.args) > len(names) or any(key.key not in names for key in node.kwargs):
            self.refuse(f"{what} with other arguments", "reads them otherwise")
        return {
            **dict(zip(names, node.args, strict=False)),
            **{str(keyword.key): keyword.value for keyword in node.kwargs},
        }

    def stripped(self, node: nodes.Call, value: nodes.Expr, name: str) -> str:
        """Write strip, lstrip or rstrip; without characters, with those that Python strips."""
        characters = self.bound(node, ("chars",), name).get("chars")
        return f"{self.expr(value)}.{name}({self.characters(characters)})"

    def characters(self, node: nodes.Expr | None) -> str:
        """Write the characters to strip."""
        if node is None or (isinstance(node, nodes.Const) and node.value is None):
            self.needed.add("h2o_spaces")
            return "h2o_spaces"
        return self.expr(node)

    method_strip = partialmethod(stripped, name="strip")
    method_lstrip = partialmethod(stripped, name="lstrip")
    method_rstrip = partialmethod(stripped, name="rstrip")

    def method_title(self, node: nodes.Call, value: nodes.Expr) -> str:
        """Write text whose words begin with capitals."""
        self.bound(node, (), "title")
        return self.helped("h2o_title", self.expr(value))

    def method_capitalize(self, node: nodes.Call, value: nodes.Expr) -> str:
        """Write text that begins with a capital."""
        self.bound(node, (), "capitalize")
        return f"({self.expr(value)} | capitalize)"

    def method_replace(self, node: nodes.Call, value: nodes.Expr) -> str:
        """Write text with other parts."""
        found = self.bound(node, ("old", "new", "count"), "replace")
        arguments = [
            self.expr(found[name]) for name in ("old", "new", "count") if name in found
        ]
        return f"{self.expr(value)}.replace({', '.join(arguments)})"

    def method_split(self, node: nodes.Call, value: nodes.Expr) -> str:
        """Write the parts of a text between separators, or its words."""
        found = self.bound(node, ("sep", "maxsplit"), "split")
        separator, most = found.get("sep"), found.get("maxsplit")
        if separator is None or (
            isinstance(separator, nodes.Const) and separator.value is None
        ):
            if most is not None:
                self.refuse("split() for a number of words", "splits them otherwise")
            words = self.helped("h2o_spaced", self.expr(value))
            return f'({words}.split(" ") | select | list)'
        return self.split(self.expr(value), separator, most)

    def split(self, text: str, separator: nodes.Expr, most: nodes.Expr | None = None) -> str:
        """Write the parts of a text between separators."""
        limit = "" if most is None else f", {self.expr(most)}"
        mark = self.expr(separator)
        if isinstance(separator, nodes.Const) and str(separator.value).startswith("\n"):
            # In Swift a carriage return and a line end are one character, which split keeps.
            return f'{text}.replace({mark}, "\ue000").split("\ue000"{limit})'
        return f"{text}.split({mark}{limit})"

    def method_rsplit(self, node: nodes.Call, value: nodes.Expr) -> str:
        """Write the parts of a text, separated from its end."""
        found = self.bound(node, ("sep", "maxsplit"), "rsplit")
        separator, most = found.get("sep"), found.get("maxsplit")
        if separator is None:
            self.refuse("rsplit() without a separator", "does not know it")
        parts, mark = self.split(self.expr(value), separator), self.expr(separator)
        if most is None:
            return parts
        if not (isinstance(most, nodes.Const) and most.value == 1):
            self.refuse("rsplit() with more than one separator", "does not know it")
        whole = self.expr(value)
        both = f"[({parts}[:(-1)] | join({mark})), {parts}[(-1)]]"
        return f"({both} if ({mark} in {whole}) else [{whole}])"

    def method_removeprefix(self, node: nodes.Call, value: nodes.Expr) -> str:
        """Write text without a beginning."""
        text, begin = self.expr(value), self.expr(node.args[0])
        return f"({text}.split({begin}, 1)[1] if {text}.startswith({begin}) else {text})"

    def method_removesuffix(self, node: nodes.Call, value: nodes.Expr) -> str:
        """Write text without an end."""
        text, end = self.expr(value), node.args[0]
        if not isinstance(end, nodes.Const) or not str(end.value).isascii():
            self.refuse("removesuffix() with a text that is computed", "does not know it")
        without = f"{text}[:(-{len(str(end.value))})]"
        return f"({without} if {text}.endswith({self.expr(end)}) else {text})"

    def method_find(self, node: nodes.Call, value: nodes.Expr) -> str:
        """Write the position of a text, -1 if it is not there."""
        text, part = self.expr(value), self.expr(node.args[0])
        if len(node.args) > 1:
            self.refuse("find() from a position", "does not know it")
        return f"(({text}.split({part})[0] | length) if ({part} in {text}) else (-1))"

    def method_rfind(self, node: nodes.Call, value: nodes.Expr) -> str:
        """Write the last position of a text, -1 if it is not there."""
        text, part = self.expr(value), self.expr(node.args[0])
        if len(node.args) > 1:
            self.refuse("rfind() from a position", "does not know it")
        before = f"({text}.split({part})[:(-1)] | join({part}))"
        return f"(({before} | length) if ({part} in {text}) else (-1))"

    def method_count(self, node: nodes.Call, value: nodes.Expr) -> str:
        """Write how often a text is there."""
        text, part = self.expr(value), self.expr(node.args[0])
        return f"(({text}.split({part}) | length) - 1)"

    def method_isdigit(self, node: nodes.Call, value: nodes.Expr) -> str:
        """Write whether a text has only digits."""
        self.bound(node, (), "isdigit")
        text = self.expr(value)
        return f'(({text} != "") and ({text}.strip("0123456789") == ""))'

    def method_isspace(self, node: nodes.Call, value: nodes.Expr) -> str:
        """Write whether a text has only spaces."""
        self.bound(node, (), "isspace")
        text = self.expr(value)
        return f'(({text} != "") and ({text}.strip({self.characters(None)}) == ""))'

    def method_join(self, node: nodes.Call, value: nodes.Expr) -> str:
        """Write joined texts."""
        return self.helped("h2o_join", self.elements(node.args[0]), self.expr(value))

    # Filters

    def expr_filter(self, node: nodes.Filter) -> str:
        """Write a filter."""
        if node.node is None or node.dyn_args is not None or node.dyn_kwargs is not None:
            self.refuse("arguments that are unpacked with *", "gives other arguments")
        write: Callable[[nodes.Filter, nodes.Expr], str] | None
        write = getattr(self, f"filter_{node.name}", None)
        if node.name not in KNOWN_FILTERS:
            return f'raise_exception("There is no filter {node.name}.")'
        if write is None:
            self.refuse(f"the filter {node.name}", "does something else, or does not know it")
        return str(write(node, node.node))

    def simple(self, node: nodes.Filter, value: nodes.Expr) -> str:
        """Write a filter for texts that has no options."""
        self.bound(node, (), node.name)
        return f"({self.printed(value)} | {node.name})"

    filter_upper = filter_lower = filter_capitalize = simple
    filter_escape = filter_e = filter_forceescape = simple

    def filter_string(self, node: nodes.Filter, value: nodes.Expr) -> str:
        """Write a value's text."""
        self.bound(node, (), node.name)
        text = self.printed(value)
        return (
            text if self.kind(value) == Kind.STRING or "h2o_text(" in text else f'("" ~ {text})'
        )

    filter_safe = filter_string  # nothing is escaped in a chat template

    def filter_trim(self, node: nodes.Filter, value: nodes.Expr) -> str:
        """Write text without characters at its ends."""
        characters = self.bound(node, ("chars",), "trim").get("chars")
        return f"({self.printed(value)} | trim({self.characters(characters)}))"

    def filter_title(self, node: nodes.Filter, value: nodes.Expr) -> str:
        """Write text whose words begin with capitals."""
        self.bound(node, (), node.name)
        return self.helped("h2o_words", self.printed(value))

    def filter_length(self, node: nodes.Filter, value: nodes.Expr) -> str:
        """Write a length, a dictionary's pairs, or a number without its sign."""
        self.bound(node, (), node.name)
        name = "length" if node.name == "count" else node.name
        return f"({self.expr(value)} | {name})"

    filter_count = filter_items = filter_abs = filter_length

    def filter_replace(self, node: nodes.Filter, value: nodes.Expr) -> str:
        """Write text with other parts."""
        found = self.bound(node, ("old", "new", "count"), "replace")
        arguments = [self.printed(found[name]) for name in ("old", "new")]
        if "count" in found:
            arguments.append(self.expr(found["count"]))
        return f"({self.printed(value)} | replace({', '.join(arguments)}))"

    def filter_default(self, node: nodes.Filter, value: nodes.Expr) -> str:
        """Write a value, or another one if it is not there."""
        found = self.bound(node, ("default_value", "boolean"), "default")
        other = self.expr(found.get("default_value", EMPTY))
        always = found.get("boolean")
        text = self.expr(value)
        if isinstance(always, nodes.Const) and always.value:
            return f"({text} or {other})"
        if always is None or isinstance(always, nodes.Const):
            return f"({text} if ({text} is defined) else {other})"
        kept = f"({text} is defined) and ({text} or (not {self.expr(always)}))"
        return f"({text} if ({kept}) else {other})"

    filter_d = filter_default

    def filter_join(self, node: nodes.Filter, value: nodes.Expr) -> str:
        """Write joined texts."""
        found = self.bound(node, ("d", "attribute"), "join")
        between = self.printed(found.get("d", EMPTY))
        if "attribute" in found:
            rows = self.attributes(self.elements(value), found["attribute"])
            return self.helped("h2o_join", rows, between)
        if self.kind(value) == Kind.STRINGS:
            return f"({self.expr(value)} | join({between}))"
        return self.helped("h2o_join", self.elements(value), between)

    def filter_first(self, node: nodes.Filter, value: nodes.Expr) -> str:
        """Write the first or last element."""
        return f"({self.elements(value)} | {node.name})"

    filter_last = filter_first

    def filter_list(self, node: nodes.Filter, value: nodes.Expr) -> str:
        """Write a list of elements: of keys if the value is a dictionary."""
        self.bound(node, (), node.name)
        return self.listed(value)

    def filter_sort(self, node: nodes.Filter, value: nodes.Expr) -> str:
        """Write sorted elements; equal ones keep their order."""
        found = self.bound(node, ("reverse", "case_sensitive", "attribute"), "sort")
        backward, cases = found.get("reverse"), found.get("case_sensitive", NO)
        attribute = found.get("attribute")
        options = ["false", self.expr(cases)]
        if attribute is not None:
            options.append(self.string(self.attribute(attribute)))
        rows = self.listed(value)
        if backward is None or (isinstance(backward, nodes.Const) and not backward.value):
            return f"({rows} | sort({', '.join(options)}))"
        if not isinstance(backward, nodes.Const):
            self.refuse("sort with a computed order", "orders equal elements otherwise")
        return f"({rows} | reverse | sort({', '.join(options)}) | reverse | list)"

    def attribute(self, node: nodes.Expr) -> str:
        """Return the name of an attribute that a filter reads."""
        name = constant(node)
        if not isinstance(name, str) or not name.isidentifier() or name in METHODS:
            self.refuse("a filter with an attribute that is no simple name", "reads another")
        return name

    def existing(self, node: nodes.Expr) -> str:
        """Write what a loop before a statement reads: nothing if a part of it is not there."""
        parents = {
            self.expr(part.node): None
            for part in [node, *node.find_all(nodes.Expr)]
            if isinstance(part, nodes.Getattr | nodes.Getitem)
        }
        there = [f"({name} is defined) and (not ({name} is none))" for name in parents]
        return f"(({' and '.join([*there, self.expr(node)])}) or [])"

    def collected(
        self, names: Sequence[str], rows: str, value: str, condition: str = "", loops: str = ""
    ) -> str:
        """Write a loop before the statement; return the list of the values that it collects.

        names: the loop's variables. loops: what each step needs before the condition.
        """
        kept = self.new("values")
        add = self.tag(f"set {kept}.all = ({kept}.all + [{value}])")
        if condition:
            add = self.tag(f"if {condition}") + add + self.tag("endif")
        self.before.append(
            self.tag(f"set {kept} = namespace(all=[])")
            + self.tag(f"for {', '.join(names)} in {rows}")
            + loops
            + add
            + self.tag("endfor")
        )
        return f"{kept}.all"

    def attributes(self, rows: str, node: nodes.Expr) -> str:
        """Write the attributes of elements; a dot leads to an attribute of the attribute."""
        for part in str(constant(node)).split("."):
            item = self.new("item")
            name = self.attribute(nodes.Const(part))
            rows = self.collected([item], rows, f"{item}.{name}")
        return rows

    def filter_map(self, node: nodes.Filter, value: nodes.Expr) -> str:
        """Write an attribute of each element, or a filter for each."""
        rows, item = self.existing(value), self.new("item")
        if not node.args:
            found = self.bound(node, ("attribute", "default"), "map")
            if "attribute" not in found:
                self.refuse("map without an attribute", "does something else")
            if "default" not in found:
                return self.attributes(rows, found["attribute"])
            field = f"{item}.{self.attribute(found['attribute'])}"
            other = self.expr(found["default"])
            return self.collected(
                [item], rows, f"({field} if ({field} is defined) else {other})"
            )
        name = constant(node.args[0])
        if not isinstance(name, str):
            self.refuse("map with a computed filter", "may apply another one")
        element = nodes.Name(item, "load", lineno=node.lineno)
        options = (node.args[1:], node.kwargs, None, None)
        applied = nodes.Filter(element, name, *options, lineno=node.lineno)
        with self.loops() as inner:
            written = self.expr(applied)
        return self.collected([item], rows, written, loops="".join(inner))

    def picked(self, node: nodes.Filter, value: nodes.Expr) -> str:
        """Write the elements for which a test is true, or false."""
        rows, arguments, item = self.existing(value), list(node.args), self.new("item")
        tested: nodes.Expr = nodes.Name(item, "load", lineno=node.lineno)
        if node.name.endswith("attr"):
            if not arguments:
                self.refuse(f"{node.name} without an attribute", "fails")
            for part in str(constant(arguments.pop(0))).split("."):
                name = self.attribute(nodes.Const(part))
                tested = nodes.Getattr(tested, name, "load", lineno=node.lineno)
        if arguments:
            test = constant(arguments.pop(0))
            if not isinstance(test, str) or node.kwargs:
                self.refuse(f"{node.name} with a computed test", "may apply another one")
            tested = nodes.Test(tested, test, arguments, [], None, None, lineno=node.lineno)
        condition = self.expr(tested)
        if node.name.startswith("reject"):
            condition = f"(not {condition})"
        return self.collected([item], rows, item, condition)

    filter_select = filter_reject = filter_selectattr = filter_rejectattr = picked

    def filter_unique(self, node: nodes.Filter, value: nodes.Expr) -> str:
        """Write elements without those that were there before."""
        self.bound(node, (), "unique with options")
        return f"({self.listed(value)} | unique)"

    def filter_dictsort(self, node: nodes.Filter, value: nodes.Expr) -> str:
        """Write the keys and values of a dictionary in the order of the keys."""
        found = self.bound(node, ("case_sensitive", "by", "reverse"), "dictsort")
        by = found.get("by", nodes.Const("key"))
        if not isinstance(by, nodes.Const) or by.value != "key":
            self.refuse("dictsort by values", "orders them otherwise")
        cases = self.expr(found.get("case_sensitive", NO))
        backward = self.expr(found.get("reverse", NO))
        return f'({self.expr(value)} | dictsort({cases}, "key", {backward}))'

    def filter_int(self, node: nodes.Filter, value: nodes.Expr) -> str:
        """Write a whole number."""
        found = self.bound(node, ("default",), "int with a base")
        other = self.expr(found.get("default", nodes.Const(0)))
        return f"({self.expr(value)} | int({other}))"

    def filter_max(self, node: nodes.Filter, value: nodes.Expr) -> str:
        """Write the largest or smallest element, a sum, or elements in reverse order."""
        self.bound(node, (), node.name)
        return f"({self.elements(value)} | {node.name})"

    filter_min = filter_sum = filter_reverse = filter_max

    def filter_indent(self, node: nodes.Filter, value: nodes.Expr) -> str:
        """Write text whose lines are indented."""
        found = self.bound(node, ("width", "first", "blank"), "indent")
        options = {"width": nodes.Const(4), "first": NO, "blank": NO, **found}
        if not all(isinstance(option, nodes.Const) for option in options.values()):
            self.refuse("indent with computed options", "indents otherwise")
        space, first, blank = map(constant, options.values())
        space = " " * space if isinstance(space, int) else str(space)
        lines = f"indent({self.string(space)}, false, {'true' if blank else 'false'})"
        ends = ("\r\n", "\r", "\v", "\f")
        ended = "".join(f' | replace({self.string(end)}, "\\n")' for end in ends)
        text = f"({self.printed(value)}{ended} | {lines})"
        return f"({self.string(space)} ~ {text})" if first else text

    def filter_tojson(self, node: nodes.Filter, value: nodes.Expr) -> str:
        """Write a value as JSON, as Python's json.dumps does."""
        if self.kind(value) == Kind.LAZY:
            return 'raise_exception("What a filter computes lazily cannot be written as JSON.")'
        names = ("ensure_ascii", "indent", "separators", "sort_keys")
        found = self.bound(node, names, "tojson")
        if not isinstance(found.get("indent", NOTHING), nodes.Const):
            self.refuse("tojson with a computed indent", "writes it otherwise")
        indent = constant(found.get("indent", NOTHING))
        step, pad, comma, colon = "", "", ", ", ": "
        if indent is not None:
            step = indent if isinstance(indent, str) else " " * indent
            pad, comma = "\n", ","
        separators = found.get("separators")
        if isinstance(separators, nodes.Tuple | nodes.List):
            comma, colon = (str(constant(item)) for item in separators.items)
        elif separators is not None and not is_none(separators):
            self.refuse("tojson with computed separators", "writes it otherwise")
        ascii_only = self.expr(found.get("ensure_ascii", NO))
        in_order = self.expr(found.get("sort_keys", NO))
        options = [*map(self.string, (comma, colon, pad, step)), ascii_only, in_order, "0"]
        return self.helped("h2o_json", self.expr(value), *options)


def constant(node: nodes.Node) -> Any:
    """Return the value of a constant; None for another expression."""
    return node.value if isinstance(node, nodes.Const) else None


def is_none(node: nodes.Expr) -> bool:
    """Whether an expression is the constant none."""
    return isinstance(node, nodes.Const) and node.value is None
