"""What the host runs, and what it refuses: each error has a kernel that provokes it."""

from __future__ import annotations

import struct

import mlx.core as mx
import numpy as np
import pytest

from tests.metal.backend import ROOT, load

ONE_GROUP = (1, 1, 1)
FLOAT = mx.float32


def ints(*values: int) -> bytes:
    return struct.pack(f"{len(values)}i", *values)


def copy(host, count: int = 128, **changes):
    """A right call of `copy`, with changes that may make it wrong."""
    call = {
        "kernel": "copy",
        "grid": (2, 1, 1),
        "group": (64, 1, 1),
        "arrays": {0: mx.arange(128, dtype=FLOAT)},
        "outputs": {1: ([128], FLOAT)},
        "data": {2: ints(count)},
    }
    return host.run(**(call | changes))


def copy_step(host, source: str, target: str, **options):
    return host.Step(
        "copy", (2, 1, 1), (64, 1, 1), inputs={0: source}, outputs={1: target},
        data={2: ints(128)}, **options,
    )  # fmt: skip


def scale_step(host, target: str, **options):
    header = struct.pack("if", 128, 2.0)
    return host.Step(
        "scale", (2, 1, 1), (64, 1, 1), outputs={0: target}, data={1: header}, **options
    )


def ones() -> mx.array:
    array = mx.ones((128,), dtype=FLOAT)
    mx.eval(array)
    return array


def spec(host, **options):
    return host.ArraySpec([128], FLOAT, **options)


