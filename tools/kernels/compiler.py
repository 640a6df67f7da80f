"""Compiles the kernels with clang as C++ for OpenCL, and checks the rules of Metal.

clang gives diagnostics, a syntax tree and LLVM's IR. C++ for OpenCL lacks most of the C++
features that Metal lacks, so clang reports their use. The syntax tree shows uses of the others,
and the graph of calls shows recursion and threadgroup memory.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tools.kernels.source import ROOT, Finding, Prepared, kernels_of

OPTIONS = (
    *("-x", "cl", "-cl-std=clc++2021", "-target", "spir64"),
    *("-cl-no-stdinc", "-nostdinc", "-cl-single-precision-constant"),
    *("-ferror-limit=0", "-fno-color-diagnostics", "-w"),
)
DIAGNOSTIC = re.compile(
    r"^(?P<file>[^\n:]+):(?P<line>\d+):\d+: (?:fatal )?error: (?P<text>.+)$"
)


class CompilerError(Exception):
    """A tool failed without naming an error in the source."""

    def __init__(self, program: str, output: str) -> None:
        last = output.strip().splitlines()[-1:] or ["no message"]
        super().__init__(f"{program} failed: {last[0]}. Use clang 17 or newer.")


@dataclass(frozen=True)
class Translation:
    """The result of reading one .metal file with clang; ir: "" if there are errors."""

    library: str
    errors: tuple[Finding, ...]
    tree: Any
    ir: str


def find_clang() -> str | None:
    """Return the path of clang; None if it is not on PATH."""
    return shutil.which("clang")


def translate(prepared: Prepared, library: str, clang: str) -> Translation:
    """Read one of the prepared libraries with clang; CompilerError if clang itself fails."""
    shims = ROOT / "tests/metal/check/opencl"
    source = prepared.folder / library
    command = [clang, *OPTIONS, f"-I{shims}", f"-I{prepared.folder}", str(source)]
    dumped = run([*command, "-fsyntax-only", "-Xclang", "-ast-dump=json"])
    errors = diagnostics(dumped.stderr, prepared)
    if dumped.returncode != 0 and not errors:
        raise CompilerError(clang, dumped.stderr)
    ir = ""
    if not errors:
        process = run(
            [*command, *("-S", "-emit-llvm", "-Xclang", "-disable-llvm-passes", "-o", "-")]
        )
        if process.returncode != 0:
            raise CompilerError(clang, process.stderr)
        ir = process.stdout
    return Translation(library, errors, json.loads(dumped.stdout), ir)


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command and return its exit status and output."""
    return subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603


def diagnostics(text: str, prepared: Prepared) -> tuple[Finding, ...]:
    """Return the errors in the compiler's output, each once."""
    findings: dict[Finding, None] = {}
    for line in text.splitlines():
        match = DIAGNOSTIC.match(line)
        if match:
            file = prepared.shown(match["file"])
            findings[Finding(file, int(match["line"]), metal(match["text"]))] = None
    return tuple(findings)


def metal(text: str) -> str:
    """Return a message of the compiler with Metal's names of address spaces."""
    for opencl, name in (
        ("__global", "device"),
        ("__local", "threadgroup"),
        ("__private", "thread"),
        ("__constant", "constant"),
        ("__generic ", ""),
    ):
        text = text.replace(opencl, name)
    return text


FUNCTIONS = {
    *("FunctionDecl", "CXXMethodDecl", "CXXConstructorDecl", "CXXConversionDecl"),
    "CXXDestructorDecl",
}


@dataclass(frozen=True)
class Node:
    """A node of the syntax tree, with its place and the function that contains it.

    implicit: whether the compiler has added the node, or a node that contains it.
    """

    data: dict[str, Any]
    file: str
    line: int
    function: str
    implicit: bool

    @property
    def kind(self) -> str:
        """The node's class in clang."""
        return str(self.data.get("kind", ""))

    @property
    def type(self) -> str:
        """The type of the node's value, without aliases."""
        of = self.data.get("type", {})
        return str(of.get("desugaredQualType", of.get("qualType", "")))

    @property
    def parts(self) -> list[dict[str, Any]]:
        """The nodes directly below this node."""
        inner: list[dict[str, Any]] = self.data.get("inner", [])
        return [part for part in inner if part]


