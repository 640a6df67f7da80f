"""Finds what describes the app in a folder, and reads all of it."""

from __future__ import annotations

from pathlib import Path

from h2o_pack.coexistence.app import App
from h2o_pack.coexistence.manifest import read_manifest
from h2o_pack.coexistence.project import read_project
from h2o_pack.coexistence.resolved import IN_WORKSPACE, read_resolved
from h2o_pack.doctor.surroundings import Surroundings
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.vendoring.resolved import NAME


def read_app(folder: Path, machine: Surroundings) -> App:
    """Read an app's manifest, Xcode projects and resolved versions.

    Raises:
        UserError: the folder has none of them.

    """
    folder = folder.resolve()
    if folder.suffix in (".xcodeproj", ".xcworkspace"):
        folder = folder.parent
    projects = sorted(folder.glob("*.xcodeproj"))
    workspaces = [
        *sorted(folder.glob("*.xcworkspace")),
        *(each / "project.xcworkspace" for each in projects),
    ]
    manifest = folder / "Package.swift"
    if not (manifest.is_file() or projects or workspaces):
        raise UserError(
            "no Package.swift and no Xcode project in this folder",
            where=str(folder),
            remedy="Give the folder in which the app's Package.swift or .xcodeproj is.",
            code=ExitCode.USAGE,
        )
    app = read_manifest(folder, machine) if manifest.is_file() else App(folder)
    for project in projects:
        app += read_project(folder, project)
    for path in (folder / NAME, *(each / IN_WORKSPACE for each in workspaces)):
        if path.is_file():
            app += read_resolved(folder, path)
    return app