@pytest.mark.parametrize("bits", [4, 8])
def test_mlx_own_quantization_kernel_rounds_as_it_says(host, bits):
    rng = np.random.default_rng(bits)
    x = rng.normal(size=(4, 64)).astype(np.float32)
    threads = x.size // 2  # two values of a group of 64 each
    out = host.run(
        f"upstream_quantize_float_64_{bits}", (threads, 1, 1), (64, 1, 1), {0: mx.array(x)},
        {1: ([x.size * bits // 8], mx.uint8), 2: ([4], FLOAT), 3: ([4], FLOAT)},
        grid_in_threads=True,
    )  # fmt: skip
    low, high = x.min(axis=1), np.maximum(x.max(axis=1), 0)
    bins = np.float32(2**bits - 1)
    scale = np.maximum((high - low) / bins, np.float32(1e-7))
    from_low = np.abs(low) > np.abs(high)
    scale = np.where(from_low, scale, -scale)
    edge = np.where(from_low, low, high)
    scale = edge / np.trunc(edge / scale + np.copysign(np.float32(0.5), edge / scale))
    steps = (x - edge[:, None]) / scale[:, None]
    words = np.minimum(np.floor(steps + np.float32(0.5)), bins).astype(np.uint8)
    packed = words if bits == 8 else words[:, ::2] | (words[:, 1::2] << 4)
    assert np.array_equal(np.array(out[1]), packed.ravel())
    assert np.array_equal(np.array(out[2]), scale)
    assert np.array_equal(np.array(out[3]), edge)


def test_lanes_exchange_values(host):
    out = np.array(host.run("shuffles", ONE_GROUP, (32, 1, 1), {}, {0: ([128], mx.int32)})[0])
    lanes = np.arange(32)
    assert np.array_equal(out[:31], lanes[1:])
    assert np.array_equal(out[32:64], lanes ^ 5)
    assert np.array_equal(out[64:96], lanes.cumsum())
    assert np.array_equal(out[96:], np.full(32, 31))


def test_the_edge_of_a_grid_of_threads_has_smaller_groups(host):
    out = host.run(
        "where_threads_are", (5, 3, 1), (4, 2, 1), {}, {0: ([30], mx.uint32)},
        grid_in_threads=True,
    )[0]  # fmt: skip
    sizes = [[8, 8, 8, 8, 2], [8, 8, 8, 8, 2], [4, 4, 4, 4, 1]]
    assert np.array(out).reshape(3, 5, 2)[:, :, 1].tolist() == sizes
    assert np.array(out)[::2].tolist() == list(range(15))


def test_bindings_have_offsets(host):
    out = copy(host, 100, offsets={0: 4 * 28}, outputs={1: ([100], FLOAT)})
    assert out[1].tolist() == list(range(28, 128))


def test_counters_tell_every_load_and_store_by_buffer(host):
    copy(host, 100, arrays={0: mx.arange(128, dtype=FLOAT), 2: mx.array([100])}, data={})
    (count,) = host.counters()
    assert (count["kernel"], count["threads"], count["group"], count["barrier_before"]) == (
        "copy", (128, 1, 1), (64, 1, 1), False
    )  # fmt: skip
    source, target, length = (count["buffers"][i] for i in range(3))
    none = {"loads": 0, "stores": 0, "bytes_loaded": 0, "bytes_stored": 0, "read": 0,
            "written": 0, "shares": None}  # fmt: skip
    assert source == none | {"name": "from", "loads": 100, "bytes_loaded": 400, "read": 400}
    assert target == none | {"name": "to", "stores": 100, "bytes_stored": 400, "written": 400}
    # All 128 threads read it, but each of two threadgroups fetches it once.
    assert length == none | {"name": "length", "loads": 128, "bytes_loaded": 512, "read": 8}


def test_a_function_constant_has_the_value_that_was_set(host):
    out = {0: ([1], FLOAT)}
    for value, expected in ((True, 1), (False, 2)):
        constants = {100: value}
        made = host.run("write_flag", ONE_GROUP, ONE_GROUP, {}, out, constants=constants)
        assert made[0].item() == expected
        made = host.run(
            "write_flag_if_defined", ONE_GROUP, ONE_GROUP, {}, out, constants=constants
        )
        assert made[0].item() == expected
    count = host.run(
        "write_count", ONE_GROUP, ONE_GROUP, {}, {0: ([1], mx.int32)}, constants={101: -5}
    )
    assert count[0].item() == -4


def test_an_undefined_function_constant_may_be_asked_for_but_not_read(host):
    out = {0: ([1], FLOAT)}
    made = host.run("write_flag_if_defined", ONE_GROUP, ONE_GROUP, {}, out)
    assert made[0].item() == 2
    with pytest.raises(
        RuntimeError,
        match=r"write_flag: threadgroup \(0, 0, 0\), thread 0: reads function constant 100 "
        r"\(flag\), which is not defined",
    ):
        host.run("write_flag", ONE_GROUP, ONE_GROUP, {}, out)


def test_a_function_constant_of_another_type_is_refused(host):
    with pytest.raises(RuntimeError, match="defined with another type"):
        host.run(
            "write_count", ONE_GROUP, ONE_GROUP, {}, {0: ([1], mx.int32)},
            constants={101: 2.0},
        )  # fmt: skip


def test_a_hash_name_stands_for_one_set_of_constants(host):
    call = ("write_flag", ONE_GROUP, ONE_GROUP, {}, {0: ([1], FLOAT)})
    host.run(*call, constants={100: True}, hash_name="careless")
    with pytest.raises(
        RuntimeError, match="The hash name careless of write_flag already stands"
    ):
        host.run(*call, constants={100: False}, hash_name="careless")


@pytest.mark.parametrize(
    ("bound", "data", "message"),
    [
        ((), ints(1), r"copy: nothing is bound at index 0 \(from\)"),
        ((0, 5), ints(1), "copy: index 5 is bound, but no parameter has it"),
        ((0, 31), ints(1), "copy: there is no index 31; Metal has 0 to 30"),
        ((0,), ints(1, 2), r"copy: index 2 \(length\) takes 4 bytes, but 8 are set"),
        ((0,), bytes(4100), "4100 bytes are set at index 2; Metal takes at most 4096"),
    ],
)
def test_bindings_that_are_not_the_kernels_parameters_are_refused(host, bound, data, message):
    with pytest.raises(ValueError, match=message):
        copy(host, arrays={index: ones() for index in bound}, data={2: data})


def test_an_array_that_is_too_small_for_a_struct_is_refused(host):
    with pytest.raises(ValueError, match=r"index 1 \(header\) takes 8 bytes, but the array"):
        host.run(
            "scale", ONE_GROUP, ONE_GROUP, {1: mx.array([1])}, {0: ([1], FLOAT)},
        )  # fmt: skip


def test_bytes_cannot_be_written(host):
    with pytest.raises(ValueError, match="is written by the kernel, but bytes are set"):
        host.run("write_to", ONE_GROUP, ONE_GROUP, {}, {1: ([1], FLOAT)}, {0: bytes(4)})


def test_a_gated_parameter_is_bound_exactly_when_its_constant_is_on(host):
    call = ("gated", ONE_GROUP, ONE_GROUP)
    out = {1: ([1], FLOAT)}
    assert host.run(*call, {0: ones()}, out, constants={100: True})[1].item() == 1
    with pytest.raises(ValueError, match=r"nothing is bound at index 0 \(from\)"):
        host.run(*call, {}, out, constants={100: True})
    for constants in ({}, {100: False}):
        with pytest.raises(ValueError, match="but the function constant flag is off"):
            host.run(*call, {0: ones()}, out, constants=constants)
        with pytest.raises(RuntimeError, match=r"of buffer 0 \(from\), where nothing is bound"):
            host.run(*call, {}, out, constants=constants)


def test_an_unknown_kernel_is_told_with_the_nearest_name(host):
    with pytest.raises(ValueError, match=r"no kernel copi\. The nearest is copy\."):
        copy(host, kernel="copi")


@pytest.mark.parametrize(("kernel", "most"), [("copy", 1024), ("at_most_64", 64)])
def test_too_many_threads_are_refused(host, kernel, most):
    with pytest.raises(ValueError, match=rf"{kernel}: a threadgroup of 2048 threads; .*{most}"):
        host.run(kernel, ONE_GROUP, (32, 64, 1), {}, {0: ([1], FLOAT)})


def test_a_read_outside_of_a_buffer_is_an_error(host):
    with pytest.raises(
        RuntimeError,
        match=r"copy: threadgroup \(1, 0, 0\), thread 36: reads 4 bytes at byte 400 of "
        r"buffer 0 \(from\), which has 400",
    ):
        copy(host, arrays={0: mx.ones((100,), dtype=FLOAT)})


def test_a_write_outside_of_a_buffer_is_an_error(host):
    with pytest.raises(RuntimeError, match=r"writes 4 bytes at byte 256 of buffer 1 \(to\)"):
        copy(host, outputs={1: ([64], FLOAT)})


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        ("read_before", r"reads 4 bytes at byte -4 of buffer 0 \(from\), which has 512"),
        ("read_misaligned", "reads 4 bytes at an address that is no multiple of 4"),
        ("write_to", r"writes buffer 0 \(target\), bound as an input"),
    ],
)
def test_an_access_that_a_binding_does_not_allow_is_an_error(host, kernel, message):
    with pytest.raises(RuntimeError, match=message):
        host.run(kernel, ONE_GROUP, ONE_GROUP, {0: ones()}, {1: ([1], FLOAT)})


def test_threadgroups_that_write_the_same_byte_are_an_error(host):
    with pytest.raises(RuntimeError, match=r"another both touch byte 0 of buffer 0 \(to\)"):
        host.run("all_write_the_first", (2, 1, 1), ONE_GROUP, {}, {0: ([1], FLOAT)})


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (
            "overrun_threadgroup_memory",
            "byte 128 of threadgroup variable values, which has 128",
        ),
        ("too_much_threadgroup_memory", "needs 32772 bytes of threadgroup memory"),
    ],
)
def test_threadgroup_memory_has_bounds(host, kernel, message):
    with pytest.raises(RuntimeError, match=message):
        host.run(kernel, ONE_GROUP, (64, 1, 1), {}, {0: ([64], FLOAT)})


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        ("barrier_for_some", "waits at a threadgroup barrier|barrier that other threads ended"),
        ("two_barriers", "is at another threadgroup barrier than thread"),
        ("sum_for_some", "ends while thread 0 of its simdgroup waits in simd_sum"),
        ("two_sums", "is in simd_sum while thread 0 .* waits in another simd_sum"),
    ],
)
def test_threads_that_miss_each_other_are_an_error(host, kernel, message):
    with pytest.raises(RuntimeError, match=rf"{kernel}: threadgroup .*({message})"):
        host.run(kernel, ONE_GROUP, (64, 1, 1), {}, {0: ([64], FLOAT)})


