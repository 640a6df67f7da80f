"""The results of `h2o-pack models`: their types for JSON, and their tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from itertools import groupby
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from h2o_pack.facts import KnownModel, Quality
from h2o_pack.memory.cache_bytes import fixed_bytes, token_bytes
from h2o_pack.model import Layer, Model, ModelConfig, ModelFile, Weights
from h2o_pack.printing import caption
from h2o_pack.results import Count, Result, doc

KIB, GB = 1 << 10, 10**9
WIDE = 120  # columns


@dataclass(frozen=True)
class CatalogueEntry:
    """A model of the catalogue; 0, "" and null mean not stated."""

    name: Annotated[str, doc("Name to give as --model.")]
    source: Annotated[str, doc("Source of the id and the numbers.")]
    hub: Annotated[str, doc("Id on the hub.")]
    revision: Annotated[str, doc("Branch, tag or commit on the hub.")]
    bundled: Annotated[str, doc("Folder in h2o-pack, for a bundled model.")]
    folder: Annotated[str, doc("Folder on this machine.")]
    license: Annotated[str, doc("License, as the model's card names it.")]
    tools: Annotated[bool | None, doc("Whether the chat template writes tools.")]
    thinking: Annotated[bool | None, doc("Whether the model can think before it answers.")]
    languages: Annotated[
        Count, doc("Number of languages that the model's card says it supports.")
    ]
    quality: Annotated[Quality | None, doc("Published results; null if none are known.")]
    model_type: Annotated[str, doc("Model type in config.json.")] = ""
    layers: Annotated[Count, doc("Decoder layers.")] = 0
    evicting_layers: Annotated[Count, doc("Layers that attend to the whole context.")] = 0
    heads: Annotated[Count, doc("Query heads.")] = 0
    kv_heads: Annotated[Count, doc("KV heads of a layer that evicts.")] = 0
    head_dim: Annotated[Count, doc("Elements of a key.")] = 0
    hidden_size: Annotated[Count, doc("Elements of a hidden state.")] = 0
    feed_forward: Annotated[Count, doc("Elements of a feed-forward layer.")] = 0
    vocabulary: Annotated[Count, doc("Tokens in the vocabulary.")] = 0
    context: Annotated[Count, doc("Tokens that the model can attend to.")] = 0
    tied_embeddings: Annotated[
        bool, doc("Whether the embedding table is also the output head.")
    ] = False
    weights_bytes: Annotated[Count, doc("Bytes of the language model's weights.")] = 0
    kv_bytes_per_token: Annotated[
        Count,
        doc("Bytes of keys and values of one token in 16 bits, in the layers that evict."),
    ] = 0
    fixed_bytes: Annotated[
        Count, doc("Bytes of full windows and recurrent states, in 16 bits.")
    ] = 0


@dataclass(frozen=True, kw_only=True)
class CatalogueResult(Result):
    """The models of the catalogue."""

    models: Annotated[
        tuple[CatalogueEntry, ...],
        doc("The known models, the best first by their published results."),
    ]


@dataclass(frozen=True)
class FixedBytes:
    """Bytes of caches that do not grow."""

    windows: Annotated[Count, doc("Bytes of layers that attend to a window.")]
    states: Annotated[Count, doc("Bytes of recurrent layers.")]


@dataclass(frozen=True)
class ModelDescription:
    """One model, described by its own files, and what is published of it."""

    id: Annotated[str, doc("Hub id, short name or folder name.")]
    commit: Annotated[str, doc("Commit on the hub; empty for folders.")]
    folder: Annotated[
        Path | None, doc("Folder with all files; null if they must be downloaded.")
    ]
    remarks: Annotated[tuple[str, ...], doc("Notes for the user of the model.")]
    config: ModelConfig
    kv_bytes_per_token: Annotated[
        dict[str, Count],
        doc("Bytes of keys and values of one token in the layers that evict, by storage."),
    ]
    fixed_bytes: FixedBytes
    weights: Weights
    files: Annotated[tuple[ModelFile, ...], doc("Files that inference needs.")]
    published: Annotated[
        CatalogueEntry | None, doc("Entry of the catalogue; null if the model has none.")
    ]


@dataclass(frozen=True, kw_only=True)
class ModelResult(Result):
    """One model of the catalogue, of a folder or of the hub."""

    model: ModelDescription


def catalogue_result(models: Iterable[tuple[KnownModel, Model | None]]) -> CatalogueResult:
    """Return the catalogue as --json prints it."""
    return CatalogueResult(models=tuple(entry(*model) for model in models))


def entry(row: KnownModel, model: Model | None) -> CatalogueEntry:
    """Return an entry of the catalogue, with the shapes of its model if they are known."""
    stated = {
        field.name: getattr(row, field.name)
        for field in fields(CatalogueEntry)
        if field.default is MISSING
    }
    if model is None:
        return CatalogueEntry(**stated)
    config, weights = model.config, model.weights
    return CatalogueEntry(
        **stated,
        model_type=config.model_type,
        layers=len(config.layers),
        evicting_layers=len(config.evicting),
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        hidden_size=config.hidden_size,
        feed_forward=config.intermediate_size,
        vocabulary=config.vocabulary,
        context=config.context,
        tied_embeddings=weights.tied_embeddings,
        weights_bytes=weights.bytes,
        kv_bytes_per_token=token_bytes(config)["16"],
        fixed_bytes=sum(fixed_bytes(config).values()),
    )


def model_result(model: Model, known: KnownModel | None) -> ModelResult:
    """Return one model as --json prints it; known: its row of the catalogue."""
    return ModelResult(
        model=ModelDescription(
            id=model.id,
            commit=model.commit,
            folder=model.folder,
            remarks=model.remarks,
            config=model.config,
            kv_bytes_per_token=token_bytes(model.config),
            fixed_bytes=FixedBytes(**fixed_bytes(model.config)),
            weights=model.weights,
            files=model.files,
            published=None if known is None else entry(known, model),
        )
    )


def print_catalogue(models: Iterable[CatalogueEntry], console: Console) -> None:
    """Show the catalogue; the shapes of models only on a wide screen."""
    wide = console.width >= WIDE
    columns = {**COLUMNS, **SHAPES} if wide else COLUMNS
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("name", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="left" if name in TEXT else "right", no_wrap=True)
    for model in models:
        table.add_row(model.name, *(cell(model) for cell in columns.values()))
    console.print(table)
    more = "A terminal of 120 columns shows IFEval, context and layers too."
    for text in (
        f"GB: weights. {MMLU_PRO} -: not known.",
        SHAPES_EXPLAINED if wide else more,
    ):
        caption(text, console)
    console.print("next: h2o-pack models NAME shows results, their source and layers")


def weights(model: CatalogueEntry) -> str:
    """Return the size of the weights in GB; "" if it is not stated."""
    digits = 2 if model.weights_bytes < 10 * GB else 1
    return f"{model.weights_bytes / GB:.{digits}f}" if model.weights_bytes else ""


def mmlu_pro(quality: Quality | None) -> str:
    """Return the result in MMLU-Pro, with a mark if the model thought."""
    if quality is None or quality.mmlu_pro is None:
        return "- "
    return f"{quality.mmlu_pro:.1f}{'*' if quality.thinking else ' '}"


def ifeval(quality: Quality | None) -> str:
    """Return the result in IFEval."""
    return "-" if quality is None or quality.ifeval is None else f"{quality.ifeval:.1f}"


def layers(model: CatalogueEntry) -> str:
    """Return the number of layers, and how many of them evict if not all do."""
    evicting, count = model.evicting_layers, model.layers
    return f"{evicting} of {count}" if evicting != count else f"{count or '-'}"


def yes_no(answer: bool | None) -> str:  # noqa: FBT001
    """Return an answer in words; "-" if it is not known."""
    return "-" if answer is None else "yes" if answer else "no"


COLUMNS: Mapping[str, Callable[[CatalogueEntry], str]] = {
    "GB": weights,
    "MMLU-Pro": lambda model: mmlu_pro(model.quality),
    "license": lambda model: model.license or "-",
    "tools": lambda model: yes_no(model.tools),
    "thinking": lambda model: yes_no(model.thinking),
    "languages": lambda model: f"{model.languages or '-'}",
}
"""The columns after a model's name, and what they show."""
SHAPES: Mapping[str, Callable[[CatalogueEntry], str]] = {
    "IFEval": lambda model: ifeval(model.quality),
    "context": lambda model: f"{model.context:,}" if model.context else "-",
    "layers": layers,
    "KiB/token": lambda model: f"{model.kv_bytes_per_token / KIB:g}" if model.layers else "-",
}
"""The further columns on a wide screen."""
SHAPES_EXPLAINED = (
    "IFEval: percent of instructions followed. layers: evicting layers of all layers. "
    "KiB/token: keys and values in 16 bits."
)
TEXT = ("license", "tools", "thinking")
MMLU_PRO = "MMLU-Pro: percent answered, published by the model's makers; * with thoughts."


