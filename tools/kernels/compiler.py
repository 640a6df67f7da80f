"""Compiles the kernels with clang as C++ for OpenCL, and checks the rules of Metal.

clang gives diagnostics, a syntax tree and LLVM's IR. C++ for OpenCL has Metal's address spaces
and lacks most of the C++ features that Metal lacks, so clang reports mistakes with them. The
syntax tree shows the other mistakes, and the graph of calls shows recursion and threadgroup
memory.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tools.kernels.source import ROOT, Finding, Prepared, check_buffers

OPTIONS = (
    *("-x", "cl", "-cl-std=clc++2021", "-target", "spir64"),
    *("-cl-no-stdinc", "-nostdinc", "-cl-single-precision-constant"),
    *("-ferror-limit=0", "-fno-color-diagnostics", "-w"),
)
DIAGNOSTIC = re.compile(
    r"^(?P<file>[^\n:]+):(?P<line>\d+):\d+: (?:fatal )?error: (?P<text>.+)$", re.MULTILINE
)
GET_CLANG = "install clang (Debian: apt-get install clang), or Swift from swift.org/install"


class CompilerError(Exception):
    """A tool failed without naming an error in the source."""

    def __init__(self, program: str, output: str) -> None:
        last = output.strip().splitlines()[-1:] or ["no message"]
        super().__init__(f"{program} failed: {last[0]}. Use clang 17 or newer.")


def find(program: str) -> str:
    """Return the path of a program; FileNotFoundError if it is not on PATH."""
    path = shutil.which(program)
    if path is None:
        raise FileNotFoundError(f"there is no {program} on PATH: {GET_CLANG}")
    return path


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command and return its exit status and output."""
    return subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603


def read_errors(text: str, shown: Callable[[str], str]) -> list[Finding]:
    """Return the errors in a compiler's output; shown: names a file in findings."""
    return [
        Finding(shown(match["file"]), int(match["line"]), match["text"])
        for match in DIAGNOSTIC.finditer(text)
    ]


@dataclass(frozen=True)
class Translation:
    """The result of reading one .metal file with clang; ir: "" if there are errors."""

    library: str
    errors: list[Finding]
    tree: Any
    ir: str


def translate(prepared: Prepared, library: str) -> Translation:
    """Read one of the prepared libraries with clang.

    Raises FileNotFoundError: there is no clang. CompilerError: clang itself fails.
    """
    clang, shims = find("clang"), ROOT / "tests/metal/check/opencl"
    source = prepared.folder / library
    command = [clang, *OPTIONS, f"-I{shims}", f"-I{prepared.folder}", str(source)]
    dumped = run([*command, "-fsyntax-only", "-Xclang", "-ast-dump=json"])
    errors = read_errors(dumped.stderr, prepared.shown)
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


def metal(text: str) -> str:
    """Return a message of the compiler in the words of Metal."""
    for opencl, name in (
        (r"(C\+\+ for )?OpenCL( version \d+)?", "Metal"),
        ("__global", "device"),
        ("__local", "threadgroup"),
        ("__private", "thread"),
        ("__constant", "constant"),
        ("__generic ", ""),
    ):
        text = re.sub(opencl, name, text)
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
POINTING = {
    *("VarDecl", "ParmVarDecl", "FieldDecl", "TypedefDecl", "TypeAliasDecl"),
    *("CStyleCastExpr", "CXXStaticCastExpr", "CXXReinterpretCastExpr", "CXXConstCastExpr"),
}
RETURNING = {"FunctionDecl", "CXXMethodDecl"}
ELSEWHERE = re.compile(r"__(global|local)\b")


def metal_rules(prepared: Prepared) -> list[Finding]:
    """Return what Metal lacks or refuses in kernels, and what exceeds its limits, sorted."""
    findings: list[Finding] = []
    for library in prepared.libraries:
        findings += check_library(translate(prepared, library), prepared)
    for name, path in prepared.own.items():
        findings += check_buffers((prepared.folder / name).read_text("utf-8"), path)
    return sorted(set(findings))


def check_library(translation: Translation, prepared: Prepared) -> list[Finding]:
    """Return findings about what Metal refuses in a library, sorted."""
    findings = {
        Finding(error.file, error.line, metal(error.message)) for error in translation.errors
    }
    places: dict[str, tuple[str, int]] = {}
    for node in Walk().nodes(translation.tree):
        if node.implicit or prepared.inside(node.file) not in prepared.own:
            continue
        place = prepared.shown(node.file), node.line
        if any(part.get("kind") == "CompoundStmt" for part in node.parts) and node.function:
            places.setdefault(node.function, place)
        findings.update(Finding(*place, text) for text in broken_rules(node))
    calls = read_calls(translation.ir)
    for name, called in calls.items():
        if any(name in reachable(calls, other) for other in called):
            where = places.get(name, (translation.library, 0))
            findings.add(Finding(*where, "Metal has no recursion: this function calls itself"))
    source = prepared.shown(translation.library)
    for name, function in read_names(translation.ir).items():
        size = threadgroup_bytes(calls, function)
        if size > THREADGROUP_BYTES:
            text = (
                f"{name} takes {size} bytes of threadgroup memory, but only "
                f"{THREADGROUP_BYTES} are available"
            )
            findings.add(Finding(source, 0, text))
    return sorted(findings)


def broken_rules(node: Node) -> Iterator[str]:
    """Yield the rules of Metal that a node of the syntax tree breaks."""
    if node.kind in STATEMENTS:
        yield STATEMENTS[node.kind]
    type_ = type_of(node.data)
    if node.kind in DECLARING and re.search(r"\bdouble\b", type_):
        yield "Metal has no double; with `auto`, a number without a suffix is a double"
    is_static = node.kind == "VarDecl" and node.data.get("storageClass") == "static"
    if is_static and node.function and "__constant" not in type_:
        yield "Metal has no static variables in functions"
    if node.kind in RETURNING:
        type_ = type_.split("(", 1)[0]
    if node.kind in POINTING | RETURNING and "__generic" in type_:
        yield "the pointer or reference needs an address space: device, threadgroup, thread"
    if node.kind == "MemberExpr":
        for part in node.parts:
            space = left_space(part)
            if space:
                yield (
                    "the method is for objects in thread memory: "
                    f"write `{space}` after its parameters"
                )


def type_of(data: Mapping[str, Any]) -> str:
    """Return the type of a node's value, without aliases."""
    of = data.get("type", {})
    return str(of.get("desugaredQualType", of.get("qualType", "")))


def left_space(expression: dict[str, Any]) -> str:
    """Return the address space, other than thread, that a cast drops; "" if it drops none."""
    if expression.get("castKind") != "AddressSpaceConversion":
        return ""
    match = ELSEWHERE.search(re.sub(r"<.*>", "", type_of(expression["inner"][0])))
    return {"global": "device", "local": "threadgroup"}[match[1]] if match else ""


THREADGROUP_BYTES = 32 * 1024
"""The limit of every GPU since the A11 (Apple family 4, Metal's feature set tables)."""
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
