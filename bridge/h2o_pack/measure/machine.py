"""The machine that a run was made on."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated

from h2o_pack.results import Count, doc


@dataclass(frozen=True)
class Machine:
    """The machine of a run, without its name and without any path.

    An app on a device knows no processor, instruction set, versions and GPU: they are empty.
    """

    processor: Annotated[str, doc("The processor's name.")]
    cores: Annotated[int, doc("Cores that the process may use.")]
    system: Annotated[str, doc("Kernel and architecture.")]
    instruction_set: Annotated[str, doc("The instruction set that the compiled core uses.")]
    python: str
    mlx: str
    mlx_lm: str
    h2o_pack: str

    load: Annotated[
        float | None,
        doc("Processes that wanted a core when the run began; null if nothing was timed."),
    ] = None
    identifier: Annotated[
        str, doc('What the system calls this kind of machine, such as "Mac15,3"; else empty.')
    ] = ""
    system_version: Annotated[str, doc("Version of macOS, or of Linux's kernel.")] = ""
    gpu: Annotated[str, doc("Name of the GPU that MLX runs on; empty on a CPU.")] = ""
    memory_bytes: Annotated[Count, doc("Bytes of RAM.")] = 0

    def __str__(self) -> str:
        """Return one sentence, without a full stop, that describes the machine."""
        load = "" if self.load is None else f", load {self.load:g} at the start"
        return (
            f"{self.processor}, {self.cores} cores, {self.system}, instruction set "
            f"{self.instruction_set}{load}; python {self.python}, mlx {self.mlx}, "
            f"mlx-lm {self.mlx_lm}, h2o-pack {self.h2o_pack}"
        )


def describe(*, timed: bool = True) -> Machine:
    """Describe this machine; timed: whether its load belongs to the description."""
    from h2o_py._compiled import ext  # imported late: it loads the compiled module

    return Machine(
        processor=processor(),
        cores=usable_cores(),
        system=f"{platform.system()} {platform.machine()}",
        instruction_set=ext.instruction_set(),
        python=platform.python_version(),
        mlx=metadata.version("mlx"),
        mlx_lm=metadata.version("mlx-lm"),
        h2o_pack=metadata.version("h2o-pack"),
        load=round(os.getloadavg()[0], 1) if timed else None,
        identifier=sysctl("hw.model") if is_mac() else "",
        system_version=platform.mac_ver()[0] if is_mac() else platform.release(),
        gpu=gpu(),
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
    )


def gpu() -> str:
    """Return the name of the GPU that MLX runs on; "" on a CPU."""
    import mlx.core as mx

    if mx.default_device() != mx.Device(mx.gpu):
        return ""
    return str(mx.device_info().get("device_name", "GPU"))


def scoring_kernels() -> tuple[str, ...]:
    """Return the Metal kernels that have written scores in this process; none on a CPU."""
    from h2o_py._compiled import ext

    return tuple(sorted(ext.scoring_pipelines())) if gpu() else ()


def usable_cores() -> int:
    """Count the cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return os.cpu_count() or 1


def processor() -> str:
    """Return the processor's name."""
    if is_mac():
        return sysctl("machdep.cpu.brand_string") or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def is_mac() -> bool:
    """Whether this is a Mac."""
    return platform.system() == "Darwin"


def sysctl(name: str) -> str:
    """Return what a Mac's kernel says under a name; "" if it says nothing."""
    command = ["/usr/sbin/sysctl", "-n", name]
    process = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    return process.stdout.strip()
