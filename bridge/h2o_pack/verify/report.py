"""What `verify` found, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from h2o_pack.bundling.space import shown
from h2o_pack.verify.differences import Verification

if TYPE_CHECKING:
    from rich.console import Console


VENDOR = {
    "checked": "Vendor among them",
    "not made": "no Vendor yet",
    "missing": "Vendor is missing",
}


def print_verification(found: Verification, console: Console) -> None:
    """Name every difference, or say what was compared."""
    for difference in found.differences:
        console.print(f"{difference.part}: {difference}", markup=False)
    for file in found.users:
        console.print(f"yours: {file}", markup=False)
    size = shown(found.bytes)
    how = f"{size} of the model by size only" if found.quick else f"{size} of the model read"
    compared = f"{found.files} files, {how}, {VENDOR[found.vendor]}"
    count = len(found.differences)
    if not count:
        console.print(f"as written: {compared}", markup=False)
        return
    console.print(
        f"{count} difference{'s' if count > 1 else ''} in {compared}. To write what was "
        "generated anew, run the `h2o-pack ios` command of this package again.",
        markup=False,
    )
