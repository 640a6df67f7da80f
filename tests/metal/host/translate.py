"""Metal Shading Language, as far as kernels here use it, made C++ for tests/metal/host.

Address spaces, vectors and simdgroup functions are the host's headers; what is left is
what no header can express: attributes of kernels' parameters, function constants and
threadgroup variables. Lines keep their numbers, so a compiler's message points at the
Metal source.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

KERNEL = re.compile(
    r"(?P<attributes>(?:\[\[[^\]]*\]\]\s*)+|\bkernel\s+(?:\[\[[^\]]*\]\]\s*)*)"
    r"void\s+(?P<name>\w+)\s*\("
)
TEMPLATE = re.compile(r"template\s*<[^;{}]*>\s*$")
INSTANCE = re.compile(
    r'template \[\[host_name\(("\w+")\)\]\] \[\[kernel\]\] decltype\((\w+)<([^>]*)>\) [^;]*;'
)
COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
FUNCTION_CONSTANT = re.compile(
    r"^[ \t]*constant\s+(\w+)\s+(\w+)\s*\[\[\s*function_constant\((\w+)\)\s*\]\]\s*;",
    re.MULTILINE,
)
DERIVED_CONSTANT = re.compile(r"^[ \t]*constant\s+(\w+)\s+(\w+)\s*=\s*([^;{]+);", re.MULTILINE)
THREADGROUP_VARIABLE = re.compile(
    r"(?<=[;{}])(\s*)threadgroup\s+([\w:<>, ]+?)\s+(\w+)\s*((?:\[[^;]*?\]\s*)*)(;|,|=)"
)

# What tests/metal/upstream.metal includes of MLX's headers: a file, or templates of it.
UPSTREAM = {
    "sdpa_vector.h": (),
    "quantized.h": ("get_pack_factor", "get_bytes_per_pack", "affine_quantize"),
}


class TranslationError(Exception):
    """Metal that the host does not know."""


def translate(text: str) -> str:
    """The C++ that behaves on the host as `text` does on a GPU."""
    text = COMMENT.sub(_without_comment, text)
    text = FUNCTION_CONSTANT.sub(
        r'static constexpr ::h2o::host::Constant<\1, \3> \2{"\2"};', text
    )
    text = DERIVED_CONSTANT.sub(
        r"struct h2o_derived_\2 { operator \1() const { return \3; } }; "
        r"inline constexpr h2o_derived_\2 \2{};",
        text,
    )
    return INSTANCE.sub(r"H2O_REGISTER(\1, \2, &\2<\3>);", _kernels(text))


def _without_comment(match: re.Match[str]) -> str:
    text = match[0]
    return text if text.startswith('"') else " " + "\n" * text.count("\n")


def _kernels(text: str) -> str:
    pieces = []
    at = 0
    for match in KERNEL.finditer(text):
        if "kernel" not in match["attributes"] or match.start() < at:
            continue
        close = _matching(text, match.end() - 1)
        body = re.compile(r"\s*\{").match(text, close)
        if body is None:
            continue
        end = _matching(text, body.end() - 1)
        name = match["name"]
        parameters = [
            _parameter(parameter)
            for parameter in _split(text[match.end() : close - 1])
            if parameter.strip()
        ]
        pieces += [
            text[at : match.start()],
            f"H2O_KERNEL void {name}(",
            ",".join(declaration for declaration, _ in parameters),
            ")",
            _threadgroup_variables(text[close:end], name),
            _signature(name, match["attributes"], [row for _, row in parameters]),
        ]
        if not TEMPLATE.search(text[: match.start()]):
            pieces.append(f' H2O_REGISTER("{name}", {name}, &{name});')
        at = end
    return "".join([*pieces, text[at:]])


def _matching(text: str, start: int) -> int:
    """Where the bracket at `start` is closed, one past it."""
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] in "([{") - (text[at] in ")]}")
        if depth == 0:
            return at + 1
    raise TranslationError(f"unbalanced brackets after: {text[start : start + 60]!r}")


def _split(text: str) -> list[str]:
    """The parts between commas outside of brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{<") - (character in ")]}>")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _parameter(text: str) -> tuple[str, str]:
    """A kernel's parameter without its attributes, and its row of the table."""
    attributes = [
        a.strip()
        for listed in re.findall(r"\[\[(.*?)\]\]", text, re.DOTALL)
        for a in _split(listed)
    ]
    declaration = re.sub(r"\[\[.*?\]\]", "", text, flags=re.DOTALL)
    name = re.findall(r"\w+", declaration)[-1]
    index, gate, builtin = "-1", "", ""
    for attribute in attributes:
        value = re.fullmatch(r"(\w+)\s*\((.*)\)", attribute, re.DOTALL)
        if value and value[1] == "buffer":
            index = value[2]
        elif value and value[1] == "function_constant":
            gate = value[2]
        elif not value:
            builtin = attribute
    source = f"::h2o::host::Builtin::{builtin}" if builtin else "{}"
    on = f'"{gate}", +[] {{ return bool({gate}); }}' if gate else "nullptr, nullptr"
    return declaration, f'{{"{name}", {index}, {source}, {on}}}'


