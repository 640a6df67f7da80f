"""Every file of Vendor/ against the manifest that was written with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from h2o_pack.errors import UserError
from h2o_pack.files import lock
from h2o_pack.files.layout import VENDOR_FOLDER, VENDOR_MANIFEST
from h2o_pack.vendoring import manifest
from h2o_pack.verify.differences import Difference, UsersFile, VendorState
from h2o_pack.verify.files import compared, listed, text_digest


@dataclass(frozen=True)
class VendorComparison:
    """Whether Vendor/ is there, the files compared, what differs, what is the user's."""

    state: VendorState
    files: int = 0
    differences: tuple[Difference, ...] = ()
    users: tuple[UsersFile, ...] = ()


def compare_vendor(package: Path, record: lock.Lock) -> VendorComparison:
    """Compare a package's Vendor/ with what was recorded when it was made."""
    folder = package / VENDOR_FOLDER
    if record.vendor is None:
        mine = UsersFile(VENDOR_FOLDER, "is yours: h2o-pack did not make it")
        return VendorComparison("not made", users=(mine,) if folder.exists() else ())
    if not folder.is_dir():
        what = f"is missing: make it again with `h2o-pack vendor {package}`"
        gone = Difference("vendor", VENDOR_FOLDER, "missing", what)
        return VendorComparison("missing", differences=(gone,))
    edited = {file.path: file for file in record.vendor.files}
    own = f"{VENDOR_FOLDER}/{VENDOR_MANIFEST}"
    found = []
    written: Mapping[str, str] = {path: file.after for path, file in edited.items()}
    differs = compared(package, "records", own, record.vendor.contents)
    if differs is None:
        try:
            written = manifest.read(folder).files
        except UserError as error:
            what = error.what.removeprefix(VENDOR_MANIFEST + " ")
            differs = Difference("records", own, "other", what)
    if differs is not None:
        found.append(differs)
    for path, digest in sorted(written.items()):
        difference = compared(package, "vendor", f"{VENDOR_FOLDER}/{path}", digest)
        if difference is None:
            continue
        if difference.kind == "changed" and path in edited:
            difference = told_of_edit(package, difference, edited[path])
        found.append(difference)
    users = tuple(added(package, written)) if differs is None else ()
    return VendorComparison("checked", len(written), tuple(found), users)


def told_of_edit(package: Path, difference: Difference, file: lock.EditedFile) -> Difference:
    """Say of a changed file that was edited whether it is upstream's own again."""
    if text_digest(package / difference.path) != file.before:
        return difference
    return replace(difference, detail="is as upstream has it: the edit is gone")


def added(package: Path, written: Mapping[str, str]) -> Iterator[UsersFile]:
    """Yield what was added to Vendor."""
    for path in listed(package, VENDOR_FOLDER):
        name = path.removeprefix(f"{VENDOR_FOLDER}/")
        if name not in written and name != VENDOR_MANIFEST:
            yield UsersFile(path, "is yours, among what is built")
