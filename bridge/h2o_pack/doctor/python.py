"""Python and the packages that h2o-pack is made for."""

from __future__ import annotations

from importlib import metadata

from h2o_pack.doctor.finding import Finding, ok, problem
from h2o_pack.doctor.surroundings import Surroundings, needed, older, shown
from h2o_py._pins import VERSIONS

IMPORT = "from h2o_py._compiled import ext; print(ext.instruction_set())"


def python(machine: Surroundings) -> Finding:
    """h2o-pack's own language."""
    name, least = "Python", needed("python")
    if older(machine.python, least):
        what = f"{shown(machine.python)} is older than {least}"
        return problem(name, what, f"Install Python {least} or newer.", blocks=True)
    return ok(name, shown(machine.python))


def mlx(_machine: Surroundings) -> Finding:
    """The compiled module is made for one version of mlx."""
    return pinned("mlx")


def mlx_lm(_machine: Surroundings) -> Finding:
    """Models' caches are those of one version of mlx-lm."""
    return pinned("mlx-lm")


def pinned(package: str) -> Finding:
    """Compare an installed package with its pin."""
    version = VERSIONS[package]
    remedy = f"Run: pip install {package}=={version}"
    try:
        found = metadata.version(package)
    except metadata.PackageNotFoundError:
        return problem(package, f"it is missing; {version} is needed", remedy, blocks=True)
    if found != version:
        what = f"{found} is installed; h2o-pack is made for {version}"
        return problem(package, what, remedy, blocks=True)
    return ok(package, found)


def compiled_module(machine: Surroundings) -> Finding:
    """Import it in a process of its own, which it may end."""
    name = "compiled module"
    remedy = "Run: pip install --force-reinstall --no-deps h2o-pack (in a checkout: make)"
    ran = machine.run(machine.executable, "-c", IMPORT)
    if ran is None:
        return problem(name, f"{machine.executable} is not there to import it", remedy)
    if ran.code is None:
        return problem(name, f"importing it: {ran.line}", remedy)
    if ran.code < 0:
        return problem(name, f"importing it ended Python by signal {-ran.code}", remedy)
    if ran.code != 0:
        last = ran.said.strip().splitlines()[-1:] or ["it said nothing"]
        return problem(name, last[0], remedy)
    return ok(name, f"loads; instruction set {ran.line}")