def print_model(model: Model, known: KnownModel | None, console: Console) -> None:
    """Show what is published of one model, its description, and its remarks."""
    table = Table(title=escape(model.id), title_justify="left", show_header=False)
    published = {} if known is None else published_rows(known)
    for name, value in (*published.items(), *rows(model).items()):
        table.add_row(name, escape(value))
    console.print(table)
    for remark in model.remarks:
        caption(f"note: {remark}", console, "")


def published_rows(known: KnownModel) -> Mapping[str, str]:
    """Return the lines of a row of the catalogue."""
    lines = {
        "license": known.license or "-",
        "tools": yes_no(known.tools),
        "thinking": yes_no(known.thinking),
        "languages": f"{known.languages or '-'}",
    }
    quality = known.quality
    if quality is None:
        return lines | {"quality": "no published results known"}
    with_thoughts = ", with thoughts" if quality.thinking else ""
    results = (
        ("MMLU-Pro", quality.mmlu_pro, "of questions answered"),
        ("IFEval", quality.ifeval, "of instructions followed"),
    )
    for name, percent, meaning in results:
        known_percent = percent is not None
        lines[name] = f"{percent:g}% {meaning}{with_thoughts}" if known_percent else "-"
    return lines | {"published": f"{quality.source}\nread {quality.read}"}


