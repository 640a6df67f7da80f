"""Pointers that Metal refuses are refused here, each in its line."""

from __future__ import annotations

from interface import kernel_text as text
from tests.metal.checking import clang, kernel, kernels, read
from tools.kernels.compiler import check_address_spaces, read_names, translate
from tools.kernels.source import prepare, rewrite

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
    found = check_address_spaces(*read(tmp_path, source))
    last = {line + body.count("\n") for line, body in zip(lines, REFUSED.values(), strict=True)}
    assert {finding.line for finding in found} == last, found
    assert all(finding.file.endswith("own/t.metal") for finding in found)
    assert not any("__" in finding.message for finding in found)


def test_what_metal_takes_is_taken(tmp_path):
    source, _ = kernels(TAKEN.values(), BEFORE)
    assert check_address_spaces(*read(tmp_path, source)) == []


def test_a_mistake_in_a_template_is_found_where_it_is_instantiated(tmp_path):
    """Without its instance the same text says nothing: instances are really made."""
    source = kernel("threadgroup T* p = out + T(1).nothing;")
    assert check_address_spaces(*read(tmp_path, source)) != []


def test_a_function_constant_of_each_type_has_a_value(tmp_path):
    before = """
    constant bool flag [[function_constant(3)]];
    constant int size [[function_constant(4)]];
    constant bool both = flag && size != 0;
    """
    source = kernel("if (both) {\n  out[0] = size;\n}", before)
    assert check_address_spaces(*read(tmp_path, source)) == []


def test_rewriting_keeps_the_lines():
    text = (
        "constant bool flag [[function_constant(3)]];\n"
        "  threadgroup float x[2 * 32];\n"
        '  template [[host_name(  \\\n "n")]] [[kernel]] decltype(f<T>) f<T>;\n'
    )
    assert rewrite(text) == (
        "constexpr constant bool flag = true;\n"
        "  threadgroup float (&x)[2 * 32] = "
        "*h2o_threadgroup_variable<threadgroup float[2 * 32], sizeof(float[2 * 32])>();\n"
        '  template __attribute__((annotate("n")))   \\\n   decltype(f<T>) f<T>;\n'
    )


def test_each_instance_is_compiled_under_its_name(tmp_path):
    prepared = prepare(tmp_path)
    names: list[str] = []
    for library in prepared.libraries:
        names += read_names(translate(prepared, library, clang()).ir)
    assert sorted(names) == sorted(
        text.instance_name(kernel.name, arguments)
        for kernel in text.kernels()
        for arguments in kernel.instances
    )
