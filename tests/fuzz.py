"""Search for failures with random examples and attacks: `make fuzz SECONDS=3600`.

Runs every property test with a seed, then attacks (see `tests/attacks`) for as long: on the
core built with AddressSanitizer and UndefinedBehaviorSanitizer, on the commands, and on a
package's tests where there is Swift. So on with other seeds until the time is over. A property
test that fails is left out of later rounds; its example is printed as a decorator to add to the
test, which then tries it in every run. An attack is printed with its seed, and becomes a test.
`make fuzz SEED=...` repeats a search.

pytest loads this module as a plugin too (`-p tests.fuzz`), to print the examples.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import time
from collections.abc import Iterator

import pytest

from tests.attacks import sanitized
from tests.processes import ROOT, python

FOUND = "Found by make fuzz. Add this decorator above the test:"
FAILED = "FAILED "
LEAST_SECONDS = 30  # of attacks in a round


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Add the failing examples of a property test to its report, as decorators."""
    report = yield
    # hypothesis's own pytest plugin reads the examples from this attribute as well.
    for call in getattr(item, "_hypothesis_failing_examples", []) if report.failed else []:
        _name, parenthesis, arguments = call.partition("(")
        report.sections.append((FOUND, f"@example{parenthesis}{arguments}"))
    return report


def property_tests() -> list[str]:
    """Return the files with property tests, so that a round imports no others."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(file) for file in files if "from hypothesis import" in file.read_text("utf-8")]


def search(seed: int, seconds: float) -> int:
    """Run rounds for about a number of seconds; return how many tests and attacks failed."""
    sanitized.build()
    attacks = [Attacks(kind, seed) for kind in ("core", "commands")]
    if shutil.which("swift"):
        attacks.append(Attacks("app", seed))
    else:
        print("app: not run (no Swift)")
    start, number, failed = time.monotonic(), 0, list[str]()
    while number == 0 or time.monotonic() - start < seconds:
        begun = time.monotonic()
        command = ["-m", "pytest", "-p", "tests.fuzz", "-m", "hypothesis", "-q"]
        command += ["-p", "no:cacheprovider", "--hypothesis-profile", "random"]
        command += [f"--hypothesis-seed={seed + number}", "-rf", "--color=no"]
        command += [f"--deselect={test}" for test in failed]
        process = python(*command, *property_tests())
        lines = process.stdout.splitlines()
        number += 1
        elapsed = time.monotonic() - start
        print(f"round {number}, seed {seed + number - 1}: {lines[-1]}, {elapsed:.0f} s in all")
        if process.returncode == pytest.ExitCode.TESTS_FAILED:
            print(process.stdout)
            print(f"Repeat this round: make fuzz SECONDS=0 SEED={seed + number - 1}")
            failures = [line.removeprefix(FAILED) for line in lines if line.startswith(FAILED)]
            failed += [line.partition(" - ")[0] for line in failures]
        elif process.returncode != pytest.ExitCode.OK:
            print(process.stdout, process.stderr)
            raise SystemExit(process.returncode)
        remainder = seconds - (time.monotonic() - start)
        share = min(max(LEAST_SECONDS, time.monotonic() - begun), max(remainder, 1)) / len(
            attacks
        )
        for kind in attacks:
            kind.run(share)
    return len(failed) + sum(kind.found for kind in attacks)


class Attacks:
    """Attacks of a kind with consecutive seeds, in processes that a finding may end."""

    def __init__(self, kind: str, seed: int) -> None:
        self.kind = kind
        self.next = seed * 1_000_000
        self.found = 0

    def run(self, seconds: float) -> None:
        """Attack for a number of seconds."""
        end, first = time.monotonic() + seconds, self.next
        while (remainder := end - time.monotonic()) > 0:
            command = ["-W", "ignore", "-m", "tests.attacks", "--of", self.kind]
            command += [f"--seed={self.next}", f"--seconds={remainder}", f"--count={1_000_000}"]
            environment = sanitized.environment() if self.kind == "core" else None
            process = python(*command, env=environment)
            tried = [int(line) for line in process.stdout.splitlines() if line.isdigit()]
            if not tried:
                print(process.stderr)
                raise SystemExit(process.returncode or 1)
            self.next = tried[-1] + 1
            if process.returncode != 0:
                self.found += 1
                print(process.stderr)
                again = f"python -m tests.attacks --of {self.kind} --seed {tried[-1]}"
                print(f"Repeat this attack: {again}")
        count = self.next - first
        print(f"{self.kind}: {count} attacks from seed {first}, {self.found} found in all")


def main() -> None:
    """Read the command line, search, and exit with 1 if a test failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=random.randrange(2**31))
    options = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    print(f"seed {options.seed}, {options.seconds:.0f} s")
    failed = search(options.seed, options.seconds)
    print(f"seed {options.seed}: {failed} property tests and attacks failed")
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
