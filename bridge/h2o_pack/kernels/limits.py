"""What Metal limits in a kernel: threadgroup memory and the indices of buffers."""

from __future__ import annotations

import re

from h2o_pack.kernels.calls import read_calls, read_names, threadgroup_bytes
from h2o_pack.kernels.findings import Finding
from h2o_pack.kernels.interface import kernels_of
from h2o_pack.kernels.prepared import Prepared
from h2o_pack.kernels.translation import Translation

# Metal feature set tables: every GPU since the A11 (Apple family 4).
THREADGROUP_BYTES = 32 * 1024
LAST_BUFFER = 30


def check_limits(translation: Translation, prepared: Prepared) -> list[Finding]:
    """Return the kernels of a library that ask for more than Metal has."""
    source = prepared.shown(str(prepared.folder / translation.library))
    calls = read_calls(translation.ir)
    found = []
    for name, function in read_names(translation.ir).items():
        taken = threadgroup_bytes(calls, function)
        if taken > THREADGROUP_BYTES:
            text = f"{name} takes {taken} bytes of threadgroup memory, of {THREADGROUP_BYTES}"
            found.append(Finding(source, 0, text))
    return sorted(found)


def check_buffers(prepared: Prepared) -> list[Finding]:
    """Return the buffers whose index Metal does not have, or that are two's at once."""
    found = []
    for inside, shown in prepared.own.items():
        text = (prepared.folder / inside).read_text("utf-8")
        for kernel, buffers in kernels_of(text).items():
            always = [each.index for each in buffers if not each.gate]
            for buffer in buffers:
                line = line_of(text, kernel, buffer.index)
                if buffer.index > LAST_BUFFER:
                    words = f"{kernel}: buffer {buffer.index}, but the last is {LAST_BUFFER}"
                    found.append(Finding(shown, line, words))
                if always.count(buffer.index) > 1 or (buffer.gate and buffer.index in always):
                    words = f"{kernel}: {buffer.name} shares the index {buffer.index}"
                    found.append(Finding(shown, line, words))
    return sorted(found)


def line_of(text: str, kernel: str, index: int) -> int:
    """Return the line of a kernel's buffer."""
    begin = re.search(rf"\b{kernel}\s*\(", text)
    at = re.compile(rf"\bbuffer\(\s*{index}\s*\)").search(text, begin.end() if begin else 0)
    return text.count("\n", 0, at.start()) + 1 if at else 0