def _threadgroup_variables(body: str, kernel: str) -> str:
    count = 0

    def variable(match: re.Match[str]) -> str:
        nonlocal count
        space, kind, name, dimensions, end = match.groups()
        if end != ";":
            raise TranslationError(
                f"{kernel}: declare threadgroup {name} in a statement of its own, "
                "without a value."
            )
        count += 1
        kept = "\n" * dimensions.count("\n")
        return (
            f"{space}auto& {name} = ::h2o::host::shared<{kind}{dimensions.strip()}>"
            f'({count - 1}, "{name}");{kept}'
        )

    return THREADGROUP_VARIABLE.sub(variable, body)


def _signature(name: str, attributes: str, rows: list[str]) -> str:
    limit = re.search(r"max_total_threads_per_threadgroup\((\w+)\)", attributes)
    table = f"{name}_h2o_parameters"
    listed = ", ".join(rows) or "{}"
    return (
        f" static constexpr ::h2o::host::Parameter {table}[] = {{{listed}}};"
        f" static constexpr ::h2o::host::Signature {name}_h2o_signature{{"
        f"{table}, {len(rows)}, {limit[1] if limit else 1024}}};"
    )


def _library(text: str) -> str:
    """Tells the host from which text kernels were made, and the constants that it declares."""
    constants = ", ".join(match[3] for match in FUNCTION_CONSTANT.finditer(text))
    return f'H2O_LIBRARY(R"h2o_text({text})h2o_text", {constants or -1});\n'


def excerpt(text: str, names: tuple[str, ...]) -> str:
    """Returns the templates of these names; all of the text if there are none."""
    pattern = r"^template <[^>]*>\n[^\n]*\b{}\(.*?^}}\n"
    found = [re.search(pattern.format(n), text, re.MULTILINE | re.DOTALL) for n in names]
    return "".join(match[0] for match in found if match) if names else text


def write(text: str, target: Path) -> None:
    """Writes a file, if it changed, so that builds stay incremental."""
    if not target.exists() or target.read_text() != text:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def main(arguments: list[str]) -> None:
    """`translate.py OUTPUT INCLUDE_ROOT SOURCE...`.

    What tests use of MLX's kernel headers under INCLUDE_ROOT goes to OUTPUT/include, and each
    SOURCE to OUTPUT/sources.
    """
    output, root = Path(arguments[0]), Path(arguments[1])
    for name, parts in UPSTREAM.items():
        header = root / "mlx/backend/metal/kernels" / name
        write(translate(excerpt(header.read_text(), parts)), output / "include" / name)
    for source in map(Path, arguments[2:]):
        text = source.read_text()
        try:
            translated = f'#line 1 "{source}"\n{translate(text)}{_library(text)}'
        except TranslationError as error:
            raise SystemExit(f"{source}: {error}") from error
        write(translated, output / "sources" / f"{source.name}.cpp")


if __name__ == "__main__":
    main(sys.argv[1:])