def rows(model: Model) -> Mapping[str, str]:
    """Return the lines of the table of one model."""
    config, weights = model.config, model.weights
    quantized = f"{config.bits} bits, groups of {config.group_size}" if config.bits else "no"
    mixture = f", {config.experts_per_token} of {config.experts} experts"
    lines = {
        "type": config.model_type,
        "commit": model.commit or "-",
        "folder": str(model.folder or "not downloaded"),
        "layers": "\n".join(layer_lines(config.layers)),
        "query heads": f"{config.heads}",
        "hidden size": f"{config.hidden_size:,}, feed-forward {config.intermediate_size:,}"
        + (mixture if config.experts else ""),
        "vocabulary": f"{config.vocabulary:,}",
        "context": f"{config.context:,} tokens",
        "activations": config.dtype,
        "quantized": quantized,
        "weights": f"{weights.bytes:,} bytes, {weights.bytes_per_token:,} read per token",
        "embedding": "also the output head"
        if weights.tied_embeddings
        else "separate output head",
        "KV per token": "\n".join(
            f"{name}: {size:,} bytes" for name, size in token_bytes(config).items()
        ),
    }
    if any(fixed_bytes(config).values()):
        lines["other caches"] = ", ".join(
            f"{name} {size:,} bytes" for name, size in fixed_bytes(config).items() if size
        )
    lines["files"] = f"{len(model.files)}, {model.size / GB:.3f} GB" if model.files else "-"
    return lines


def layer_lines(layers: tuple[Layer, ...]) -> list[str]:
    """Return a line for each kind of layer, with the number of equal layers."""
    lines = []
    ordered = sorted(layers, key=lambda layer: (layer.kind, str(layer)))
    for layer, alike in groupby(ordered):
        parts = [f"{len(list(alike))} {layer.kind}"]
        if layer.kv_heads:
            dims = (
                f"{layer.key_dim}"
                if layer.key_dim == layer.value_dim
                else f"{layer.key_dim} (values {layer.value_dim})"
            )
            parts.append(f"{layer.kv_heads} KV heads of {dims}")
        if layer.window:
            parts.append(f"window {layer.window:,}")
        if layer.state_bytes:
            parts.append(f"state {layer.state_bytes:,} bytes")
        lines.append(", ".join(parts))
    return lines