def test_a_missing_barrier_shows_when_threads_run_in_reverse(host):
    call = (ONE_GROUP, (64, 1, 1), {}, {0: ([64], FLOAT)})
    right = host.run("pass_on", *call)[0].tolist()
    assert host.run("pass_on_without_barrier", *call)[0].tolist() == right
    host.set_order("reverse")
    assert host.run("pass_on", *call)[0].tolist() == right
    with pytest.raises(RuntimeError, match=r"values, which no thread .* has written"):
        host.run("pass_on_without_barrier", *call)


def test_a_barrier_comes_where_mlx_puts_one(host):
    outputs = {"y": spec(host), "z": spec(host)}
    made = host.run_program(
        [copy_step(host, "x", "y"), copy_step(host, "x", "z"), scale_step(host, "y")],
        {"x": ones()}, outputs,
    )  # fmt: skip
    mx.eval(list(made.values()))
    assert made["y"].tolist() == [2.0] * 128
    assert [count["barrier_before"] for count in host.counters()] == [False, False, True]


def test_a_write_that_no_barrier_orders_after_a_read_is_an_error(host):
    outputs = {"x2": spec(host, shares="x"), "y": spec(host)}
    for barrier in (True, False):
        made = host.run_program(
            [copy_step(host, "x", "y"), scale_step(host, "x2", barrier=barrier)],
            {"x": ones()}, outputs,
        )  # fmt: skip
        mx.eval(list(made.values()))
        race = (
            "scale writes byte 0 of buffer 0 (values), which copy reads with no barrier "
            "in between."
        )
        assert host.take_errors() == ([] if barrier else [race])


