"""`python -m studies.guided PACKAGE`: docs/results/guided.md.

PACKAGE is one of the bundled demo model on a version of mlx-swift-lm with a grammar engine,
made and vendored for this machine; see docs/verification.md.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from h2o_pack.files import lock
from h2o_pack.parity import host as hosts
from h2o_pack.parity import toolchain
from studies.guided.judge import judged
from studies.guided.page import Setting, Start, render
from studies.guided.schemas import random_schemas
from studies.guided.vocabulary import MARKS, TOKENS, write_tokenizer

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "results" / "guided.md"
TEXT = ROOT / "bridge" / "h2o_pack" / "models" / "demo" / "held_out" / "prose.txt.gz"
TESTS = "SchemaRunTests"
START_TESTS = "SchemaStartTests"
STARTS = 5
PROMPT_CHARACTERS = 1_000
ROWS, MAX_TOKENS, EVERY = 64, 160, 10
QUESTION = "\nTherefore: "
OPTIMIZED = ("-Xcxx", "-O2", "-Xswiftc", "-O")


def main() -> None:
    """Let the model reply to random schemas, check the replies and write the page."""
    parser = argparse.ArgumentParser(prog="python -m studies.guided", description=__doc__)
    parser.add_argument("package", type=Path)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--count", type=int, default=1_000)
    parser.add_argument(
        "--missing", action="store_true", help="Keep the last run's replies but for failures."
    )
    parser.add_argument("--optimized", action="store_true", help="Build all with -O2 and -O.")
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()
    say(f"seed {options.seed}")
    swift = toolchain.find_toolchain()
    if swift is None:
        parser.error("there is no Swift toolchain on PATH")
    package = options.package.resolve()
    schemas = random_schemas(options.seed, options.count)
    folder = package / hosts.WORK / "guided"
    folder.mkdir(parents=True, exist_ok=True)
    known = answered(folder / "replies.json") if options.missing else [None] * len(schemas)
    request = {
        "prompt": prompt(),
        "question": QUESTION,
        "rows": ROWS,
        "maxTokens": MAX_TOKENS,
        "every": EVERY,
        "schemas": [
            None if reply else json.dumps(schema, ensure_ascii=False)
            for schema, reply in zip(schemas, known, strict=True)
        ],
    }
    (folder / "request.json").write_text(json.dumps(request), "utf-8")
    host = hosts.prepare(package)
    if options.optimized:
        host = replace(host, scratch=host.scratch.with_name("optimized"), flags=OPTIMIZED)
    with toolchain.building(host, swift, folder) as build:
        status = build.run_tests(TESTS, {"H2O_SCHEMAS": str(folder)}, say)
        if status:
            raise toolchain.failure("swift test", build.log)
        start = first_schema(build, folder / "vocabulary", options.seed)
    made = json.loads((folder / "replies.json").read_text("utf-8"))
    replies = [new or old for new, old in zip(made, known, strict=True)]
    (folder / "replies.json").write_text(json.dumps(replies), "utf-8")
    results = [judged(schema, reply) for schema, reply in zip(schemas, replies, strict=True)]
    for result in results:
        if result.fault:
            say(f"{result.fault}: {json.dumps(result.schema)}\n  {result.text!r}")
    version = lock.read(package).upstream_version
    built = f"built with{'' if options.optimized else 'out'} optimization"
    setting = Setting(options.seed, version, ROWS, MAX_TOKENS, PROMPT_CHARACTERS, built, EVERY)
    options.page.write_text(render(setting, results, start), "utf-8")


def first_schema(build: toolchain.Build, folder: Path, seed: int) -> Start:
    """Measure the first schema of several processes with a large vocabulary, and the next."""
    write_tokenizer(folder, seed)
    measured = []
    for _ in range(STARTS):
        if build.run_tests(START_TESTS, {"H2O_VOCABULARY": str(folder)}, say):
            raise toolchain.failure("swift test", build.log)
        measured.append(json.loads((folder / "seconds.json").read_text("utf-8")))
    first, following = zip(*measured, strict=True)
    return Start(TOKENS + len(MARKS), first, following)


def answered(path: Path) -> list[Any]:
    """Return the replies of the last run, None for one that failed."""
    return [None if each.get("error") else each for each in json.loads(path.read_text("utf-8"))]


def prompt() -> str:
    """Return the begin of the text that the demo model was not trained on."""
    return gzip.decompress(TEXT.read_bytes()).decode()[:PROMPT_CHARACTERS]


def say(line: str) -> None:
    """Print one line."""
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
