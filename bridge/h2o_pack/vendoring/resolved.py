"""Package.resolved: makes SwiftPM choose the versions that a package was tested with."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from h2o_pack.facts import Pin

NAME = "Package.resolved"


def resolved(known: Mapping[str, Pin], names: Iterable[str]) -> str:
    """Write the file that makes SwiftPM choose the versions of our pins."""
    chosen = [
        {
            "identity": pin.name,
            "kind": "remoteSourceControl",
            "location": pin.source,
            "state": {"revision": pin.commit, "version": pin.version},
        }
        for pin in (known[name] for name in sorted(known.keys() & set(names)))
    ]
    return json.dumps({"pins": chosen, "version": 3}, indent=2) + "\n"
