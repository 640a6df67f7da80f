"""What this h2o-pack is: its version, commit, kernels and models, to hold a report against."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from h2o_pack import __version__, assets
from h2o_pack.bundling.manifest import DECIDING, BundledFile, model_digest
from h2o_pack.errors import UserError
from h2o_pack.facts import pins, upstream_versions
from h2o_pack.files.digests import sha256_of
from h2o_pack.hub.resolve import local_folder
from h2o_pack.kernels.text import instances, libraries, library
from h2o_pack.models.catalogue import find
from h2o_pack.prove.contradiction import Contradiction, place
from h2o_pack.prove.expected import Expected, expected_of, plan_of
from h2o_pack.prove.report import NOT_RUN, ProofReport
from h2o_py._pins import VERSIONS

PRODUCT = "h2o-pack"
MODELS = Path(__file__).parent.parent / "models"


@cache
def commit() -> str:
    """Return the commit of the checkout that this code is in; "" outside of one."""
    root, git = assets.root(), shutil.which("git")
    if git is None or not (root / ".git").exists():
        return ""
    command = [git, "-C", str(root), "-c", "safe.directory=*", "rev-parse", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    return done.stdout.strip() if done.returncode == 0 else ""


@cache
def kernels_digest() -> str:
    """Return the sha256 of all libraries of Metal kernels with their instances."""
    texts = "".join(library(each) + instances(each) for each in libraries())
    return hashlib.sha256(texts.encode()).hexdigest()


@cache
def digest_of_model(name: str) -> str:
    """Return a model's digest, as its manifest in a package has it; "" if it is not here."""
    folder = folder_of(name)
    if folder is None:
        return ""
    found = {path for pattern in DECIDING for path in folder.glob(pattern)}
    return model_digest(
        BundledFile(path.name, path.stat().st_size, sha256_of(path)) for path in found
    )


def folder_of(name: str) -> Path | None:
    """Return the folder of a model on this machine."""
    known = find(name)
    if known is not None and known.bundled:
        return MODELS / known.bundled
    return local_folder(known.folder if known else name)


def public_name(model: str) -> str:
    """Return a model's name; of a folder the last part, as paths have users' names."""
    return Path(model).name if find(model) is None and local_folder(model) else model


def is_same_code(report: ProofReport) -> bool:
    """Tell whether a report was made by this very code."""
    own = report.versions.get(PRODUCT) == __version__
    return own and report.commit in {"", commit()}


def is_planned_here(report: ProofReport) -> bool:
    """Tell whether this machine has what planning a report's setting takes."""
    try:
        plan_of(report.setting)
    except UserError:
        return False
    return True


def denied_by_own_code(report: ProofReport) -> list[Contradiction]:
    """Return what this code computes otherwise than a report by the same code says."""
    return [*wrong_versions(report), *wrong_digests(report), *wrong_expectations(report)]


def wrong_versions(report: ProofReport) -> Iterator[Contradiction]:
    """What this version stands on is pinned."""
    pinned = {name: {version} for name, version in VERSIONS.items()}
    for upstream in upstream_versions():
        for name, pin in pins(upstream).items():
            pinned.setdefault(name, set()).add(pin.version)
    for name, version in report.versions.items():
        if name in pinned and version not in pinned[name]:
            what = f"{PRODUCT} {__version__} stands on {' or '.join(sorted(pinned[name]))}"
            yield Contradiction(f"versions.{name}", what)


def wrong_digests(report: ProofReport) -> Iterator[Contradiction]:
    """Kernels and model are those of this code."""
    own = {"kernels": kernels_digest(), "model": digest_of_model(report.setting.model)}
    for field, digest in own.items():
        said = getattr(report.digests, field)
        if said and digest and said != digest:
            yield Contradiction(f"digests.{field}", f"it is {digest} here")


def wrong_expectations(report: ProofReport) -> Iterator[Contradiction]:
    """What was expected is what this code expects."""
    for n, check in enumerate(report.checks):
        if check.verdict == NOT_RUN:
            continue
        try:
            own = expected_of(check.id, report.setting)
        except UserError:
            continue  # see is_planned_here
        if own is None:
            continue
        said = Expected(check.rule, check.expected or 0, check.expected_from, check.tolerance)
        for field, value in vars(own).items():
            if getattr(said, field) != value:
                name = {"value": "expected", "source": "expected_from"}.get(field, field)
                yield Contradiction(f"{place(n, check)}.{name}", f"{value} is expected here")
