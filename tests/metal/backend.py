"""h2o_py's functions computed by the Metal kernels, on the CPU host that runs them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import mlx.core as mx

ROOT = Path(__file__).parents[2]


def load(name, path):
    """A module from a file, wherever it lies."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def load_host():
    """The module of tests/metal/host, built if it is not up to date."""
    mx.set_default_device(mx.cpu)
    mx.set_cache_limit(0)  # a buffer used again may be larger than asked for: no bounds then
    build = load("h2o_metal_host_build", ROOT / "tests/metal/host/build.py")
    (path,) = build.build().glob("_metal_host.*.so")
    return load("_metal_host", path)


def copied(name, **replaced):
    """A copy of a module of h2o_py, with other things under some of its names."""
    spec = importlib.util.find_spec(name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    vars(module).update(replaced)
    return module


def make_backend(host):
    """A module with the functions of `h2o_py.fast`, on the host instead of the core."""
    return copied("h2o_py.fast", ext=host)


def evaluated(host, *arrays):
    """The arrays, computed; whatever the host found wrong is raised."""
    mx.eval(*[a for a in arrays if a is not None])
    errors = host.take_errors()
    assert not errors, "\n".join(errors)
    return arrays[0] if len(arrays) == 1 else arrays


def make_step(host, kernel, grid, group, **options):
    """One dispatch of a program: threadgroups, threads of each, and what is bound by index.

    Arrays are given by their names as `inputs` and `outputs`, bytes as words.
    """
    step = host.Step()
    for name, value in {"kernel": kernel, "grid": grid, "group": group, **options}.items():
        setattr(step, name, value)
    return step


def run(host, kernel, grid, group, arrays, outputs, **options):
    """Run one kernel to its end.

    Returns what it wrote, by index: `outputs` gives shape and dtype for each. Raises
    RuntimeError with what the host found wrong.
    """
    inputs = {f"input {index}": array for index, array in arrays.items()}
    specs = {f"output {index}": (*spec, "") for index, spec in outputs.items()}
    step = make_step(
        host, kernel, grid, group, inputs=dict(zip(arrays, inputs, strict=True)),
        outputs=dict(zip(outputs, specs, strict=True)), **options,
    )  # fmt: skip
    results = host.run_program([step], inputs, specs, {})
    mx.eval(list(results.values()))
    errors = host.take_errors()
    host.commit()
    if errors:
        raise RuntimeError(errors[0])
    return {index: results[f"output {index}"] for index in outputs}
