"""What Macs run is written for what macOS has: bash 3.2 and BSD's tools."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ON_DEBIAN = {".ci/run"}
SCRIPTS = sorted(
    path
    for path in (ROOT / ".ci").rglob("*")
    if path.is_file()
    and path.read_bytes().startswith(b"#!/usr/bin/env bash\n")
    and path.relative_to(ROOT).as_posix() not in ON_DEBIAN
)
# What only newer bashes have, then what only GNU's tools have or Linux alone.
UNKNOWN = {
    "bash": (
        r"\b(mapfile|readarray|coproc)\b",
        r"\b(declare|local|typeset) -[a-zA-Z]*[An]",
        r"\$\{\w+(\[@\])?(,|\^|@[A-Z])",
        r"\$\{\w+\[-\d",
        r"\|&|&>>|\bwait -n\b|\[\[ -v |\bprintf -v \w+\[|%\(.*\)T",
        r"\bshopt -s \w*(globstar|lastpipe|inherit_errexit)",
    ),
    "tools": (
        r"\b(timeout|nproc|realpath|tac|shuf|numfmt|setsid|ldd|[a-z0-9]+sum)\b(?!=)",
        r"\bsed -(\w*i|i\w*) ",
        r"\b(sed|grep)\b.*\\[+?|bwsd]",
        r"\bgrep -\w*P",
        r"\bdate -\w*d|--date\b",
        r"\bstat -\w*c|\b(stat|ls|du|cp|mv|ln|sort|mktemp|touch|head|tail|wc|cut|tr) --\w",
        r"\bfind\b.* -(printf|executable|readable)\b|\bfind -",
        r"\bxargs -\w*[rd]\b",
        r"\b(head|tail) -n -|\bcp -\w*t\b|\bln -\w*r\b|\bbase64 -w|\bdu -\w*b\b",
        r"\breadlink -\w*[em]",
    ),
}
EXAMPLES = [
    'mapfile -t lines <"$file"', "declare -A seen", "${name,,}", "${words[-1]}",
    "make |& tee log", "shopt -s globstar", "timeout 5 make", "make -j $(nproc)",
    "sed -i 's/a/b/' file", r"grep 'a\+' file", "grep -oP 'a' file", "date -d yesterday",
    "stat -c %s file", "sort --version-sort", "find . -printf %p", "find -name x",
    "xargs -r rm", "head -n -1", "sha256sum file", "readlink -e file",
]  # fmt: skip
"""Each of these would end a step on a Mac."""
IN_USE = [
    "sed -n 's/a/b/p'", "sed -i.before 's/a/b/' file", "sort -V", "head -1", "${version%%.*}",
    "readlink -f file", "--checksum=1", "WAIT_SECONDS=1 sleep 1", "find . -name x -o -name y",
]  # fmt: skip


def code(path: Path) -> str:
    """Return the lines of a script or a Makefile that are not comments."""
    lines = path.read_text("utf-8").splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("#"))


def unknown(text: str) -> list[str]:
    patterns = (pattern for several in UNKNOWN.values() for pattern in several)
    return [found[0] for pattern in patterns for found in re.finditer(pattern, text)]


@pytest.mark.parametrize("example", EXAMPLES)
def test_what_a_mac_lacks_is_found(example):
    assert unknown(example)


@pytest.mark.parametrize("example", IN_USE)
def test_what_a_mac_has_is_not(example):
    assert unknown(example) == []


@pytest.mark.parametrize("path", [*SCRIPTS, ROOT / "Makefile"], ids=lambda path: path.name)
def test_macos_has_all_that_it_uses(path):
    assert unknown(code(path)) == []


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_no_array_may_be_empty_where_it_is_expanded(path):
    # With `set -u` bash 3.2 takes an empty array for one that is not set.
    text = code(path)
    for name in re.findall(r"^\s*(\w+)=\(\)", text, re.MULTILINE):
        assert f'"${{{name}[@]}}"' not in text


def test_the_scripts_of_macs_are_among_them():
    names = {path.relative_to(ROOT).as_posix() for path in SCRIPTS}
    assert {".ci/wheel", ".ci/use", ".ci/apple/app", ".ci/apple/simulator"} <= names
