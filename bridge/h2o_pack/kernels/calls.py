"""What LLVM's IR of kernels tells: calls, the names of kernels, threadgroup memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

DEFINED = re.compile(r"^define [^@]*@\"?([\w.$]+)\"?\(.*?^}", re.MULTILINE | re.DOTALL)
CALLED = re.compile(r"\b(?:call|invoke) [^@\n]*@\"?([\w.$]+)\"?\(")
VARIABLE = re.compile(r"h2o_threadgroup_variable\w*?Lm(\d+)EEPT_v$")
STRING = re.compile(r'^(@\.str[.\d]*) = .* c"([^"]*)\\00"', re.MULTILINE)
ANNOTATION = re.compile(r"@([\w.$]+)(?: to ptr addrspace\(\d\))?\)?, [^@]*(@\.str[.\d]*), ")


def read_calls(ir: str) -> dict[str, tuple[str, ...]]:
    """Return the functions that each defined function calls, in order."""
    return {
        match[1]: tuple(CALLED.findall(match[0].split("\n", 1)[1]))
        for match in DEFINED.finditer(ir)
    }


def reachable(calls: Mapping[str, tuple[str, ...]], name: str) -> set[str]:
    """Return a function and all that it calls, directly or not."""
    found = {name}
    waiting = [name]
    while waiting:
        new = set(calls.get(waiting.pop(), ())) - found
        found |= new
        waiting.extend(new)
    return found


def cycles(calls: Mapping[str, tuple[str, ...]]) -> Iterator[set[str]]:
    """Yield the sets of functions that call each other, or one that calls itself."""
    reached = {name: set().union(*(reachable(calls, c) for c in calls[name])) for name in calls}
    done: set[str] = set()
    for name in calls:
        if name in reached[name] and name not in done:
            cycle = {other for other in reached[name] if name in reached.get(other, ())}
            done |= cycle
            yield cycle


def read_names(ir: str) -> dict[str, str]:
    """Return {name of the kernel: name of its function}."""
    texts = dict(STRING.findall(ir))
    listed = re.search(r"^@llvm\.global\.annotations = .*$", ir, re.MULTILINE)
    found = ANNOTATION.findall(listed[0]) if listed else ()
    return {texts[text]: function for function, text in found}


def threadgroup_bytes(calls: Mapping[str, tuple[str, ...]], kernel: str) -> int:
    """Return the threadgroup memory of a kernel and the functions that it calls, in bytes."""
    total = 0
    for name in reachable(calls, kernel):
        for called in calls.get(name, ()):
            match = VARIABLE.search(called)
            total += int(match[1]) if match else 0
    return total
