"""What Metal lacks of C++ is refused; what it has is not."""

from __future__ import annotations

import pytest

from tests.metal.checking import kernel, kernels, line_of, read
from tools.kernels.compiler import check_language

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
    found = check_language(*read(tmp_path, source))
    assert {finding.line for finding in found} == set(lines), found
    assert not any("OpenCL" in finding.message for finding in found)


@pytest.mark.parametrize("name", DECLARATIONS)
def test_a_declaration_that_metal_lacks_is_found(tmp_path, name):
    source = kernel("out[0] = 1;", DECLARATIONS[name] + "\n")
    found = check_language(*read(tmp_path, source))
    assert {finding.line for finding in found} == {line_of(source, DECLARATIONS[name])}, found


def test_dynamic_cast_is_found(tmp_path):
    before = "struct A {};\nstruct B : A {};\n"
    source = kernel("B b;\nthread A* a = &b;\nauto c = dynamic_cast<thread B*>(a);", before)
    found = check_language(*read(tmp_path, source))
    assert [finding.line for finding in found] == [line_of(source, "dynamic_cast")]


def test_recursion_is_found_in_each_function_that_takes_part(tmp_path):
    source = kernel("out[0] = down(count) + itself(count);", RECURSIVE)
    found = check_language(*read(tmp_path, source))
    places = {line_of(source, f"int {name}(int n) {{") for name in ("down", "up", "itself")}
    assert {finding.line for finding in found} == places
    assert all("recursion" in finding.message for finding in found)


def test_recursion_of_a_template_is_found(tmp_path):
    source = kernel("out[0] = fewer<4>(count);", RECURSIVE)
    found = check_language(*read(tmp_path, source))
    assert line_of(source, "int fewer") in {finding.line for finding in found}


def test_calls_that_come_to_an_end_are_no_recursion(tmp_path):
    before = "int a(int n) { return n; }\nint b(int n) { return a(n) + a(n + 1); }\n"
    assert check_language(*read(tmp_path, kernel("out[0] = b(count) + a(1);", before))) == []


def test_literals_without_suffix_are_floats_as_in_metal(tmp_path):
    assert check_language(*read(tmp_path, kernel("out[0] = 1.5 * in[0] + 1e3;"))) == []


def test_constants_of_classes_and_functions_are_allowed(tmp_path):
    before = "struct A { static constant constexpr const int n = 3; };\n"
    body = "static constant constexpr int n = 3;\nout[0] = A::n + n;"
    assert check_language(*read(tmp_path, kernel(body, before))) == []
