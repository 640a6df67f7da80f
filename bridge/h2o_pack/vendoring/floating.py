"""Refuses vendored packages whose own dependencies SwiftPM would fetch and choose."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.facts.coexistence import identity

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

REMOTE = re.compile(r"\.package\(\s*(?:name:[^,]*,\s*)?(?:url|id):\s*\"([^\"]*)\"")


def refuse_floating(vendor_folder: Path, shared: Collection[str]) -> None:
    """Check that manifests depend on folders, and on packages that an app may share.

    A version that SwiftPM chooses when it resolves a package may be another one
    tomorrow; a path is what was vendored.
    """
    for manifest in sorted(vendor_folder.glob("*/Package*.swift")):
        for address in REMOTE.findall(manifest.read_text("utf-8")):
            if identity(address) in shared:
                continue
            name = manifest.relative_to(vendor_folder).as_posix()
            raise UserError(
                f'{name} depends on "{address}", which would be fetched when it is built',
                where=str(manifest),
                remedy="The edits of this version of h2o-pack are for other sources: "
                "use those that it pins, see `h2o-pack vendor --help`.",
                code=ExitCode.VERSION,
            )
