"""What `tools.kernels` finds in kernels, and in the C++ that dispatches them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from pathlib import Path

import pytest

from h2o_pack.facts import pins
from h2o_py._pins import MLX_VERSION
from interface import kernel_text as text
from tests.bridge.trees import build_tree
from tools.kernels import compiler, macos
from tools.kernels.compiler import (
    Translation,
    check_library,
    metal_rules,
    read_calls,
    read_names,
    threadgroup_bytes,
    translate,
)
from tools.kernels.macos import (
    SIMULATOR,
    WHEELS,
    check_symbols,
    compile_host,
    host_code,
    metal_sources,
    mlx_folders,
    symbols,
)
from tools.kernels.source import (
    Buffer,
    Finding,
    Prepared,
    check_buffers,
    prepare,
    read_buffers,
    rewrite,
)

ROOT = Path(__file__).parents[2]
HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"
KERNEL = """
template <typename T>
[[kernel]] void tested(
    device T* out [[buffer(0)]],
    const device T* in [[buffer(1)]],
    const constant int& count [[buffer(2)]]) {
"""
NAMED = (
    'template [[host_name("tested_float")]] [[kernel]] decltype(tested<float>) tested<float>;\n'
)


def read(folder: Path, source: str) -> tuple[Translation, Prepared]:
    """Read one .metal file of our own."""
    kernels = folder / "own"
    kernels.mkdir()
    (kernels / "t.metal").write_text(source)
    prepared = prepare(folder / "made", kernels)
    (library,) = prepared.libraries
    return translate(prepared, library), prepared


def findings_in(folder: Path, source: str) -> list[Finding]:
    """Check one .metal file of our own."""
    return check_library(*read(folder, source))


def kernel(body: str, before: str = "") -> str:
    """Write a kernel with a body, after other declarations."""
    return kernels([body], before)[0]


def kernels(bodies: Iterable[str], before: str = "") -> tuple[str, list[int]]:
    """Write a kernel for each body; return the line in which each body begins too."""
    source, lines = HEAD + textwrap.dedent(before), []
    for number, body in enumerate(bodies):
        name = f"tested{number or ''}"
        source += KERNEL.replace("tested", name)
        lines.append(source.count("\n") + 1)
        inside = textwrap.indent(textwrap.dedent(body), "  ")
        source += f"{inside}\n}}\n{NAMED.replace('tested', name)}"
    return source, lines


def line_of(source: str, part: str) -> int:
    """Return the line that a part of a source is in."""
    return source[: source.index(part)].count("\n") + 1


@pytest.fixture
def newest_mlx() -> Path:
    """The mlx of Python, in the macOS wheels that all runs in this checkout share."""
    return mlx_folders()[0]


# Address spaces


BEFORE = """
struct Pair {
  int first;
  int get() const { return first; }
  int get_device() const device { return first; }
};
template <typename T>
void fill(device T* to) { to[0] = 1; }
int first(thread const int* of) { return of[0]; }
"""
REFUSED = {
    "device cast to threadgroup": "auto p = (threadgroup float*)out;",
    "device reinterpreted as threadgroup": "auto p = reinterpret_cast<threadgroup T*>(out);",
    "constant cast to device": "auto p = (device int*)&count;",
    "threadgroup passed for device": "threadgroup T x[32];\nfill<T>(x);",
    "thread passed for device": "T x[2];\nfill<T>(x);",
    "const of constant dropped": "constant int* p = &count;",
    "const of device dropped": "device T* p = in;",
    "const of constant dropped from a reference": "constant int& p = count;",
    "constant passed for thread": "first(&count);",
    "constant kept as thread": "thread const int* p = &count;",
    "pointer without address space": "float x = 1;\nfloat* p = &x;",
    "reference without address space": "float x = 1;\nfloat& p = x;",
    "cast without address space": "auto p = (const float*)in;",
    "thread method on a device object": "int x = ((device Pair*)out)->get();",
    "value stored through const": "T x = in[0];\nin[0] = x;",
}
TAKEN = {
    "device to device": "auto p = reinterpret_cast<device int*>(out);\np[0] = count;",
    "threadgroup memory": "threadgroup T x[32];\nthreadgroup T* p = x + 1;\np[0] = in[0];",
    "copies out of device memory": "auto p = (device Pair*)out;\nPair x = p[0];\np[1] = x;",
    "its own method on a device object": "int x = ((device Pair*)out)->get_device();",
    "thread method": "Pair x{1};\nint y = x.get();",
    "thread pointer": "int x[3] = {1};\nfirst(x);",
}


def test_what_metal_refuses_is_found_in_its_line(tmp_path):
    source, lines = kernels(REFUSED.values(), BEFORE)
    findings = findings_in(tmp_path, source)
    last = {line + body.count("\n") for line, body in zip(lines, REFUSED.values(), strict=True)}
    assert {finding.line for finding in findings} == last, findings
    assert all(finding.file.endswith("own/t.metal") for finding in findings)
    assert not any("__" in finding.message for finding in findings)


def test_what_metal_takes_is_taken(tmp_path):
    source, _ = kernels(TAKEN.values(), BEFORE)
    assert findings_in(tmp_path, source) == []


def test_a_mistake_in_a_template_is_found_where_it_is_instantiated(tmp_path):
    """Without its instance the same text says nothing: instances are really made."""
    source = kernel("threadgroup T* p = out + T(1).nothing;")
    assert findings_in(tmp_path, source) != []


def test_a_function_constant_of_each_type_has_a_value(tmp_path):
    before = """
    constant bool flag [[function_constant(3)]];
    constant int size [[function_constant(4)]];
    constant bool both = flag && size != 0;
    """
    assert findings_in(tmp_path, kernel("if (both) {\n  out[0] = size;\n}", before)) == []


def test_rewriting_keeps_the_lines():
    source = (
        "constant bool flag [[function_constant(3)]];\n"
        "  threadgroup float x[2 * 32];\n"
        '  template [[host_name(  \\\n "n")]] [[kernel]] decltype(f<T>) f<T>;\n'
    )
    assert rewrite(source) == (
        "constexpr constant bool flag = true;\n"
        "  threadgroup float (&x)[2 * 32] = "
        "*h2o_threadgroup_variable<threadgroup float[2 * 32], sizeof(float[2 * 32])>();\n"
        '  template __attribute__((annotate("n")))   \\\n   decltype(f<T>) f<T>;\n'
    )


# The language


BODIES = {
    "double": "double x = 1;",
    "cast to double": "out[0] = double(in[0]) * 2;",
    "long double": "long double x = 1;",
    "goto": "goto end;\nend:\nout[0] = 1;",
    "new": "auto p = new int;",
    "malloc": "auto p = malloc(4);",
    "throw": "throw 1;",
    "typeid": "auto t = typeid(int);",
    "thread_local": "thread_local int x = 1;",
    "static variable": "static int x = 1;",
    "lambda": "auto f = [](int x) { return x; };",
    "assembler": 'asm("nop");',
    "array of unknown size": "int x[count];",
}
DECLARATIONS = {
    "virtual": "struct Base { virtual void f() {} };",
    "function pointer": "int call(int (*f)(int)) { return 1; }",
    "variadic function": "void f(int n, ...) {}",
    "try": "void f() { try { } catch (...) { } }",
    "standard header": "#include <vector>",
    "standard C header": "#include <math.h>",
}
RECURSIVE = """
int up(int n);
int down(int n) { return n > 0 ? up(n - 1) : 0; }
int up(int n) { return down(n); }
int itself(int n) { return n > 0 ? itself(n - 1) : 0; }
template <int step>
int fewer(int n) { return n > 0 ? fewer<step>(n - step) : 0; }
"""


def test_each_statement_that_metal_lacks_is_found(tmp_path):
    source, lines = kernels(BODIES.values())
    findings = findings_in(tmp_path, source)
    assert {finding.line for finding in findings} == set(lines), findings
    assert not any("OpenCL" in finding.message for finding in findings)


@pytest.mark.parametrize("name", DECLARATIONS)
def test_a_declaration_that_metal_lacks_is_found(tmp_path, name):
    source = kernel("out[0] = 1;", DECLARATIONS[name] + "\n")
    findings = findings_in(tmp_path, source)
    assert {finding.line for finding in findings} == {line_of(source, DECLARATIONS[name])}, (
        findings
    )


def test_dynamic_cast_is_found(tmp_path):
    before = "struct A {};\nstruct B : A {};\n"
    source = kernel("B b;\nthread A* a = &b;\nauto c = dynamic_cast<thread B*>(a);", before)
    findings = findings_in(tmp_path, source)
    assert [finding.line for finding in findings] == [line_of(source, "dynamic_cast")]


def test_recursion_is_found_in_each_function_that_takes_part(tmp_path):
    source = kernel("out[0] = down(count) + itself(count);", RECURSIVE)
    findings = findings_in(tmp_path, source)
    places = {line_of(source, f"int {name}(int n) {{") for name in ("down", "up", "itself")}
    assert {finding.line for finding in findings} == places
    assert all("recursion" in finding.message for finding in findings)


def test_recursion_of_a_template_is_found(tmp_path):
    source = kernel("out[0] = fewer<4>(count);", RECURSIVE)
    findings = findings_in(tmp_path, source)
    assert line_of(source, "int fewer") in {finding.line for finding in findings}


def test_calls_that_come_to_an_end_are_no_recursion(tmp_path):
    before = "int a(int n) { return n; }\nint b(int n) { return a(n) + a(n + 1); }\n"
    assert findings_in(tmp_path, kernel("out[0] = b(count) + a(1);", before)) == []


def test_literals_without_suffix_are_floats_as_in_metal(tmp_path):
    assert findings_in(tmp_path, kernel("out[0] = 1.5 * in[0] + 1e3;")) == []


def test_constants_of_classes_and_functions_are_allowed(tmp_path):
    before = "struct A { static constant constexpr const int n = 3; };\n"
    body = "static constant constexpr int n = 3;\nout[0] = A::n + n;"
    assert findings_in(tmp_path, kernel(body, before)) == []


# Limits


TWO = """
[[kernel]] void two(
    device float* out [[buffer(31)]],
    const device bool* a [[buffer(4), function_constant(has_a)]], // not [[buffer(9)]]
    const constant int& b [[buffer(4)]],
    uint at [[thread_position_in_grid]]) {}
"""


@pytest.mark.parametrize(("floats", "too_much"), [(8192, 0), (8193, 1)])
def test_threadgroup_memory_may_be_32_kib(tmp_path, floats, too_much):
    findings = findings_in(tmp_path, kernel(f"threadgroup T x[{floats}];\nx[0] = 1;"))
    assert len(findings) == too_much
    for finding in findings:
        assert "tested_float takes 32772 bytes" in finding.message


def test_threadgroup_memory_of_called_functions_counts(tmp_path):
    before = """
    struct Pair { int a; int64_t b; };
    void helper() {
      threadgroup Pair x[3];
      threadgroup int y;
      x[0].a = 1;
      y = 2;
    }
    """
    body = "threadgroup T x[2][3];\nx[0][0] = 1;\nhelper();"
    translation, _ = read(tmp_path, kernel(body, before))
    names = read_names(translation.ir)
    assert names.keys() == {"tested_float"}
    size = threadgroup_bytes(read_calls(translation.ir), names["tested_float"])
    assert size == 2 * 3 * 4 + 3 * 16 + 4


def test_buffers_are_read_with_their_gates():
    assert read_buffers(TWO) == [
        Buffer("two", "out", 31, line=3, gated=False),
        Buffer("two", "a", 4, line=4, gated=True),
        Buffer("two", "b", 4, line=5, gated=False),
    ]


def test_an_index_that_metal_lacks_or_that_is_taken_is_found():
    assert check_buffers(TWO, "t.metal") == [
        Finding("t.metal", 3, "two: buffer 31, but the last is 30"),
        Finding("t.metal", 4, "two: a shares the index 4"),
    ]


# The C++ against mlx's wheel for macOS


START = """
#include "mlx/backend/metal/device.h"
#include "mlx/backend/gpu/copy.h"
namespace mx = mlx::core;
void go(mx::Stream s, mx::array& out) {
  auto& device = mx::metal::device(s.device);
"""


def compiled(mlx: Path, folder: Path, *statements: str) -> list[Finding]:
    """Compile statements that drive MLX, in a folder; return the errors."""
    source = folder / "driver.cpp"
    source.write_text(START + "".join(f"  {line}\n" for line in statements) + "}\n")
    return compile_host(mlx, folder, [source])


WRONG = {
    "device.get_libary();": "no member named 'get_libary'",
    'mx::metal::get_command_encoder("one");': "no viable conversion",
    'device.get_kernel("k", out);': "no matching member function",
    "MTL::Size size(1, 2);": "no matching constructor",
    "device.mtl_device()->newBufer(1);": "no member named 'newBufer'",
    "MTL::DataType type = MTL::DataType::DataTypeBoole;": "DataTypeBoole",
}
"""Statements, and the compiler's words for what is wrong with each."""


def test_a_call_that_mlx_or_metal_does_not_have_is_an_error(newest_mlx, tmp_path):
    errors = compiled(newest_mlx, tmp_path, *WRONG)
    assert [error.line for error in errors] == [*range(7, 7 + len(WRONG))]
    for error, words in zip(errors, WRONG.values(), strict=True):
        assert words in error.message


@pytest.mark.nightly("test_a_function_that_libmlx_does_not_have_is_reported")
def test_a_function_that_libmlx_keeps_to_itself_is_reported(newest_mlx, tmp_path):
    assert compiled(newest_mlx, tmp_path, "out = mx::contiguous_copy_gpu(out, s);") == []
    (finding,) = check_symbols(newest_mlx, tmp_path)
    assert "mlx::core::contiguous_copy_gpu(" in finding.message
    assert "only for libmlx itself" in finding.message


def test_a_function_that_libmlx_does_not_have_is_reported(newest_mlx, tmp_path):
    source = tmp_path / "other.cpp"
    source.write_text(
        "namespace mlx::core { void nowhere(int); }\nvoid f() { mlx::core::nowhere(1); }\n"
    )
    assert compile_host(newest_mlx, tmp_path, [source]) == []
    (finding,) = check_symbols(newest_mlx, tmp_path)
    library = f"mlx-{MLX_VERSION}/libmlx.dylib"
    assert str(finding) == f"{library}: mlx::core::nowhere(int) is missing"


def test_the_wheels_are_of_the_mlx_of_python_and_of_that_in_mlx_swift():
    versions = [wheel.version for wheel in WHEELS if wheel.name == "mlx-metal"]
    assert versions == [MLX_VERSION, pins()["mlx"].version]


@pytest.mark.nightly("test_what_drives_metal_compiles_for_a_mac")
def test_nothing_encodes_for_metal_in_a_simulator(tmp_path):
    *_, of_swift = mlx_folders()
    assert compile_host(of_swift, tmp_path, metal_sources(), SIMULATOR) == []
    compiled = [symbol for path in tmp_path.glob("*.o") for symbol in symbols(path)]
    assert not [name for _, name in compiled if "mlx4core5metal" in name]
    # Which path a call takes is asked once for all builds.
    assert [kind for kind, name in compiled if "3h2o5metal8supports" in name] == ["T"]


def test_what_drives_metal_compiles_for_a_mac(newest_mlx, tmp_path):
    assert compile_host(newest_mlx, tmp_path, metal_sources()) == []


# All together


def test_the_kernels_of_this_checkout_pass_each_instance_under_its_name(tmp_path, monkeypatch):
    translations = []

    def watched(prepared, library):
        translations.append(translate(prepared, library))
        return translations[-1]

    monkeypatch.setattr(compiler, "translate", watched)
    assert metal_rules(prepare(tmp_path)) == []
    names = [name for translation in translations for name in read_names(translation.ir)]
    assert sorted(names) == sorted(
        text.instance_name(kernel.name, arguments)
        for kernel in text.kernels()
        for arguments in kernel.instances
    )


@pytest.mark.nightly("test_what_drives_metal_compiles_for_a_mac")
def test_all_of_the_core_compiles_and_links_for_a_mac(tmp_path):
    assert host_code(tmp_path) == []


def test_a_bad_kernel_and_a_bad_buffer_are_found_together(tmp_path):
    build_tree(tmp_path, {"t.metal": kernel("double x = 1;\nout[0] = x;"), "two.h": TWO})
    findings = metal_rules(prepare(tmp_path / "made", tmp_path))
    assert [Path(finding.file).name for finding in findings] == ["t.metal", "two.h", "two.h"]


def test_errors_in_the_cxx_fail_and_leave_symbols_unchecked(tmp_path, monkeypatch):
    source = tmp_path / "driver.cpp"
    source.write_text("int f() { return nothing; }\n")
    monkeypatch.setattr(macos, "host_sources", lambda: [source])
    monkeypatch.setattr(macos, "metal_sources", list)
    (finding,) = host_code(tmp_path / "made")
    assert "nothing" in finding.message