class Walk:
    """Walks a tree in the order in which clang printed it, which omits repeated file names."""

    def __init__(self) -> None:
        self.file = ""
        self.line = 0

    def nodes(
        self, data: dict[str, Any], function: str = "", *, implicit: bool = False
    ) -> Iterator[Node]:
        """Yield a node and all nodes below it."""
        location = self.place(data["loc"]) if data.get("loc") else None
        begins = self.file, self.line
        if "range" in data:
            begins = self.place(data["range"].get("begin", {}))
            self.place(data["range"].get("end", {}))
        if data.get("kind") in FUNCTIONS:
            function = str(data.get("mangledName", function))
        implicit = implicit or bool(data.get("isImplicit", False))
        yield Node(data, *(location or begins), function, implicit)
        for part in data.get("inner", ()):
            yield from self.nodes(part, function, implicit=implicit)

    def place(self, place: dict[str, Any]) -> tuple[str, int]:
        """Return a file and a line from clang's output; of a macro, where it is expanded."""
        result = self.file, self.line
        for source in (place.get("spellingLoc"), place.get("expansionLoc"), place):
            if source is None:
                continue
            self.file = source.get("file", self.file)
            self.line = source.get("line", self.line)
            if "offset" in source:
                result = self.file, self.line
        return result


def walk(tree: dict[str, Any]) -> Iterator[Node]:
    """Yield every node of a tree."""
    return Walk().nodes(tree)


DEFINED = re.compile(r"^define [^@]*@\"?([\w.$]+)\"?\(.*?^}", re.MULTILINE | re.DOTALL)
CALLED = re.compile(r"\b(?:call|invoke) [^@\n]*@\"?([\w.$]+)\"?\(")
VARIABLE = re.compile(r"h2o_threadgroup_variable\w*?Lm(\d+)EEPT_v$")
STRING = re.compile(r'^(@\.str[.\d]*) = .* c"([^"]*)\\00"', re.MULTILINE)
ANNOTATION = re.compile(r"@([\w.$]+)(?: to ptr addrspace\(\d\))?\)?, [^@]*(@\.str[.\d]*), ")


def read_calls(ir: str) -> dict[str, tuple[str, ...]]:
    """Return the functions that each defined function calls, in order."""
    return {
        match[1]: tuple(CALLED.findall(match[0].split("\n", 1)[1]))
        for match in DEFINED.finditer(ir)
    }


def reachable(calls: Mapping[str, tuple[str, ...]], name: str) -> set[str]:
    """Return a function and all functions that it calls, directly or indirectly."""
    names = {name}
    waiting = [name]
    while waiting:
        new = set(calls.get(waiting.pop(), ())) - names
        names |= new
        waiting.extend(new)
    return names


def cycles(calls: Mapping[str, tuple[str, ...]]) -> Iterator[set[str]]:
    """Yield the sets of functions that call each other, or one that calls itself."""
    reached = {name: set().union(*(reachable(calls, c) for c in calls[name])) for name in calls}
    counted: set[str] = set()
    for name in calls:
        if name in reached[name] and name not in counted:
            cycle = {other for other in reached[name] if name in reached.get(other, ())}
            counted |= cycle
            yield cycle


def read_names(ir: str) -> dict[str, str]:
    """Return {name of the kernel: name of its function}."""
    texts = dict(STRING.findall(ir))
    match = re.search(r"^@llvm\.global\.annotations = .*$", ir, re.MULTILINE)
    pairs = ANNOTATION.findall(match[0]) if match else ()
    return {texts[text]: function for function, text in pairs}


def threadgroup_bytes(calls: Mapping[str, tuple[str, ...]], kernel: str) -> int:
    """Return the threadgroup memory of a kernel and the functions that it calls, in bytes."""
    total = 0
    for name in reachable(calls, kernel):
        for called in calls.get(name, ()):
            match = VARIABLE.search(called)
            total += int(match[1]) if match else 0
    return total


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
# In instances of templates, clang forgets that literals have single precision. So only nodes
# that declare or name a type are checked for double.
DECLARING = {
    *("VarDecl", "ParmVarDecl", "FieldDecl", "TypedefDecl", "TypeAliasDecl"),
    *("FunctionDecl", "CXXMethodDecl", "CXXConversionDecl", "CXXScalarValueInitExpr"),
    *("CStyleCastExpr", "CXXStaticCastExpr", "CXXFunctionalCastExpr"),
}


def is_of_language(finding: Finding) -> bool:
    """Whether an error of the compiler is about a feature that the language lacks."""
    return MISSING.search(finding.message) is not None


def check_language(translation: Translation, prepared: Prepared) -> list[Finding]:
    """Return findings about features of a library that Metal lacks."""
    findings = {
        Finding(error.file, error.line, OPENCL.sub("Metal", error.message))
        for error in translation.errors
        if is_of_language(error)
    }
    places: dict[str, tuple[str, int]] = {}
    for node in walk(translation.tree):
        if prepared.inside(node.file) not in prepared.own or node.implicit:
            continue
        place = prepared.shown(node.file), node.line
        if any(part.get("kind") == "CompoundStmt" for part in node.parts) and node.function:
            places.setdefault(node.function, place)
        findings.update(Finding(*place, text) for text in missing(node))
    for names in cycles(read_calls(translation.ir)):
        for name in names:
            where = places.get(name, (translation.library, 0))
            findings.add(Finding(*where, "Metal has no recursion: this function calls itself"))
    return sorted(findings)


