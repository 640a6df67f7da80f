"""Names of the folders and files in a package that other parts of the tool look for."""

from __future__ import annotations

APP_FOLDER = "App"
"""The app: written once, then the user's."""
NEW_APP_FOLDER = "App.new"
"""A newer scaffold of the app, beside the user's."""
MODEL_FOLDER = "Model"
"""Of the model; several models have folders of their own in it."""
MODEL_MANIFEST = "manifest.json"
REPLACED_FOLDER = "Replaced"
"""Files of ours that the user changed, from before they were written anew."""
VENDOR_FOLDER = "Vendor"
SYSTEM_PROMPT, ADAPTER = "system-prompt.tensors", "adapters.tensors"
"""In MODEL_FOLDER. In the format of safetensors, of which mlx-swift-lm takes every file for
weights."""
ADAPTER_CONFIG = "adapter_config.json"
TRACES_FOLDER = "Traces"
"""In the sources of the model's module: what its app replays on a device."""
VENDOR_MANIFEST = "manifest.json"
