"""Writes the shapes of the catalogue's models in mlx_lm, so that plans do not need mlx_lm.

    python -m tools.shapes

Run it after a change of facts/models.toml, of a bundled model, or of the version of mlx_lm.
"""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

from h2o_pack.errors import Problems
from h2o_pack.facts import known_models
from h2o_pack.files.text import read_object
from h2o_pack.hub.resolve import BUNDLED
from h2o_pack.models.catalogue import QUANTIZATION
from h2o_pack.models.config import DEFAULT_DTYPE, SHAPES, digest, read_dtype
from h2o_pack.models.trial import attempt


def shapes() -> str:
    """Return the file's text: a line per configuration, with the number of equal layers."""
    entries: dict[str, dict[str, Any]] = {}
    for model in known_models().values():
        if model.bundled:
            document = read_object(BUNDLED / model.bundled / "config.json")
        else:
            document = {"quantization": QUANTIZATION, **model.config}
        text = document.get("text_config", document)
        dtypes = {read_dtype(document, text, Problems())}
        if model.bundled:
            dtypes |= {"float32", "float16", DEFAULT_DTYPE}  # its tensors may have any of these
        for dtype in sorted(dtypes):
            described = attempt("describe", model.name, config=document, dtype=dtype, fill=True)
            runs = [(len(list(run)), layer) for layer, run in groupby(described["layers"])]
            entries[digest(document, dtype)] = {**described, "layers": runs}
    lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in entries.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    SHAPES.write_text(shapes(), "utf-8")
