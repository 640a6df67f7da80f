"""A model's files: which of them packages need, and their tensors.

A safetensors file is 8 bytes with the length of a JSON header, the header, then the tensors'
bytes: https://huggingface.co/docs/safetensors
"""

from __future__ import annotations

import fnmatch
import math
import os
import stat
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from h2o_pack.errors import Problems, UserError, model_error, shown, unreadable
from h2o_pack.files.paths import CONFIG, from_here, reason, why_unsafe
from h2o_pack.files.text import (
    CONFIG_BYTES,
    INDEX_BYTES,
    parse_object,
    read_object,
    refuse_pointer,
)
from h2o_pack.model import Contents, Model, ModelFile, Tensor, Weights
from h2o_pack.models.config import describe
from h2o_py.files import open_regular

INDEX = "model.safetensors.index.json"
WEIGHTS = "model*.safetensors"
TOKENIZER = "tokenizer.json"
TEMPLATE_FILE, TEMPLATE_JSON, TOKENIZER_CONFIG = TEMPLATE_FILES = (
    "chat_template.jinja",
    "chat_template.json",
    "tokenizer_config.json",
)
SAMPLING_FILE = "generation_config.json"
TEMPLATE_BYTES = 16 << 20  # of a file; some tokenizer_config.json list a vocabulary
NOTICE_BYTES = 1 << 20
NEEDED = (
    CONFIG,
    SAMPLING_FILE,
    WEIGHTS,
    INDEX,
    TOKENIZER,
    *TEMPLATE_FILES,
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
)
IN_MLX = "Choose the same model in MLX's format: see https://huggingface.co/mlx-community."
CONVERT = "Convert the model: `python -m mlx_lm convert --hf-path MODEL -q`."
OTHER_WEIGHTS = {
    "*.gguf": ("GGUF files, which only llama.cpp reads", IN_MLX),
    "*.bin": ("weights of PyTorch (.bin)", CONVERT),
    "*.pth": ("weights of PyTorch (.pth)", CONVERT),
    "*.safetensors": ("weights under other names, which mlx_lm does not load", CONVERT),
}
"""What files of weights that mlx_lm does not load are, and what to do, by their names."""
CARD = "readme.md"
NOTICES = (CARD, "license*", "licence*", "copying*", "notice*", "use_policy*")
"""Names of files with the terms on which a model may be passed on, in lower case."""


def belongs(name: str) -> bool:
    """Whether a file of a model repository goes into packages."""
    return inference_needs(name) or is_notice(name)


def is_notice(name: str) -> bool:
    """Whether a file is the model card, or the text of a license or notice."""
    return any(fnmatch.fnmatchcase(name.lower(), glob) for glob in NOTICES) and "/" not in name


def text_files(files: Iterable[ModelFile]) -> dict[str, int]:
    """Return {name: size limit in bytes} of the files with texts of a model's makers."""
    notices = [f.path for f in files if is_notice(f.path) and f.size <= NOTICE_BYTES]
    return {
        **dict.fromkeys(TEMPLATE_FILES, TEMPLATE_BYTES),
        SAMPLING_FILE: CONFIG_BYTES,
        **dict.fromkeys(notices, NOTICE_BYTES),
    }


