"""Writes a table of docs/which-models-work.md: what becomes of each model type's config.json.

    python -m tools.model_types FOLDER

FOLDER contains a checkout of mlx-swift-lm. For each type that it shares with mlx_lm, the
program resolves a small config.json, decodes the result with mlx-swift-lm's own decoders,
compiled without MLX, and compares every value. Run it after a change of the pinned version, of
mlx_lm's version, or of `h2o_pack.resolved`; it needs Swift.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from docs.docgen import markdown
from h2o_pack.errors import UserError
from h2o_pack.facts import swift_models
from h2o_pack.models.loading import hollow_model
from h2o_pack.models.trial import attempt
from h2o_pack.resolved.configuration import resolve_configuration
from h2o_pack.resolved.decoders import decoder_sources, differences
from h2o_pack.resolved.table import decoder, table
from tests.bridge.models.small_configs import config_for_swift

KEPT = ("model_type", "max_position_embeddings", "hidden_size", "num_attention_heads")
"""Keys that stay in the shortest config.json, because others must fit them."""
PAGE = Path(__file__).parents[1] / "docs/which-models-work.md"
MARK = "model types"
MAIN = """
import Foundation

while let line = readLine() {
    let result: Data
    do {
        result = try decodeConfiguration(Data(line.utf8))
    } catch {
        result = try JSONEncoder().encode(["error": String(describing: error)])
    }
    print(String(decoding: result, as: UTF8.self))
}
"""
TEXT = """\
<!-- Written by `python -m tools.model_types`; do not edit. -->
mlx-lm {mlx_lm}, {swift}. The columns: the kinds of scaling of rotary embeddings that
mlx-swift-lm computes, besides none, and the model types with these. A model that needs another
kind is refused.

{table}
{different}"""
SPELLINGS = {"yarn": ("deepseek_yarn", "telechat3-yarn"), "longrope": ("su",)}
"""Kinds of scaling with other names, which the table leaves out."""


def section(folder: Path) -> str:
    """Return the section's text for the sources of mlx-swift-lm in a folder."""
    types = sorted(swift_models())
    full = [config_for_swift(model_type) for model_type in types]
    originals = [*full, *map(shortest, full)]
    resolved = [outcome(document) for document in originals]
    readable = [document if isinstance(document, dict) else {} for document in resolved]
    results = [result(*pair) for pair in zip(resolved, decoded(folder, readable), strict=True)]
    by_scaling: dict[str, list[str]] = {}
    different = []
    for index, model_type in enumerate(types):
        by_scaling.setdefault(scaling(model_type), []).append(f"`{model_type}`")
        same = " / ".join(dict.fromkeys(results[index :: len(types)]))
        if same != "equal":
            different.append(f"\n- `{model_type}`: {same}")
    rows = [(kinds, ", ".join(names)) for kinds, names in by_scaling.items()]
    return TEXT.format(
        mlx_lm=version("mlx-lm"),
        swift=table()["source"],
        table=markdown.table(("scaling", "model types"), rows),
        different="".join(different),
    )


def outcome(document: Mapping[str, Any]) -> dict[str, Any] | str:
    """Return a resolved config.json, or why it is refused."""
    try:
        return resolve_configuration(document, {}, str(document["model_type"])).document
    except UserError as error:
        return error.what


def decoded(folder: Path, documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what Swift decodes of each document; {"error": ...} if it cannot."""
    with tempfile.TemporaryDirectory() as name:
        for file, text in {**decoder_sources(folder), "main.swift": MAIN}.items():
            Path(name, file).write_text(text, "utf-8")
        sources = sorted(str(path) for path in Path(name).glob("*.swift"))
        program = Path(name, "decode")
        command = ["swiftc", "-Onone", "-o", str(program), *sources]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)  # noqa: S603
        lines = "".join(json.dumps(document) + "\n" for document in documents)
        run = subprocess.run([program], input=lines, capture_output=True, check=True, text=True)  # noqa: S603
    return [json.loads(line) for line in run.stdout.splitlines()]


def shortest(document: dict[str, Any]) -> dict[str, Any]:
    """Return a config.json without the keys for which mlx_lm has a value of its own."""
    with hollow_model(document, {}) as folder:
        call = attempt("arguments", "", folder=str(folder))["calls"][-1]
    short = copy.deepcopy(document)
    place = short[call["inside"]] if call["inside"] else short
    for name, default in call["defaults"].items():
        if default is not None and name not in KEPT:
            place.pop(name, None)
    return short


def result(document: dict[str, Any] | str, answer: dict[str, Any]) -> str:
    """Say whether Swift reads the values of a resolved config.json."""
    if isinstance(document, str):
        return f"refused: {document}"
    if "error" in answer:
        return f"cannot be read: {answer['error']}"
    return "; ".join(differences(answer, document)) or "equal"


def scaling(model_type: str) -> str:
    """Return the kinds of scaling that mlx-swift-lm computes for a model type."""
    own = decoder(table()["types"][model_type])
    text = next(iter(own.inner.values()), own)
    others = {other for kind in text.rope for other in SPELLINGS.get(kind, ())}
    return ", ".join(kind for kind in text.rope if kind not in others) or "none"


if __name__ == "__main__":
    text = section(Path(sys.argv[1]))
    PAGE.write_text(markdown.replaced(PAGE.read_text("utf-8"), MARK, text), "utf-8")
