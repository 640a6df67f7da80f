"""What MLX's kernels cost with our edits: nothing when scores are off, a store when on.

The kernels are compiled as C++ by clang with their function constants baked in, as
Metal does when it makes a pipeline, and the optimized LLVM IR is compared. In Metal an
argument whose function constant is off does not exist. C++ has no such arguments, so
they are taken out of the signatures of both kernels, upstream's and the edited one, and
become local values that nothing is known about: `absent` in opaque_metal.h.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from h2o_pack.kernels.constants import bake, function_constants
from h2o_pack.kernels.sources import patch
from tests.metal.mlx_headers import header

HERE = Path(__file__).parent
FLAGS = ["-std=c++20", "-ffast-math", "-S", "-emit-llvm", "-Wno-unknown-attributes"]
# Loops stay as they are written, so that each place of the source is one of the IR.
ONE_BY_ONE = ["-fno-unroll-loops", "-fno-vectorize", "-fno-slp-vectorize"]

VERSIONS = ("0.31", "0.32")
TYPES = ("float", "half", "bfloat")
HEAD_DIMS = (64, 96, 128, 256)
# query heads of a key head, and how many of them a group of lanes serves
GQA = ((8, 4), (12, 4), (16, 2))
CASES: dict[str, tuple[str, ...]] = {
    "no mask": (),
    "bool mask": ("has_mask", "bool_mask"),
    "float mask": ("has_mask", "float_mask"),
    "causal": ("do_causal",),
    "sinks": ("has_sinks",),
    "sinks, float mask, transposed": (
        "has_mask",
        "float_mask",
        "has_sinks",
        "query_transposed",
    ),
}
# How many places each kernel has where a score is complete.
SITES = {
    "0.31": {"sdpa_vector": 1, "sdpa_vector_2pass_1": 1},
    "0.32": {"sdpa_vector": 1, "sdpa_vector_2pass_1": 2, "sdpa_vector_2pass_1_gqa": 1},
}

KERNEL = re.compile(r"\[\[kernel\]\] void \w+\((?P<parameters>[^{]*)\) \{\n")
GATED = re.compile(
    r"^    (?P<type>[^\[\]]*?)(?P<name>\w+)\s*"
    r"\[\[buffer\(\d+\), function_constant\((?P<gate>\w+)\)\]\],\n",
    re.MULTILINE,
)

every_version = pytest.mark.parametrize("version", VERSIONS)
every_case = pytest.mark.parametrize("case", CASES)


@dataclass(frozen=True)
class Function:
    """A kernel in LLVM IR: how often it loads, and how often it stores what type."""

    loads: int
    stores: Counter[str]


def instances(version: str) -> list[tuple[str, str]]:
    """Return every (kernel, template arguments) that is compiled."""
    found = [
        (kernel, f"{dtype}, {dim}, {dim}")
        for kernel in ("sdpa_vector", "sdpa_vector_2pass_1")
        for dtype in TYPES
        for dim in HEAD_DIMS
    ]
    if "sdpa_vector_2pass_1_gqa" in SITES[version]:
        found += [
            ("sdpa_vector_2pass_1_gqa", f"{dtype}, {dim}, {dim}, {group}, {share}")
            for dtype in TYPES
            for dim in HEAD_DIMS
            for group, share in GQA
        ]
    return found


def without_gated(text: str, on: frozenset[str]) -> str:
    """Take the arguments whose function constants are off out of all signatures."""

    def stripped(kernel: re.Match[str]) -> str:
        gone = [each for each in GATED.finditer(kernel["parameters"]) if each["gate"] not in on]
        head = kernel[0]
        for each in gone:
            head = head.replace(each[0], "")
        locals_ = "".join(
            f"  {each['type']}{each['name']} = absent<{each['type']}>();\n" for each in gone
        )
        return head + locals_

    return KERNEL.sub(stripped, text)


def source(text: str, version: str, case: str, values: Mapping[str, str]) -> str:
    """Return a C++ file with every instance of a header's kernels for a case."""
    on = CASES[case]
    known = {
        constant.name: str(constant.name in on).lower()
        for constant in function_constants(text)
        if constant.name not in ("blocks", "output_scores")
    }
    gates = {*on, "h2o_emit"} if values.get("output_scores") == "true" else {*on}
    text = bake(
        text.replace("#include <metal_simdgroup>", ""), {**known, "blocks": "128"} | values
    )
    made = [f"{kernel}<{arguments}>" for kernel, arguments in instances(version)]
    lines = [f"template decltype({each}) {each};" for each in made]
    return "\n".join(
        ['#include "opaque_metal.h"', without_gated(text, frozenset(gates)), *lines, ""]
    )


