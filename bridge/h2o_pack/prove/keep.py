"""Keeps reports in the checkout: their files, their page and the facts that follow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from h2o_pack import assets
from h2o_pack.devices import proven
from h2o_pack.errors import ExitCode, Problems, UserError
from h2o_pack.files.text import read_json, writing
from h2o_pack.prove.facts import facts_of, to_toml, why_no_margin
from h2o_pack.prove.page import page
from h2o_pack.prove.read import REMEDY, WHAT, read_report
from h2o_pack.prove.report import ProofReport
from h2o_pack.results import Count, Result, doc, to_json

FOLDER = "docs/results/devices"
PAGE = "README.md"
SHORT = 8  # digits of a checksum in a name


@dataclass(frozen=True, kw_only=True)
class ImportedProofs(Result):
    """Reports that were kept."""

    reports: Annotated[tuple[str, ...], doc("All that are kept now, in the checkout.")]
    changed: Annotated[tuple[str, ...], doc("Files that were written or deleted.")]
    facts: Annotated[Count, doc("Limits, margins and speeds that plans take from all reports.")]
    no_margin: Annotated[
        tuple[str, ...], doc("Reports from which no margin of the plan follows, and why.")
    ]


def checkout() -> Path:
    """Return the root of h2o-pack's own repository.

    Raises:
        UserError: this h2o-pack is not in one.

    """
    root = assets.root()
    if not ((root / "pyproject.toml").is_file() and (root / "docs/results").is_dir()):
        raise UserError(
            "reports are kept in h2o-pack's own repository, and this h2o-pack is installed "
            "without it",
            where=str(root),
            remedy="Clone the repository and run the command there; --check works anywhere.",
            code=ExitCode.OUTPUT,
        )
    return root


def import_reports(paths: Iterable[Path], root: Path) -> ImportedProofs:
    """Check reports and keep them; the same report again changes nothing.

    Raises:
        UserError: one of them is none or contradicts itself; then nothing is written.

    """
    problems = Problems()
    given: dict[str, str] = {}
    for path in paths:
        with problems.caught():
            report = read_report(path)
            given[f"{FOLDER}/{name_of(report)}"] = to_json(report) + "\n"
    problems.refuse()
    with writing(root / FOLDER):
        changed = [name for name, text in given.items() if write(root / name, text)]
        kept = read_kept(root)
        changed += follow(kept, root)
    return ImportedProofs(
        reports=tuple(f"{FOLDER}/{name}" for name, _ in kept),
        changed=tuple(changed),
        facts=sum(map(len, vars(facts_of(sourced(kept))).values())),
        no_margin=tuple(
            f"{name}: {why_no_margin(report)}" for name, report in kept if why_no_margin(report)
        ),
    )


def name_of(report: ProofReport) -> str:
    """Return the name of a report's file: device, time and checksum."""
    device = report.machine.identifier.replace(",", "-")
    when = report.finished.replace("-", "").replace(":", "")
    return f"{device}-{when}-{report.checksum[:SHORT]}.json"


def read_kept(root: Path) -> list[tuple[str, ProofReport]]:
    """Return the reports that are kept, by the names of their files."""
    found = sorted((root / FOLDER).glob("*.json"))
    return [(path.name, read_json(path, ProofReport, WHAT, REMEDY)) for path in found]


def sourced(kept: Iterable[tuple[str, ProofReport]]) -> list[tuple[str, ProofReport]]:
    """Return reports by where they are in the repository."""
    return [(f"{FOLDER}/{name}", report) for name, report in kept]


def follow(kept: list[tuple[str, ProofReport]], root: Path) -> list[str]:
    """Write the page and the facts anew; return what changed."""
    facts = facts_of(sourced(kept))
    path = proven.path()
    changed = [f"{FOLDER}/{PAGE}"] if write(root / FOLDER / PAGE, page(kept)) else []
    name = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
    if any(vars(facts).values()):
        changed += [name] if write(path, to_toml(facts)) else []
    elif path.is_file():
        path.unlink()
        changed.append(name)
    return changed


def write(path: Path, text: str) -> bool:
    """Write a file if it has another text; return whether that was so."""
    if path.is_file() and path.read_text("utf-8") == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")
    return True
