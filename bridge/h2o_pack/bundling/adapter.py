"""Puts a LoRA adapter beside the model's weights."""

from __future__ import annotations

import threading
from pathlib import Path

from h2o_pack.bundling.manifest import BundledFile, Manifest, write
from h2o_pack.files.digests import copy, sha256_of
from h2o_pack.files.layout import ADAPTER, ADAPTER_CONFIG, MODEL_FOLDER
from h2o_pack.models.adapter import WEIGHTS, Adapter


def add_adapter(adapter: Adapter, package: Path, bundled: Manifest) -> Manifest:
    """Copy an adapter into a package whose Model/ is filled, and name it in its manifest.

    Returns:
        The manifest, whose digest is now that of the adapted model.

    """
    target = package / MODEL_FOLDER
    config = target / ADAPTER_CONFIG
    config.write_text(adapter.to_json(), encoding="utf-8", newline="\n")
    weights = target / ADAPTER
    digest = copy(adapter.folder / WEIGHTS, weights, lambda _amount: None, threading.Event())
    files = (
        *bundled.files,
        BundledFile(ADAPTER_CONFIG, config.stat().st_size, sha256_of(config)),
        BundledFile(ADAPTER, weights.stat().st_size, digest),
    )
    manifest = Manifest(bundled.model, files, bundled.commit)
    write(package, manifest)
    return manifest