def optimized(code: str, *flags: str) -> str:
    """Return the LLVM IR that clang makes of a C++ file."""
    clang = shutil.which("clang++")
    assert clang, "clang++ is not on PATH; Swift's toolchain has one, and so has Debian's clang"
    command = [clang, *FLAGS, *flags, "-I", str(HERE), "-x", "c++", "-", "-o", "-"]
    done = subprocess.run(command, input=code, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@cache
def compiled(version: str, variant: str, case: str, *flags: str) -> str:
    """Return the IR of upstream's kernels, or of the edited ones with scores so or so."""
    if variant == "upstream":
        code = source(header(version), version, case, {})
    else:
        values = {} if variant == "undefined" else {"output_scores": variant}
        code = source(patch(header(version), version), version, case, values)
    return optimized(code, *flags)


def functions(text: str) -> list[Function]:
    """Return what each function of an IR loads and stores, in their order."""
    return [
        Function(
            len(re.findall(r"= load ", body)),
            Counter(re.findall(r"^  store (\w+) ", body, re.MULTILINE)),
        )
        for body in bodies(text)
    ]


def bodies(text: str) -> list[str]:
    """Return the functions of an IR."""
    return re.findall(r"^define .*?^\}", text, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module", autouse=True)
def compile_side_by_side() -> None:
    """Use all cores: what the tests ask for is then there."""
    jobs = [
        (version, variant, case, "-O3")
        for version in VERSIONS
        for variant in ("upstream", "undefined", "false")
        for case in CASES
    ]
    counted = [
        (version, variant, case, "-O2", *ONE_BY_ONE)
        for version in VERSIONS
        for variant in ("upstream", "true")
        for case in CASES
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda job: compiled(*job), jobs + counted))


@every_case
@pytest.mark.parametrize("variant", ["undefined", "false"])
@every_version
def test_without_scores_the_edited_kernels_compile_to_upstreams_code(version, variant, case):
    ours = compiled(version, variant, case, "-O3")
    assert ours.count("\ndefine ") == len(instances(version))
    assert ours == compiled(version, "upstream", case, "-O3")


@every_case
@every_version
def test_with_scores_each_place_of_a_score_has_a_store_more_and_no_load(version, case):
    upstream = functions(compiled(version, "upstream", case, "-O2", *ONE_BY_ONE))
    ours = functions(compiled(version, "true", case, "-O2", *ONE_BY_ONE))
    hides = {"bool_mask", "float_mask", "do_causal"} & set(CASES[case])
    for (kernel, arguments), before, after in zip(
        instances(version), upstream, ours, strict=True
    ):
        assert after.loads == before.loads, (kernel, arguments)
        assert not before.stores - after.stores, (kernel, arguments)
        added = after.stores - before.stores
        seen = SITES[version][kernel]
        hidden = seen if hides and not kernel.endswith("gqa") else 0
        assert added.total() == seen + hidden, (kernel, arguments)
        assert set(added) <= {"float", "i32"}, (kernel, arguments)


@every_version
def test_fast_math_leaves_the_bits_of_minus_infinity_in(version):
    text = compiled(version, "true", "float mask", "-O2", *ONE_BY_ONE)
    for (kernel, arguments), body in zip(instances(version), bodies(text), strict=True):
        told = len(re.findall(r"icmp eq i32 %\d+, -8388608", body))
        expected = 0 if kernel.endswith("gqa") else SITES[version][kernel]
        assert told == expected, (kernel, arguments)


@every_version
def test_a_store_that_ignored_the_constant_would_be_noticed(version):
    careless = patch(header(version), version).replace("h2o_emit && simd_lid", "simd_lid")
    code = source(careless, version, "no mask", {"output_scores": "false"})
    assert optimized(code, "-O3") != compiled(version, "upstream", "no mask", "-O3")


@every_version
def test_a_store_that_also_loads_would_be_noticed(version):
    careless = re.sub(r"(scores\[size_t.*\]) =", r"\1 +=", patch(header(version), version))
    code = source(careless, version, "no mask", {"output_scores": "true"})
    ours = functions(optimized(code, "-O2", *ONE_BY_ONE))
    upstream = functions(compiled(version, "upstream", "no mask", "-O2", *ONE_BY_ONE))
    assert all(after.loads > before.loads for before, after in zip(upstream, ours, strict=True))