def inference_needs(name: str) -> bool:
    """Whether a file of a model repository is needed to run the model."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in NEEDED) and "/" not in name


def holds_weights(name: str) -> bool:
    """Whether mlx_lm loads weights from a file."""
    return fnmatch.fnmatchcase(name, WEIGHTS) and "/" not in name


def refuse_other_folder(folder: Path, names: Collection[str]) -> None:
    """Refuse a folder that has nothing of a model; names: of its files."""
    kinds = (CONFIG, TOKENIZER, WEIGHTS, *OTHER_WEIGHTS)
    if not any(fnmatch.filter(names, kind) for kind in kinds):
        raise model_error(
            f"{shown(str(from_here(folder)))} is not the folder of a model: it has no {CONFIG} "
            "and no weights",
            "Give a model's folder, a short name of `h2o-pack models`, or an id on "
            "huggingface.co.",
        )


def check_complete(names: Collection[str], problems: Problems) -> None:
    """Add errors for missing files that inference needs; names: of all files."""
    if not any(map(holds_weights, names)):
        if kind := next((kind for kind in OTHER_WEIGHTS if fnmatch.filter(names, kind)), None):
            what, remedy = OTHER_WEIGHTS[kind]
            problems.add(f"there is no {WEIGHTS}, but {what}", remedy)
            return
        problems.add(f"there is no {WEIGHTS}")
    if CONFIG not in names:
        problems.add(f"there is no {CONFIG}")
    if TOKENIZER not in names:
        problems.add(f"there is no {TOKENIZER}")


LENGTH = 8
MAX_HEADER = 100 << 20  # the format's own limit
MAX_DIMENSIONS = 32
# Bytes of an element of the types that mlx 0.31.1 loads (mlx/io/safetensors.cpp).
BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1,
    "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4,
    "U64": 8, "I64": 8, "C64": 8,
}  # fmt: skip


def header_length(first: bytes, size: int, name: str, where: str) -> int:
    """Read the header's length from a file's first 8 bytes; UserError if it is impossible."""
    refuse_pointer(first, name, where)
    problems = Problems(where)
    if len(first) < LENGTH or size < LENGTH:
        problems.fail(
            f"{name} is not a safetensors file: it has only {min(len(first), size)} bytes"
        )
    length = int.from_bytes(first[:LENGTH], "little")
    if length > MAX_HEADER:
        problems.fail(
            f"{name} is not a safetensors file: its header would be {shown(length)} bytes "
            "long, but at most 100 MiB are allowed"
        )
    if length < len("{}") or LENGTH + length > size:
        problems.fail(
            f"{name} is incomplete or damaged: its header would be {length} bytes long, but "
            f"the file has {size}"
        )
    return length


def parse_header(header: bytes, size: int, name: str, where: str) -> tuple[Tensor, ...]:
    """Read a header, and check it against the size of the whole file.

    Raises UserError: all tensors with an impossible description.
    """
    document = parse_object(header, f"the header of {name}", where, MAX_HEADER, unique=True)
    problems = Problems(where)
    data = size - LENGTH - len(header)
    spans = []
    tensors = []
    for tensor, fields in document.items():
        if tensor == "__metadata__":
            continue
        title = f"{name}: tensor {shown(tensor)}"
        try:
            begin, end = byte_range(fields)
        except ValueError as error:
            problems.add(f"{title} {error}")
            continue
        spans.append((begin, end, tensor))
        tensors.append(Tensor(tensor, fields["dtype"], end - begin, tuple(fields["shape"])))
    spans.sort()
    for (_, end, first), (begin, other_end, second) in pairwise(spans):
        if begin < end and begin < other_end:
            problems.add(
                f"{name}: tensors {shown(first)} and {shown(second)} overlap in the file"
            )
    end = max((end for _, end, _ in spans), default=0)
    if end > data:
        problems.add(f"{name} is incomplete: {data:,} of {end:,} bytes of weights are there")
    problems.refuse()
    return tuple(tensors)


def byte_range(fields: object) -> tuple[int, int]:
    """Return where a tensor's bytes begin and end; ValueError if that is impossible."""
    if not isinstance(fields, dict):
        raise ValueError(f"is {shown(fields)} but should be an object")  # noqa: TRY004
    dtype, shape = fields.get("dtype"), fields.get("shape")
    if not isinstance(dtype, str) or dtype not in BYTES:
        raise ValueError(f"has the dtype {shown(dtype)}, which MLX cannot load")
    if not whole(shape) or len(shape) > MAX_DIMENSIONS:  # type: ignore[arg-type]
        raise ValueError("has a shape that is not a list of whole numbers")
    offsets = fields.get("data_offsets")
    if not whole(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:  # type: ignore[arg-type, index] # noqa: PLR2004
        raise ValueError("has no data_offsets, or invalid ones")
    begin, end = offsets  # type: ignore[misc]
    size = math.prod(shape) * BYTES[dtype]  # type: ignore[arg-type]
    if size != end - begin:
        raise ValueError("has a number of bytes that does not match its shape and dtype")
    return begin, end


def whole(value: object) -> bool:
    """Whether a value is a list of whole numbers from 0 to 2^63 - 1."""
    return isinstance(value, list) and all(
        type(number) is int and 0 <= number < 1 << 63 for number in value
    )


def read_tensors(path: Path) -> tuple[Tensor, ...]:
    """Read the header of a file on this machine; UserError if it is not a safetensors file."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            length = header_length(file.read(LENGTH), size, path.name, str(path))
            header = file.read(length)
    except OSError as error:
        raise unreadable(path, f"cannot read {path.name}: {error.strerror}") from error
    return parse_header(header, size, path.name, str(path))


SHOWN = 3


def weight_map(document: Mapping[str, Any], problems: Problems) -> dict[str, str]:
    """Return the file of each tensor by the index; add errors for names that are not files."""
    value = document.get("weight_map")
    if not isinstance(value, dict):
        problems.add(f"{INDEX} has no weight_map, which names the file of each tensor")
        return {}
    files: dict[str, str] = {}
    for tensor, file in value.items():
        reason = why_unsafe(file)
        if reason is not None:
            problems.add(f"{INDEX} names the file {shown(file)}, which {reason}")
        else:
            files[tensor] = file
    return files


def check_files(mapping: Mapping[str, str], weights: Iterable[str], problems: Problems) -> None:
    """Add errors for files that only the index names."""
    for file in sorted(set(mapping.values()) - set(weights)):
        problems.add(
            f"{INDEX} names {shown(file)}, which is missing or is not a model*.safetensors file"
        )


def check_tensors(
    mapping: Mapping[str, str] | None,
    weights: Mapping[str, tuple[Tensor, ...]],
    problems: Problems,
) -> None:
    """Add errors for tensors in two files, or not in the file that the index names."""
    files: dict[str, list[str]] = {}
    for file, tensors in sorted(weights.items()):
        for tensor in tensors:
            files.setdefault(tensor.name, []).append(file)
    if not files:
        problems.add("the files of weights contain no tensors")
    twice = [name for name, places in files.items() if len(places) > 1]
    if twice:  # the libraries may load either of them
        first, second, *_ = files[twice[0]]
        problems.add(f"{first} and {second} both have {some_tensors(twice)}")
    if mapping is None:
        return
    absent = [name for name in mapping if name not in files]
    moved = [
        name
        for name, file in mapping.items()
        if name in files and file in weights and file not in files[name]
    ]
    unnamed = [name for name in files if name not in mapping]
    for names, what in (
        (absent, "names {names}, which no file contains"),
        (moved, "names the wrong file for {names}"),
        (unnamed, "does not name {names}, which the files contain"),
    ):
        if names:
            sentence = what.format(names=some_tensors(names))
            problems.add(f"{INDEX} is stale: it {sentence}")


def some_tensors(names: list[str]) -> str:
    """Return the first names of tensors, and the number of the others, as text."""
    text = ", ".join(shown(name) for name in names[:SHOWN])
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{'tensor' if len(names) == 1 else 'tensors'} {text}{more}"


# Parts of tensors' names. mlx_lm's and mlx-swift-lm's `sanitize` drop the tensors of SKIPPED,
# which do not belong to the language model: towers for pictures and sound, extra heads.
SKIPPED = {
    "vision_tower", "vision_model", "visual", "multi_modal_projector", "audio_tower",
    "embed_audio", "embed_vision", "mtp", "mtp_layers", "inv_freq",
}  # fmt: skip
EMBEDDINGS = {
    "embed_tokens", "wte", "tok_embeddings", "token_embeddings", "word_embeddings",
    "embeddings",
}  # fmt: skip
TABLES = {"embed_tokens_per_layer"}  # tables of which a token reads only one row (gemma4)
HEADS = {"lm_head", "output"}
EXPERTS = {"experts", "switch_mlp", "input_linear", "output_linear"}
BLOCKS = {"layers", "h", "blocks"}
ACTIVATIONS = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}
"""The dtype of activations, by the type of the embedding's weights or scales."""


def weigh(
    tensors: Iterable[Tensor], *, experts: int = 0, experts_per_token: int = 0
) -> Weights:
    """Add up the bytes of all tensors; experts: the number of experts per layer, or 0."""
    sums = dict.fromkeys(("skipped", "embedding", "table", "head", "experts", "rest"), 0)
    dtype = ""
    for tensor in tensors:
        part = part_of(tensor.name)
        sums[part] += tensor.bytes
        if part == "embedding" and tensor.name.endswith((".weight", ".scales")):
            dtype = dtype or ACTIVATIONS.get(tensor.dtype, "")
    tied = sums["head"] == 0
    loaded = sum(sums.values()) - sums["skipped"]
    unread = sums["table"] + (0 if tied else sums["embedding"])
    if experts:
        unread += sums["experts"] * max(0, experts - experts_per_token) // experts
    return Weights(
        bytes=loaded,
        tied_embeddings=tied,
        bytes_per_token=loaded - unread,
        embedding_bytes=sums["embedding"],
        head_bytes=sums["head"],
        expert_bytes=sums["experts"] if experts else 0,
        skipped_bytes=sums["skipped"],
        dtype=dtype,
    )


def part_of(name: str) -> str:
    """Return the part of the model that a tensor belongs to, by the tensor's name."""
    parts = name.split(".")
    module = parts[-2] if len(parts) > 1 else ""
    if SKIPPED.intersection(parts):
        return "skipped"
    if BLOCKS.intersection(parts):
        is_expert = EXPERTS.intersection(parts) and "shared_mlp" not in parts
        return "experts" if is_expert else "rest"
    if module in TABLES:
        return "table"
    if module in EMBEDDINGS:
        return "embedding"
    return "head" if module in HEADS else "rest"


def inspect(contents: Contents, problems: Problems, *, folder: Path | None = None) -> Model:
    """Describe a model; UserError contains all errors in its files.

    problems: the errors so far, and the name of the model's place. folder: contains all files;
    None if they must be downloaded.
    """
    is_complete = not problems.found
    if contents.index is not None:
        names = filter(holds_weights, (file.path for file in contents.files))
        check_files(contents.index, names, problems)
    if is_complete:
        check_tensors(contents.index, contents.tensors, problems)
    tensors = contents.all_tensors
    if contents.config or is_complete:
        with problems.caught():
            described = describe(
                contents.config,
                f"{problems.where}/{CONFIG}",
                stored_dtype=weigh(tensors).dtype,
            )
    problems.refuse()
    config = described.config
    experts, per_token = config.experts, config.experts_per_token
    return Model(
        id=contents.id,
        commit=contents.commit,
        config=config,
        weights=weigh(tensors, experts=experts, experts_per_token=per_token),
        files=contents.files,
        folder=folder,
        remarks=described.remarks,
        contents=contents,
    )


def from_folder(model_id: str, folder: Path, *, commit: str = "") -> Model:
    """Describe a model's folder; UserError contains all errors in it."""
    problems = Problems(str(folder))
    model_files = list_files(folder, problems)
    names = names_in(folder)
    refuse_other_folder(folder, names)
    config, index = dict[str, Any](), None
    with problems.caught():
        if CONFIG in names:
            config = read_object(folder / CONFIG)
    with problems.caught():
        if any(file.path == INDEX for file in model_files):
            index = read_object(folder / INDEX, INDEX_BYTES)
    tensors = {}
    for name in (file.path for file in model_files if holds_weights(file.path)):
        with problems.caught():
            tensors[name] = read_tensors(folder / name)
    check_complete(names, problems)
    mapping = None if index is None else weight_map(index, problems)
    contents = Contents(model_id, commit, config, mapping, tensors, model_files)
    return inspect(contents, problems, folder=folder)


def names_in(folder: Path) -> list[str]:
    """Return the names of all files in a folder; none if it cannot be read."""
    try:
        return sorted(path.name for path in folder.iterdir() if path.is_file())
    except OSError:
        return []


def list_files(folder: Path, problems: Problems) -> tuple[ModelFile, ...]:
    """List the files for packages; add errors for links out of the folder and unsafe names."""
    model_files = []
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        problems.fail(f"cannot read the folder: {error.strerror}")
    for path in entries:
        if not belongs(path.name):
            continue
        reason = why_unsafe(path.name)
        if reason is not None:
            problems.add(f"the file name {shown(path.name)} {reason}", "Rename the file.")
            continue
        reason = why_bad_link(path, folder) if path.is_symlink() else None
        if reason is not None:
            problems.add(
                f"{path.name} {reason}", "Copy the file into the folder, or use a hard link."
            )
        elif path.is_file():
            model_files.append(ModelFile(path.name, path.stat().st_size))
    return tuple(model_files)


def why_bad_link(path: Path, folder: Path) -> str | None:
    """Say why a link in a model folder is not followed; None if it is.

    A snapshot in the hub's cache links to blobs of its repository, which may be links to blobs
    that all repositories share.
    """
    allowed = [folder.resolve()]
    if allowed[0].parent.name == "snapshots":
        repository = allowed[0].parent.parent
        allowed += [repository / "blobs", repository.parent / "blobs"]
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError):  # RuntimeError: a loop, before Python 3.13
        return "is a link to a path that does not exist"
    if any(real.is_relative_to(parent) for parent in allowed):
        return None
    return f"is a link to {shown(str(real))}, outside of the folder"


def local_file(folder: Path, path: str) -> Path:
    """Return the real path of a file in a model's folder; UserError if it cannot be used."""
    place = folder / path
    try:
        real = place.resolve(strict=True)
        regular = stat.S_ISREG(real.stat().st_mode)
    except (OSError, RuntimeError) as error:
        raise unusable(place, f"cannot be read: {reason(error)}") from error
    bad = why_bad_link(place, folder)  # the file or a folder above it may be a link
    if bad is not None:
        raise unusable(place, bad)
    if not regular:
        raise unusable(place, "is not a regular file")
    if not os.access(real, os.R_OK):
        raise unusable(place, "cannot be read: Permission denied")
    return real


def unusable(place: Path, what: str) -> UserError:
    """Make the error for a file of a model that cannot be bundled."""
    return model_error(
        f"{place.name} {what}",
        "Put the file itself into the model's folder, or give another model.",
        where=str(place),
    )
