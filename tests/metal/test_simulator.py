"""Our core for Apple's simulators, where MLX has no GPU: the CPU's path alone."""

from __future__ import annotations

from tests.metal.checking import macos
from tools.kernels.macos import (
    SIMULATOR,
    compile_host,
    find_compiler,
    find_nm,
    metal_sources,
    mlx_folders,
    symbols,
)


def test_nothing_encodes_for_metal_in_a_simulator(tmp_path):
    compiler, nm = find_compiler(), find_nm()
    assert compiler
    assert nm
    *_, of_swift = mlx_folders(macos())
    assert compile_host(of_swift, compiler, tmp_path, metal_sources(), SIMULATOR) == []
    found = [symbol for path in tmp_path.glob("*.o") for symbol in symbols(path, nm)]
    assert not [name for _, name in found if "mlx4core5metal" in name]
    # Which path a call takes is asked once for all builds.
    assert [kind for kind, name in found if "3h2o5metal8supports" in name] == ["T"]
