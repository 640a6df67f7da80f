"""Runs all checks at once; none can keep the others waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from h2o_pack.doctor import apple, network, places, python, tools
from h2o_pack.doctor.finding import Checkup, Finding, warning
from h2o_pack.doctor.surroundings import Surroundings

Check = Callable[[Surroundings], Finding]

CHECKS: Mapping[str, Check] = {
    "macOS": apple.macos,
    "Xcode": apple.xcode,
    "Metal toolchain": apple.metal,
    "iOS SDK": apple.ios_sdk,
    "Swift": tools.swift,
    "Python": python.python,
    "mlx": python.mlx,
    "mlx-lm": python.mlx_lm,
    "compiled module": python.compiled_module,
    "disk for packages": places.output,
    "disk for models": places.hub_cache,
    "hub": network.hub,
    "hub token": network.token,
    "git": tools.git,
    "clang": tools.clang,
}
GRACE_SECONDS = 5.0


def check_up(
    machine: Surroundings,
    checks: Mapping[str, Check] = CHECKS,
    seconds: float | None = None,
) -> Checkup:
    """Run the checks, each on a thread that is left behind when it takes too long.

    seconds: for all together; by default two tools' time and a little.
    """
    if seconds is None:
        seconds = 2 * machine.tool_seconds + GRACE_SECONDS
    deadline = time.monotonic() + seconds
    found: dict[str, Finding] = {}

    def run(name: str, check: Check) -> None:
        try:
            found[name] = check(machine)
        except Exception as error:  # noqa: BLE001  one check's mistake is not the others'
            what = f"the check failed: {type(error).__name__}: {error}"
            found[name] = warning(name, what, "Report it as an error of h2o-pack.")

    threads = [
        threading.Thread(target=run, args=item, name=f"doctor: {item[0]}", daemon=True)
        for item in checks.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    late = f"no answer within {seconds:g} s"
    return Checkup(
        tuple(
            found.get(name) or warning(name, late, "Look at it by hand, and run this again.")
            for name in checks
        )
    )