def missing(node: Node) -> Iterator[str]:
    """Yield messages about the features of a node that Metal lacks."""
    if node.kind in STATEMENTS:
        yield STATEMENTS[node.kind]
    if node.kind in DECLARING and re.search(r"\bdouble\b", node.type):
        yield "Metal has no double; with `auto`, a number without a suffix is a double"
    is_static = node.kind == "VarDecl" and node.data.get("storageClass") == "static"
    if is_static and node.function and "__constant" not in node.type:
        yield "Metal has no static variables in functions"


POINTING = {
    *("VarDecl", "ParmVarDecl", "FieldDecl", "TypedefDecl", "TypeAliasDecl"),
    *("CStyleCastExpr", "CXXStaticCastExpr", "CXXReinterpretCastExpr", "CXXConstCastExpr"),
}
RETURNING = {"FunctionDecl", "CXXMethodDecl"}
ELSEWHERE = re.compile(r"__(global|local|constant)\b")
NOWHERE = "the pointer or reference needs an address space: device, threadgroup, thread"
NOT_THREAD = "the method is for objects in thread memory: write `{}` after its parameters"


def check_address_spaces(translation: Translation, prepared: Prepared) -> list[Finding]:
    """Return findings about pointers and references that Metal refuses."""
    findings = {error for error in translation.errors if not is_of_language(error)}
    for node in walk(translation.tree):
        if node.implicit or prepared.inside(node.file) not in prepared.own:
            continue
        findings.update(
            Finding(prepared.shown(node.file), node.line, text) for text in broken_rules(node)
        )
    return sorted(findings)


def broken_rules(node: Node) -> Iterator[str]:
    """Yield the rules that a node of the syntax tree breaks."""
    type_ = node.type
    if node.kind in RETURNING:
        type_ = type_.split("(", 1)[0]
    if node.kind in POINTING | RETURNING and "__generic" in type_:
        yield NOWHERE
    if node.kind == "MemberExpr":
        for part in node.parts:
            space = left_space(part)
            if space:
                yield NOT_THREAD.format(space)


def left_space(expression: dict[str, object]) -> str:
    """Return the address space, other than thread, that a cast drops; "" if it drops none."""
    if expression.get("castKind") != "AddressSpaceConversion":
        return ""
    inner = expression.get("inner")
    of = inner[0].get("type", {}) if isinstance(inner, list) and inner else {}
    name = re.sub(r"<.*>", "", of.get("desugaredQualType", of.get("qualType", "")))
    match = ELSEWHERE.search(name)
    return {"global": "device", "local": "threadgroup"}.get(match[1], "") if match else ""


# Limits of every GPU since the A11 (Apple family 4), from Metal's feature set tables.
THREADGROUP_BYTES = 32 * 1024
LAST_BUFFER = 30


def check_limits(translation: Translation, prepared: Prepared) -> list[Finding]:
    """Return findings about kernels of a library that exceed Metal's threadgroup memory."""
    source = prepared.shown(str(prepared.folder / translation.library))
    calls = read_calls(translation.ir)
    findings = []
    for name, function in read_names(translation.ir).items():
        size = threadgroup_bytes(calls, function)
        if size > THREADGROUP_BYTES:
            text = (
                f"{name} takes {size} bytes of threadgroup memory, but only "
                f"{THREADGROUP_BYTES} are available"
            )
            findings.append(Finding(source, 0, text))
    return sorted(findings)


def check_buffers(prepared: Prepared) -> list[Finding]:
    """Return findings about buffers whose index is too large or used twice at once."""
    findings = []
    for inside, path in prepared.own.items():
        text = (prepared.folder / inside).read_text("utf-8")
        for kernel, buffers in kernels_of(text).items():
            always = [buffer.index for buffer in buffers if not buffer.gate]
            for buffer in buffers:
                line = line_of(text, kernel, buffer.index)
                if buffer.index > LAST_BUFFER:
                    words = f"{kernel}: buffer {buffer.index}, but the last is {LAST_BUFFER}"
                    findings.append(Finding(path, line, words))
                if always.count(buffer.index) > 1 or (buffer.gate and buffer.index in always):
                    words = f"{kernel}: {buffer.name} shares the index {buffer.index}"
                    findings.append(Finding(path, line, words))
    return sorted(findings)


def line_of(text: str, kernel: str, index: int) -> int:
    """Return the number of the line that declares a buffer of a kernel."""
    begin = re.search(rf"\b{kernel}\s*\(", text)
    at = re.compile(rf"\bbuffer\(\s*{index}\s*\)").search(text, begin.end() if begin else 0)
    return text.count("\n", 0, at.start()) + 1 if at else 0
