"""The app of a package: written once, and the user's from then on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.files import lock
from h2o_pack.files.layout import APP_FOLDER, NEW_APP_FOLDER
from h2o_pack.files.write import Content, as_bytes

AppState = Literal["written", "kept", "outdated", "offered", "removed"]
STATES: dict[AppState, str] = {
    "written": "written to App, and yours from now on",
    "kept": "yours, left as it is",
    "outdated": "yours, left as it is; --app writes a newer one to App.new",
    "offered": "yours, left as it is; a newer one is in App.new",
    "removed": "you removed it; --app writes it again",
}


@dataclass(frozen=True)
class EarlierApp:
    """The app of the package that is at the output already.

    exists: whether there is an App folder. scaffold: sha256 of the files that were last
    written to App or App.new, None if none were. wanted: whether the user asks for today's.
    """

    exists: bool = False
    scaffold: Mapping[str, str] | None = None
    wanted: bool = False

    @property
    def place(self) -> str | None:
        """The folder to which the scaffold is written, None to write none."""
        if self.exists:
            return NEW_APP_FOLDER if self.wanted else None
        return APP_FOLDER if self.wanted or self.scaffold is None else None

    def state(self, scaffold: Mapping[str, str]) -> AppState:
        """Say what becomes of the app, by the digests of today's scaffold."""
        if self.place is not None:
            return "offered" if self.exists else "written"
        if not self.exists:
            return "removed"
        return "kept" if self.scaffold == scaffold else "outdated"


def earlier_app(output: Path, *, wanted: bool = False) -> EarlierApp:
    """Find the app of an earlier package at the output."""
    recorded = lock.read(output).app if (output / lock.NAME).exists() else None
    return EarlierApp(os.path.lexists(output / APP_FOLDER), recorded, wanted)


def without_offered(files: Mapping[str, Content], output: Path) -> dict[str, Content]:
    """Leave out what App.new has already.

    Raises:
        UserError: App.new has something else there.

    """
    there = {
        path: output / path
        for path in files
        if path.startswith(f"{NEW_APP_FOLDER}/") and os.path.lexists(output / path)
    }
    for path, place in there.items():
        if not place.is_file() or place.read_bytes() != as_bytes(files[path]):
            raise UserError(
                f"{output / NEW_APP_FOLDER} exists and has another {place.name}",
                remedy="Take what you want of it into App, delete it, and run this again.",
                code=ExitCode.OUTPUT,
            )
    return {path: each for path, each in files.items() if path not in there}
