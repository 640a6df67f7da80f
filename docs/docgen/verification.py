"""The tables of docs/verification.md: parts, steps of workflows, and what devices reported.

`python -m docs.docgen.verification --write` writes them, and a test compares the page.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from docs.docgen.markdown import replaced, table
from h2o_pack.files.toml import read_tables
from h2o_pack.prove.keep import FOLDER, PAGE, read_kept

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = ROOT / ".github/workflows"
VERIFICATION = ROOT / "docs/verification.md"
FACTS = Path(__file__).with_name("verification.toml")
PLUMBING = ("actions/checkout", "actions/setup-python", "actions/upload-artifact",
            "actions/download-artifact")  # fmt: skip
"""Actions that do nothing of their own."""
PROGRAMS = ("gh", "make", "pipx")
"""Programs whose first argument says what they do."""
NONE = (
    "Everything below runs on Linux. No part has run on a Mac, on an iPhone or in Xcode: **no "
    "report of a device has come yet**. [`h2o-pack prove`](proving.md) makes one."
)


@dataclass(frozen=True)
class Part:
    """A part of h2o-pack: how it is verified, and which tests do that."""

    name: str
    how: str
    where: str = ""


@dataclass(frozen=True)
class Step:
    """Steps of workflows; ran: what did on Linux. left: what only other machines can say."""

    steps: tuple[str, ...]
    ran: str
    left: str = ""


@dataclass(frozen=True)
class VerificationFile:
    """verification.toml."""

    part: tuple[Part, ...]
    step: tuple[Step, ...]


def facts() -> VerificationFile:
    """Read what was verified."""
    return read_tables(FACTS, VerificationFile)


def workflow_steps() -> dict[str, list[str]]:
    """Return the workflows that have each step that does something of its own."""
    found: dict[str, list[str]] = {}
    for path in sorted(WORKFLOWS.glob("*.yml")):
        for name in steps_of(path):
            places = found.setdefault(name, [])
            places += [path.name] if path.name not in places else []
    return found


def steps_of(path: Path) -> Iterator[str]:
    """Yield the names of a workflow's steps: a program or target, or an action."""
    jobs = yaml.safe_load(path.read_text("utf-8"))["jobs"].values()
    for step in (step for job in jobs for step in job["steps"]):
        if "run" in step:
            program, *arguments = step["run"].split()
            named = [program, *arguments[:1]] if program in PROGRAMS else [program]
            yield " ".join(named)
        elif (action := step["uses"].partition("@")[0]) not in PLUMBING:
            yield action


def parts_table() -> str:
    """Return the table of parts."""
    rows = [(part.name, part.how, part.where) for part in facts().part]
    return table(("part", "how it is verified", "where"), rows)


def steps_table() -> str:
    """Return the table of the workflows' steps."""
    known = workflow_steps()
    rows = []
    for each in facts().step:
        places = dict.fromkeys(place for step in each.steps for place in known[step])
        names = ", ".join(f"`{place}`" for place in places)
        steps = ", ".join(f"`{step}`" for step in each.steps)
        rows.append((f"{names}: {steps}", each.ran, each.left))
    return table(("step", "what ran here", "what is left"), rows)


def reports() -> str:
    """Return what devices reported, or that none has."""
    kept = [each for _, each in read_kept(ROOT) if each.machine.system != "Linux"]
    if not kept:
        return NONE
    rows = [
        (
            report.machine.identifier,
            f"{report.machine.system} {report.machine.system_version}",
            report.finished[:10],
            report.counts.as_expected,
            report.counts.differs,
            report.counts.not_run,
        )
        for report in sorted(kept, key=lambda report: report.finished, reverse=True)
    ]
    head = ("device", "system", "date", "as expected", "differ", "not run")
    place = Path(FOLDER).relative_to("docs") / PAGE
    return (
        f"What devices [reported]({place.as_posix()}), and below what runs on Linux:\n\n"
        f"{table(head, rows)}"
    )


def made() -> str:
    """Return the page as it should be."""
    text = VERIFICATION.read_text("utf-8")
    for mark, part in (
        ("reports", reports()),
        ("parts", parts_table()),
        ("steps", steps_table()),
    ):
        text = replaced(text, mark, part)
    return text


def main() -> None:
    """Write or print the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="change the page")
    if parser.parse_args().write:
        VERIFICATION.write_text(made(), encoding="utf-8", newline="\n")
    else:
        print(made())  # noqa: T201 - what it is for


if __name__ == "__main__":
    main()
