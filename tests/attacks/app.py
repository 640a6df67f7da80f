"""What an app is given, changed: JSON Schemas, and saved conversations whose digest is right.

A process reads many of them, and says each one's name first: a trap ends it.
"""

import hashlib
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

from tests.attacks import mutations
from tests.conversations.__main__ import demo
from tests.conversations.program import KILLED, PREFIX, Program, build

ATTACKS = "H2OSessionsTests.AttackTests/testEachIsRefusedOrUsed"
FOLDER = Path(__file__).parents[2] / "build/attacks"
BATCH = 50
LONGEST = 120
"""Seconds that a batch may take."""
DIGEST = b'"0.digest":"'
REFUSED = "refused: "

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z]+[0-9]{2}$"},
        "nick": {"type": "string", "minLength": 1, "maxLength": 9},
        "age": {"type": "number", "minimum": 0, "maximum": 130},
        "tags": {
            "type": "array",
            "items": {"enum": ["a", 1, None]},
            "minItems": 1,
            "maxItems": 4,
        },
        "next": {"oneOf": [{"$ref": "#/$defs/end"}, {"const": {"x": [1.5]}}]},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
    "$defs": {"end": {"type": ["null", "array"], "items": {"$ref": "#"}}},
}


def built() -> Program:
    """Build the tests of a package on the stand-in."""
    return build(demo(FOLDER / "Demo"), {})


def attacks(program: Program, seeds: range, end: float) -> Iterator[tuple[int, str]]:
    """Attack with seeds until a time, but with one batch at least.

    Yield each seed with "", or with what the process said last.
    """
    with tempfile.TemporaryDirectory() as name:
        original, folder = Path(name, "first"), Path(name, "attacks")
        turns = replace(program, settings={"H2O_CONVERSATION_TURNS": "3"})
        turns.run(KILLED, original)
        for start in range(0, len(seeds), BATCH):
            if start > 0 and time.monotonic() > end:
                return
            batch = seeds[start : start + BATCH]
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for seed in batch:
                change(Random(seed), folder / str(seed), original / "saved")
            lines, what = read(program, folder)
            if what:
                yield lines[-1] if lines else batch[0], what
                return
            yield from ((seed, "") for seed in batch)


def read(program: Program, folder: Path) -> tuple[list[int], str]:
    """Let the process read a folder; return the seeds it came to, and its words if it fails."""
    names, _, what = answers(program, folder)
    return [int(name.partition(".")[0]) for name in names], what


def answers(program: Program, folder: Path) -> tuple[list[str], list[str], str]:
    """Let the process read a folder.

    Return the names that it came to, why it refused conversations, and its words if it fails.
    """
    process = program.start(ATTACKS, folder)
    try:
        output, _ = process.communicate(timeout=LONGEST)
    except subprocess.TimeoutExpired:
        process.kill()
        output = process.communicate()[0] + f"\nstill running after {LONGEST} s"
        process.returncode = 1
    said = {
        prefix: [
            line.removeprefix(prefix) for line in output.splitlines() if line.startswith(prefix)
        ]
        for prefix in (PREFIX, REFUSED)
    }
    return said[PREFIX], said[REFUSED], output[-3000:] if process.returncode else ""


def change(random: Random, place: Path, original: Path) -> None:
    """Write a changed schema, or a changed copy of a saved conversation."""
    if random.random() < 0.5:
        text = mutations.document(random, PERSON)
        if random.random() < 0.3:
            count = random.choice([2, 30, 2000])
            text = '{"items":' * count + text + "}" * count
        place.with_suffix(".json").write_text(text, "utf-8", errors="replace")
        return
    shutil.copytree(original, place)
    files = sorted(path for path in place.rglob("*") if path.is_file())
    path = random.choice(files)
    path.write_bytes(changed(random, path.read_bytes()))


def changed(random: Random, data: bytes) -> bytes:
    """Change the header of a file, or its bytes, and mostly make its digest right again."""
    length = int.from_bytes(data[:8], "little")
    kind = random.randrange(4)
    if kind == 0:
        data = mutations.data(random, data)
    elif kind == 1:
        header = mutations.document(random, json.loads(data[8 : 8 + length]))
        data = with_header(header, data[8 + length :])
    else:
        header = json.loads(data[8 : 8 + length])
        strings = header["__metadata__"]
        name = random.choice(
            [string for string in strings if string not in ("0.digest", "0.kind")]
        )
        if random.random() < 0.3:
            strings[name] = mutations.text(random, strings[name])
        else:
            strings["0.state"] = mutations.document(random, json.loads(strings["0.state"]))
        data = with_header(json.dumps(header, separators=(",", ":")), data[8 + length :])
    return sealed(data) if random.random() < 0.9 else data


def with_header(header: str, rest: bytes) -> bytes:
    """Return a safetensors file."""
    head = header.encode("utf-8", "replace")
    return len(head).to_bytes(8, "little") + head + rest


def sealed(data: bytes) -> bytes:
    """Put the right digest where a file has one; Swift computes it with zeros in its place."""
    at = data.find(DIGEST)
    if at < 0:
        return data
    begin, end = at + len(DIGEST), at + len(DIGEST) + 64
    zeroed = data[:begin] + bytes(64) + data[end:]
    return data[:begin] + hashlib.sha256(zeroed).hexdigest().encode() + data[end:]
