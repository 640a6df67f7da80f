"""Names of the folders and files in a package that other parts of the tool look for."""

from __future__ import annotations

MODEL_FOLDER = "Model"
MODEL_MANIFEST = "manifest.json"
VENDOR_FOLDER = "Vendor"
SYSTEM_PROMPT = "system-prompt.tensors"
"""In MODEL_FOLDER. In the format of safetensors, of which mlx-swift-lm takes every file for
weights."""
