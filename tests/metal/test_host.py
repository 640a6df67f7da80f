"""What the host runs, and what it refuses: each error has a kernel that provokes it."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from tests.metal import metal_rule
from tests.metal.backend import ROOT, load, make_step, run

ONE = (1, 1, 1)
ROW = ([128], mx.float32)
TWO = mx.array([2.0]).view(mx.int32).item()  # the bytes of a float


def ones(count: int = 128) -> mx.array:
    array = mx.ones((count,))
    mx.eval(array)
    return array


def copy(host, count: int = 128, **changes):
    """A right call of `copy`, with changes that may make it wrong."""
    call = {"arrays": {0: mx.arange(128.0)}, "outputs": {1: ROW}, "bytes": {2: [count]}}
    return run(host, "copy", (2, 1, 1), (64, 1, 1), **(call | changes))


def copy_step(host, source: str, target: str, count: int = 128):
    return make_step(
        host, "copy", (count // 64, 1, 1), (64, 1, 1), inputs={0: source}, outputs={1: target},
        bytes={2: [count]},
    )  # fmt: skip


def scale_step(host, target: str, **options):
    return make_step(
        host, "scale", (2, 1, 1), (64, 1, 1), outputs={0: target}, bytes={1: [128, TWO]},
        **options,
    )  # fmt: skip


def run_program(host, steps, scratch=None, **outputs):
    """What these dispatches of one evaluation make of x, which is all ones."""
    scratch = {name: (*ROW, is_temporary) for name, is_temporary in (scratch or {}).items()}
    outputs = {name: (*ROW, shared) for name, shared in outputs.items()}
    results = host.run_program(steps, {"x": ones()}, outputs, scratch)
    mx.eval(list(results.values()))
    return results


@pytest.mark.parametrize("bits", [4, 8])
def test_mlx_own_quantization_kernel_has_the_rule_that_tests_compare_rows_with(host, bits):
    values = mx.random.normal((40, 64), key=mx.random.key(bits))
    values[:2] = mx.stack([-mx.abs(values[0]), mx.round(values[1] * 4) / 4])
    words, scales, biases = metal_rule.quantize(values, 64, bits)
    out = run(
        host, f"upstream_quantize_float_64_{bits}", (40 * 32, 1, 1), (64, 1, 1), {0: values},
        {1: ([40, 8 * bits], mx.uint8), 2: ([40, 1], mx.float32), 3: ([40, 1], mx.float32)},
        grid_in_threads=True,
    )  # fmt: skip
    for array, expected in zip(out.values(), (words, scales, biases), strict=True):
        assert mx.array_equal(array.view(expected.dtype), expected).item()


def test_lanes_exchange_values(host):
    out = np.array(run(host, "exchange", ONE, (32, 1, 1), {}, {0: ([64], mx.int32)})[0])
    assert np.array_equal(out[:31], np.arange(1, 32))
    assert np.array_equal(out[32:], np.full(32, 31 + 0 + 31 * 16))


def test_the_edge_of_a_grid_of_threads_has_smaller_groups(host):
    out = run(
        host, "where_threads_are", (5, 3, 1), (4, 2, 1), {}, {0: ([30], mx.uint32)},
        grid_in_threads=True,
    )[0]  # fmt: skip
    sizes = [[8, 8, 8, 8, 2], [8, 8, 8, 8, 2], [4, 4, 4, 4, 1]]
    assert np.array(out).reshape(3, 5, 2)[:, :, 1].tolist() == sizes
    assert np.array(out)[::2].tolist() == list(range(15))


def test_bindings_have_offsets(host):
    out = copy(host, 100, offsets={0: 4 * 28}, outputs={1: ([100], mx.float32)})
    assert out[1].tolist() == list(range(28, 128))


def test_counters_tell_the_bytes_that_each_threadgroup_fetches_and_writes(host):
    copy(host, 100, arrays={0: mx.arange(128.0), 2: mx.array([100])}, bytes={})
    (count,) = host.counters()
    assert (count["kernel"], count["grid"], count["barrier_before"]) == (
        "copy",
        (2, 1, 1),
        False,
    )
    assert count["buffers"] == {0: (400, 0), 1: (0, 400), 2: (8, 0)}


def test_a_function_constant_has_the_value_that_was_set(host):
    outputs = {0: ([1], mx.float32)}
    for flag, number in ((True, 1), (False, 2)):
        assert (
            run(host, "write_flag", ONE, ONE, {}, outputs, constants={100: flag})[0] == number
        )
    count = run(host, "write_count", ONE, ONE, {}, {0: ([1], mx.int32)}, constants={101: -5})
    assert count[0] == -4


def test_a_hash_name_stands_for_one_set_of_constants(host):
    call = (host, "write_flag", ONE, ONE, {}, {0: ([1], mx.float32)})
    run(*call, constants={100: True}, hash_name="careless")
    with pytest.raises(RuntimeError, match="careless of write_flag already stands"):
        run(*call, constants={100: False}, hash_name="careless")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arrays": {}}, r"copy: nothing is bound at index 0 \(from\)"),
        ({"arrays": {0: 1, 5: 1}}, "copy: index 5 is bound, but no parameter has it"),
        ({"arrays": {0: 1, 31: 1}}, "There is no index 31; Metal has 0 to 30"),
        ({"bytes": {2: [1, 2]}}, r"index 2 \(length\) takes 4 bytes, but 8 are set"),
        ({"bytes": {2: [0] * 1025}}, "4100 bytes are set at index 2; Metal takes at most 4096"),
        ({"bytes": {1: [0], 2: [1]}, "outputs": {5: ROW}}, "written by the kernel, but bytes"),
    ],
)
def test_bindings_that_are_not_the_kernels_parameters_are_refused(host, changes, message):
    arrays = {index: ones() for index in changes.get("arrays", {0: 1})}
    with pytest.raises(ValueError, match=message):
        copy(host, **{**changes, "arrays": arrays})


def test_an_array_that_is_too_small_for_a_struct_is_refused(host):
    with pytest.raises(ValueError, match=r"index 1 \(header\) takes 8 bytes, but the array"):
        run(host, "scale", ONE, ONE, {1: mx.array([1])}, {0: ([1], mx.float32)})


def test_a_gated_parameter_is_bound_exactly_when_its_constant_is_on(host):
    call = (host, "gated", ONE, ONE)
    out = {1: ([1], mx.float32)}
    assert run(*call, {0: ones()}, out, constants={100: True})[1].item() == 1
    with pytest.raises(ValueError, match=r"nothing is bound at index 0 \(from\)"):
        run(*call, {}, out, constants={100: True})
    for constants in ({}, {100: False}):
        with pytest.raises(ValueError, match="but the function constant flag is off"):
            run(*call, {0: ones()}, out, constants=constants)
        with pytest.raises(RuntimeError, match=r"of buffer 0 \(from\), where nothing is bound"):
            run(*call, {}, out, constants=constants)


def test_an_unknown_kernel_is_refused(host):
    with pytest.raises(ValueError, match="There is no kernel copi"):
        run(host, "copi", ONE, ONE, {}, {0: ROW})


@pytest.mark.parametrize(("kernel", "most"), [("copy", 1024), ("at_most_64", 64)])
def test_too_many_threads_are_refused(host, kernel, most):
    with pytest.raises(ValueError, match=rf"{kernel}: a threadgroup of 2048 threads; .*{most}"):
        run(host, kernel, ONE, (32, 64, 1), {}, {0: ([1], mx.float32)})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"arrays": {0: ones(100)}},
            r"copy: threadgroup \(1, 0, 0\), thread 36: reads 4 bytes at byte 400 of "
            r"buffer 0 \(from\), which has 400",
        ),
        (
            {"outputs": {1: ([64], mx.float32)}},
            r"writes 4 bytes at byte 256 of buffer 1 \(to\)",
        ),
    ],
)
def test_an_access_outside_of_a_buffer_is_an_error(host, changes, message):
    with pytest.raises(RuntimeError, match=message):
        copy(host, **changes)
    assert copy(host)[1].tolist() == list(range(128))  # what follows runs


@pytest.mark.parametrize(
    ("kernel", "threads", "message"),
    [
        ("read_before", 1, r"reads 4 bytes at byte -4 of buffer 0 \(from\), which has 512"),
        ("read_misaligned", 1, "reads 4 bytes at an address that is no multiple of 4"),
        ("write_to", 1, r"writes buffer 0 \(target\), bound as an input"),
        ("write_flag", 1, r"reads function constant 100 \(flag\), which is not defined"),
        ("write_count", 1, "which is defined with another type"),
        (
            "overrun_threadgroup_memory",
            64,
            "byte 128 of threadgroup variable values, which has",
        ),
        ("too_much_threadgroup_memory", 64, "needs 32772 bytes of threadgroup memory"),
        (
            "barrier_for_some",
            64,
            "waits at a threadgroup barrier|barrier that other threads en",
        ),
        ("two_barriers", 64, "is at another threadgroup barrier than thread"),
        ("sum_for_some", 64, "ends while thread 0 of its simdgroup waits in simd_sum"),
        ("two_sums", 64, "is in simd_sum while thread 0 .* waits in another simd_sum"),
    ],
)
def test_wrong_accesses_of_a_thread_are_errors(host, kernel, threads, message):
    reads = kernel in ("read_before", "read_misaligned", "write_to")
    constants = {101: True} if kernel == "write_count" else {}
    arrays, outputs = ({0: ones()}, {1: ROW}) if reads else ({}, {0: ROW})
    with pytest.raises(RuntimeError, match=rf"{kernel}: threadgroup .*({message})"):
        run(host, kernel, ONE, (threads, 1, 1), arrays, outputs, constants=constants)


def test_threadgroups_that_write_the_same_byte_are_an_error(host):
    with pytest.raises(RuntimeError, match=r"another both touch byte 0 of buffer 0 \(to\)"):
        run(host, "all_write_the_first", (2, 1, 1), ONE, {}, {0: ([1], mx.float32)})


def test_a_missing_barrier_shows_when_threads_run_in_reverse(host):
    call = (ONE, (64, 1, 1), {}, {0: ([64], mx.float32)})
    expected = run(host, "pass_on", *call)[0].tolist()
    assert run(host, "pass_on_without_barrier", *call)[0].tolist() == expected
    host.set_order("reverse")
    assert run(host, "pass_on", *call)[0].tolist() == expected
    with pytest.raises(RuntimeError, match=r"values, which no thread .* has written"):
        run(host, "pass_on_without_barrier", *call)


def test_a_barrier_comes_where_mlx_puts_one(host):
    steps = [copy_step(host, "x", "y"), copy_step(host, "x", "z"), scale_step(host, "y")]
    results = run_program(host, steps, y="", z="")
    assert results["y"].tolist() == [2.0] * 128
    assert [count["barrier_before"] for count in host.counters()] == [False, False, True]


@pytest.mark.parametrize("barrier", [True, False])
def test_a_write_that_no_barrier_orders_after_a_read_is_an_error(host, barrier):
    steps = [copy_step(host, "x", "y"), scale_step(host, "x2", barrier=barrier)]
    run_program(host, steps, x2="x", y="")
    race = (
        "scale writes byte 0 of buffer 0 (values), which copy reads with no barrier in between."
    )
    assert host.take_errors() == ([] if barrier else [race])


def test_scratch_that_nobody_keeps_alive_is_an_error(host):
    steps = [copy_step(host, "x", "s"), copy_step(host, "s", "y")]
    assert run_program(host, steps, {"s": True}, y="")["y"].tolist() == [1.0] * 128
    with pytest.raises(RuntimeError, match="copy: the scratch buffer at index 1 is not kept"):
        run_program(host, steps, {"s": False}, y="")


def test_a_read_of_what_nothing_has_written_is_an_error(host):
    run_program(
        host, [copy_step(host, "x", "s", 64), copy_step(host, "s", "y")], {"s": True}, y=""
    )
    unwritten = "copy reads byte 256 of buffer 0 (from), which nothing has written."
    assert host.take_errors() == [unwritten]


@pytest.mark.parametrize(
    ("architecture", "commits"), [("applegpu_g16p", 2), ("applegpu_g16g", 1)]
)
def test_a_phone_commits_after_more_than_20_dispatches(host, architecture, commits):
    host.set_architecture(architecture)
    host.commit()
    before = host.commits()
    for _ in range(42):
        run_program(host, [copy_step(host, "x", "y")], y="")
    assert host.commits() - before == commits
    host.commit()


@pytest.mark.parametrize(("home", "count"), [("tests/metal/host", 4), ("elsewhere", 1)])
def test_a_build_folder_of_another_checkout_is_emptied(tmp_path, home, count):
    builder = load("h2o_metal_host_build", ROOT / "tests/metal/host/build.py")
    (tmp_path / "CMakeFiles").mkdir()
    for name in (".lock", "build.ninja"):
        (tmp_path / name).touch()
    line = f"CMAKE_HOME_DIRECTORY:INTERNAL={ROOT / home}\n"
    (tmp_path / "CMakeCache.txt").write_text(line)
    builder.discard_other_checkouts(tmp_path)
    assert len(list(tmp_path.iterdir())) == count
