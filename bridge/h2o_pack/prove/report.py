"""What `h2o-pack prove` and an app's page "Prove it" write: the same document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Annotated, Literal

from msgspec import Meta

from h2o_pack.bundling.manifest import SHA256
from h2o_pack.prove.ids import Tool
from h2o_pack.results import Count, Result, doc

Rule = Literal["equal", "at most", "at least", "within", "none"]
Verdict = Literal["as expected", "differs", "measured", "not run"]
Source = Literal["reference", "mlx-lm", "plan", "host", "goal", "paper", ""]

AS_EXPECTED: Verdict = "as expected"
DIFFERS: Verdict = "differs"
MEASURED: Verdict = "measured"
NOT_RUN: Verdict = "not run"

TIME = "%Y-%m-%dT%H:%M:%SZ"
Time = Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")]
Digest = Annotated[str, Meta(pattern=f"^({SHA256.pattern})?$")]
Text = Annotated[str, Meta(max_length=400)]


@dataclass(frozen=True)
class ProvenMachine:
    """The machine, without its name, its user or its serial number."""

    identifier: Annotated[Text, doc('As the system gives it: "Mac15,3", "iPhone17,1".')]
    chip: Annotated[Text, doc("Name of the processor.")]
    gpu: Annotated[Text, doc("Name of the GPU that MLX runs on; empty on a CPU.")]
    cores: Annotated[Count, doc("That the process may use.")]
    memory_bytes: Annotated[Count, doc("Of the whole machine.")]
    system: Annotated[Literal["macOS", "iOS", "iPadOS", "Linux"], doc("Its system.")]
    system_version: Annotated[Text, doc("Of the system.")]


@dataclass(frozen=True)
class Digests:
    """Hexadecimal sha256; empty for what the run had none of."""

    model: Annotated[Digest, doc("Of the model's manifest, as its `digest`.")]
    package: Annotated[Digest, doc("Of the package's lock file.")]
    kernels: Annotated[Digest, doc("Of the text of all Metal kernels.")]


@dataclass(frozen=True)
class Setting:
    """What was run, from which the plan can be made again."""

    model: Annotated[Text, doc("Alias or id.")]
    max_kv: Annotated[Count, doc("Rows that a layer keeps.")]
    kv: Annotated[Text, doc("How rows are stored.")]
    context: Annotated[Count, doc("Tokens of the conversation whose peak was measured.")]
    prefill_step: Annotated[Count, doc("Tokens of a prompt that the model read at once.")]
    backend: Annotated[Text, doc("Name of the plan's backend.")]


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that was looked at, and what was expected of it.

    As expected is, by the rule: equal: the same number. at most: no more than expected x
    (1 + tolerance). at least: no less than expected x (1 - tolerance). within: off by no more
    than expected x tolerance. With the rule none nothing is expected.
    """

    id: Annotated[Text, doc('Its part, "/", and what of it; each is there once.')]
    rule: Annotated[Rule, doc("How measured and expected compare.")]
    expected: Annotated[float | None, doc("Null with the rule none.")] = None
    expected_from: Annotated[Source, doc("Where the expected value is from.")] = ""
    measured: Annotated[float | None, doc("Null where it was not run.")] = None
    unit: Annotated[Text, doc("Of both values.")]
    tolerance: Annotated[float, Meta(ge=0), doc("Part of the expected value.")] = 0.0
    verdict: Annotated[Verdict, doc("Follows from the rule and the values.")]
    how: Annotated[Text, doc("How it was measured.")]
    why: Annotated[Text, doc("Why it was not run; empty where it was.")] = ""
    ratio_of: Annotated[
        tuple[str, str] | None,
        doc("The measured value is that of the first of these checks over the second's."),
    ] = None
    at: Annotated[float, Meta(ge=0), doc("Seconds after the start.")]


@dataclass(frozen=True)
class Counts:
    """How many checks have which verdict."""

    as_expected: Count
    differs: Count
    measured: Count
    not_run: Count

    @classmethod
    def of(cls, checks: Iterable[Check]) -> Counts:
        """Count checks by their verdicts."""
        found = Counter(check.verdict for check in checks)
        return cls(found[AS_EXPECTED], found[DIFFERS], found[MEASURED], found[NOT_RUN])


@dataclass(frozen=True, kw_only=True)
class ProofReport(Result):
    """What one machine showed."""

    tool: Annotated[Tool, doc("What wrote it.")]
    started: Annotated[Time, doc("In UTC.")]
    finished: Annotated[Time, doc("In UTC.")]
    commit: Annotated[
        Annotated[str, Meta(pattern=r"^([0-9a-f]{40})?$")],
        doc("Of h2o-pack's own repository; empty where it is installed from a package."),
    ]
    versions: Annotated[
        dict[str, str], doc("h2o-pack, and what it stands on: mlx, mlx-lm, swift, ....")
    ]
    machine: Annotated[ProvenMachine, doc("Where it ran.")]
    digests: Annotated[Digests, doc("Of what ran.")]
    setting: Annotated[Setting, doc("What ran.")]
    checks: Annotated[tuple[Check, ...], Meta(min_length=1), doc("In the order made.")]
    counts: Annotated[Counts, doc("Of the checks' verdicts.")]
    checksum: Annotated[
        Digest, doc("Of all else, as docs/proving.md says; against accidents, not forgery.")
    ] = ""

    @property
    def differs(self) -> bool:
        """Tell whether anything came out otherwise than expected."""
        return self.counts.differs > 0

    def by_id(self) -> dict[str, Check]:
        """Return the checks by their ids."""
        return {check.id: check for check in self.checks}


def parse_time(text: str) -> datetime:
    """Read a time of a report; ValueError for one that no calendar has."""
    return datetime.strptime(text, TIME).replace(tzinfo=timezone.utc)
