"""What drifted in upstream, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from h2o_pack.upstream.check import UpstreamResult


def print_upstream(found: UpstreamResult, console: Console) -> None:
    """Name everything that drifted, then what was looked at."""
    for drift in found.drifted:
        console.print(f"{drift.file}: {drift.found}", markup=False)
        console.print(f"  expected: {drift.expected}", markup=False)
        console.print(f"  relied on by: {drift.used_by}", markup=False)
    for each in found.looked:
        name = f"{each.package} {each.version}".rstrip()
        console.print(f"{name}: {each.expectations} expectations, {each.where}", markup=False)
    if found.absent:
        console.print(f"not there: {', '.join(found.absent)}", markup=False)
    count = len(found.drifted)
    console.print(f"{count} drifted" if count else "as expected", markup=False)
