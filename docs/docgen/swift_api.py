"""Makes the reference of the Swift libraries from the comments of public declarations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent

from docs.docgen.markdown import fence, plain

TEMPLATES = Path(__file__).resolve().parents[2] / "swift_templates"
STRING = re.compile(r'"(?:\\.|[^"\\])*"')
TEMPLATE = re.compile(r"\{[{%].*?[%}]\}")
TYPE = re.compile(r"\b(?:class|struct|enum|protocol|actor|extension)\s+([\w.]+)")
PUBLIC = re.compile(r"^(?:@\w+(?:\([^)]*\))?\s+)*(?:public|open)\b")
ATTRIBUTE = re.compile(r"(?:@\w+(?:\([^)]*\))?\s*)+")
INDENT = 4
LIBRARIES = ("H2OKit", "Download", "H2OSessions", "H2OChatScreen", "H2OFoundationModels")
REFERENCE = re.compile(r"``([^`]+)``")


@dataclass(frozen=True)
class Declaration:
    """A public declaration: its text up to the body, and its comment."""

    text: str
    comment: str


@dataclass
class TypeEntry:
    """The declarations of a type and of its members, in the order of the source."""

    name: str
    declared: Declaration | None = None
    members: list[Declaration] = field(default_factory=list)


@dataclass(frozen=True)
class Scope:
    """A type whose members are being read; indent: columns before the type itself."""

    name: str
    indent: int
    is_public: bool
    is_enum: bool
    is_protocol: bool


def sections() -> str:
    """Return the Markdown of all libraries, and of the modules with the models."""
    parts = []
    for library in LIBRARIES:
        parts += [f"## {library}", *types(sorted((TEMPLATES / library).rglob("*.swift")))]
    model = sorted((TEMPLATES / "Model").glob("*.swift*"))
    several = sorted((TEMPLATES / "Several/Model").glob("*.swift*"))
    parts += ["## The model's module", *types(model)]
    return "\n\n".join([*parts, "## The module of several models", *types(several)])


def types(paths: Iterable[Path]) -> Iterator[str]:
    """Yield a section for each type that has public declarations."""
    entries: dict[str, TypeEntry] = {}
    for path in paths:
        read(path, entries)
    for name in sorted(entries, key=str.lower):
        entry = entries[name]
        if entry.declared or entry.members:
            yield section(entry)


def section(entry: TypeEntry) -> str:
    """Return the Markdown of a type and its public members."""
    parts = [f"### {entry.name}"]
    for member in ([entry.declared] if entry.declared else []) + entry.members:
        parts += [fence(member.text, "swift"), member.comment]
    return "\n\n".join(part for part in parts if part)


def read(path: Path, entries: dict[str, TypeEntry]) -> None:
    """Collect the public declarations of a file; members are indented by four columns more."""
    scopes: list[Scope] = []
    comment: list[str] = []
    lines = iter(unconditional(path.read_text("utf-8")).splitlines())
    for raw in lines:
        line = raw.strip()
        if line.startswith("///"):
            comment.append(line.removeprefix("///").removeprefix(" "))
            continue
        if line.startswith(("//", "#", "import ", "{%", "{{")) or ATTRIBUTE.fullmatch(line):
            continue
        if line:
            indent = len(raw) - len(raw.lstrip())
            scopes = [scope for scope in scopes if scope.indent < indent]
            if indent == INDENT * len(scopes) and not line.startswith("}"):
                text = whole(TEMPLATE.sub("…", raw), lines)
                declare(text, comment, scopes, entries)
                scopes += opened(text, indent)
            comment = []


def unconditional(text: str) -> str:
    """Return a file's text without an #if that contains the whole file."""
    if not text.startswith("#if "):
        return text
    return dedent(text.partition("\n")[2].rpartition("#endif")[0])


def opened(text: str, indent: int) -> list[Scope]:
    """Return the scope that a declaration opens: [] unless it is a type with a body."""
    head = bare(text).strip()
    match = TYPE.search(head.partition("{")[0].partition(":")[0])
    if match is None or not head.endswith("{"):
        return []
    is_public, words = bool(PUBLIC.match(head)), f" {head}"
    return [Scope(match[1], indent, is_public, " enum " in words, " protocol " in words)]


def whole(text: str, lines: Iterator[str]) -> str:
    """Add the following lines of a declaration, as long as a bracket is open."""
    while sum(bare(text).count(c) for c in "([") > sum(bare(text).count(c) for c in ")]"):
        text += "\n" + TEMPLATE.sub("…", next(lines))
    return text


def bare(text: str) -> str:
    """Return a text without its strings and comments."""
    return re.sub(r"//.*", "", STRING.sub('""', text))


def declare(
    text: str, comment: list[str], scopes: list[Scope], entries: dict[str, TypeEntry]
) -> None:
    """Add a declaration to the entries if it is public."""
    head = shown(text)
    outer = scopes[-1] if scopes else None
    is_case = outer is not None and outer.is_enum and head.startswith("case ")
    is_requirement = outer is not None and outer.is_protocol
    if not (PUBLIC.match(head) or ((is_case or is_requirement) and outer and outer.is_public)):
        return
    match = TYPE.search(head.partition(":")[0])
    declaration = Declaration(head, documentation(comment))
    if match and "extension" not in head:
        name = full_name(scopes, match[1])
        entries.setdefault(name, TypeEntry(name)).declared = declaration
    else:
        name = full_name(scopes)
        entries.setdefault(name, TypeEntry(name)).members.append(declaration)


def full_name(scopes: list[Scope], name: str = "") -> str:
    """Return the name of a type, after the names of the types that contain it."""
    names = [scope.name for scope in scopes]
    return ".".join([*names, name] if name else names) or "Functions"


def shown(text: str) -> str:
    """Return a declaration without its body, value and common indentation."""
    head = text
    opening = body_start(head)
    if opening is not None:
        head = head[:opening]
    lines = head.rstrip().splitlines()
    margin = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
    head = "\n".join(line[margin:] if line[:margin].isspace() else line for line in lines)
    return re.sub(r"\s*=\s*$", "", head).strip()


def body_start(text: str) -> int | None:
    """Return the index at which a declaration's body or a property's value begins."""
    masked = STRING.sub(lambda match: "x" * len(match[0]), text)
    depth = 0
    for index, character in enumerate(masked):
        depth += (character in "([") - (character in ")]")
        if depth == 0 and character == "{":
            return index
        if depth == 0 and character == "=" and re.search(r"\b(?:let|var)\b", masked[:index]):
            return index
    return None


def documentation(comment: list[str]) -> str:
    """Turn a DocC comment into Markdown: links to symbols, and lists four spaces deep."""
    lines: list[str] = []
    for line in comment:
        spaces = len(line) - len(line.lstrip(" "))
        item = line.lstrip(" ").startswith("- ")
        if item and lines and lines[-1].strip() and not is_list(lines):
            lines.append("")
        indented = " " * (spaces * 2) + line.lstrip(" ") if item else line
        lines.append(REFERENCE.sub(lambda m: f"`{m[1].replace('/', '.')}`", indented))
    return plain("\n".join(lines))


def is_list(lines: list[str]) -> bool:
    """Whether the last paragraph is a list."""
    for line in reversed(lines):
        if not line.strip():
            return False
        if line.lstrip(" ").startswith("- "):
            return True
    return False