def test_scratch_that_nobody_keeps_alive_is_an_error(host):
    for is_temporary in (True, False):
        steps = [copy_step(host, "x", "s"), copy_step(host, "s", "y")]
        scratch = {"s": spec(host, is_temporary=is_temporary)}
        made = host.run_program(steps, {"x": ones()}, {"y": spec(host)}, scratch)
        if is_temporary:
            mx.eval(made["y"])
            assert made["y"].tolist() == [1.0] * 128
        else:
            with pytest.raises(
                RuntimeError, match="copy: the scratch buffer at index 1 is not kept"
            ):
                mx.eval(made["y"])


def test_a_read_of_what_nothing_has_written_is_an_error(host):
    half = host.Step(
        "copy", (1, 1, 1), (64, 1, 1), inputs={0: "x"}, outputs={1: "s"}, data={2: ints(64)}
    )
    made = host.run_program(
        [half, copy_step(host, "s", "y")], {"x": ones()}, {"y": spec(host)},
        {"s": spec(host)},
    )  # fmt: skip
    mx.eval(made["y"])
    assert host.take_errors() == [
        "copy reads byte 256 of buffer 0 (from), which nothing has written."
    ]


@pytest.mark.parametrize(
    ("architecture", "commits"), [("applegpu_g16p", 2), ("applegpu_g16g", 1)]
)
def test_a_phone_commits_after_more_than_20_dispatches(host, architecture, commits):
    host.set_architecture(architecture)
    host.commit()
    before = host.commits()
    for _ in range(42):
        made = host.run_program([copy_step(host, "x", "y")], {"x": ones()}, {"y": spec(host)})
        mx.eval(made["y"])
    assert host.commits() - before == commits
    host.commit()


def test_an_error_does_not_stop_what_follows(host):
    with pytest.raises(RuntimeError):
        copy(host, arrays={0: mx.ones((1,), dtype=FLOAT)})
    assert copy(host)[1].tolist() == list(range(128))


@pytest.mark.parametrize(("home", "left"), [("tests/metal/host", 4), ("elsewhere", 1)])
def test_a_build_folder_of_another_checkout_is_emptied(tmp_path, home, left):
    builder = load("h2o_metal_host_build", ROOT / "tests/metal/host/build.py")
    (tmp_path / "CMakeFiles").mkdir()
    for name in (".lock", "build.ninja"):
        (tmp_path / name).touch()
    line = f"CMAKE_HOME_DIRECTORY:INTERNAL={ROOT / home}\n"
    (tmp_path / "CMakeCache.txt").write_text(line)
    builder.discard_other_checkouts(tmp_path)
    assert len(list(tmp_path.iterdir())) == left
