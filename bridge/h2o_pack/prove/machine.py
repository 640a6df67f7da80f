"""The machine that a report is of, and what is installed on it."""

from __future__ import annotations

import os
import platform
from importlib import metadata

import mlx.core as mx

from h2o_pack import __version__
from h2o_pack.doctor.surroundings import Surroundings, shown, version_in
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.measure.machine import processor, usable_cores
from h2o_pack.prove.own import PRODUCT
from h2o_pack.prove.report import ProvenMachine
from h2o_py._pins import VERSIONS

TOOLS = {"swift": ("swift", "--version"), "xcode": ("xcodebuild", "-version")}


def describe() -> ProvenMachine:
    """Describe this machine.

    Raises:
        UserError: its system is none that h2o-pack runs on.

    """
    gpu = mx.default_device() == mx.Device(mx.gpu)
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    common = {
        "chip": processor(),
        "gpu": str(mx.device_info().get("device_name", "GPU")) if gpu else "",
        "cores": usable_cores(),
        "memory_bytes": pages * size,
    }
    if platform.system() == "Darwin":
        return ProvenMachine(
            identifier=mac_identifier(),
            system="macOS",
            system_version=platform.mac_ver()[0],
            **common,  # type: ignore[arg-type]
        )
    if platform.system() == "Linux":
        return ProvenMachine(
            identifier=platform.machine(),
            system="Linux",
            system_version=platform.release(),
            **common,  # type: ignore[arg-type]
        )
    raise UserError(
        f"h2o-pack does not run on {platform.system()}",
        remedy="Run it on macOS or Linux.",
        code=ExitCode.TOOL,
    )


def mac_identifier() -> str:
    """Return a Mac's model identifier, such as "Mac15,3"."""
    ran = Surroundings().run("sysctl", "-n", "hw.model")
    return ran.line if ran is not None and ran.code == 0 else "Mac0,0"


def versions() -> dict[str, str]:
    """Return the versions of h2o-pack and of what it stands on, as far as they are there."""
    here = Surroundings()
    found = {PRODUCT: __version__, "python": platform.python_version()}
    found |= {name: metadata.version(name) for name in VERSIONS}
    for name, command in TOOLS.items():
        ran = here.run(*command)
        version = version_in(ran.said) if ran is not None and ran.code == 0 else None
        if version is not None:
            found[name] = shown(version)
    return found
