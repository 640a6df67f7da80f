"""Reads a model's tokenizer as Python does, and proves that written files give the same.

Tokenizer files can make a library crash or run forever, so that `models/trial.py` runs it in
another process with limits.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from h2o_pack.errors import Problems, shown
from h2o_pack.models.files import TOKENIZER, TOKENIZER_CONFIG
from h2o_pack.models.texts import first_difference
from h2o_pack.models.trial import UnusedLibrary, attempt
from h2o_pack.resolved.tokenizer import (
    REMEDY,
    SPECIAL,
    PythonTokenizer,
    ResolvedTokenizer,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAPS = ("special_tokens_map.json", "added_tokens.json")
READ = ("config.json", TOKENIZER, TOKENIZER_CONFIG, *MAPS)
"""The files from which transformers makes a tokenizer, as far as a model has them."""
SAMPLES = (
    *("", " ", "  two  spaces  ", "Hello, world!", "it's we'LL don't a != b ? c : d . e , 's"),
    *("\tdef f(x):\n\t\treturn x ** 2\n\n\n    .bashrc\n", "[1\n    , 2]", "a\r\nb\r\n\r\nc"),
    *(
        "1234567890 1,234.5",
        "\u2167\u2167 a\u2167b \u2167 \u00bd\u00b2\u2083\u2460 \u0663\u0664",
    ),
    *("na\u00efve cafe\u0301 \u0301x  \u0301 \uac00\u11a8 \u1112\u1161\u11ab", "\u4e2d\u6587"),
    *(
        "\u0928\u092e\u0938\u094d\u0924\u0947",
        "\u0645\u064e\u0631\u0652",
        "\u05e9\u05c1",
        "\ufb01",
    ),
    *("\U0001f44d\U0001f3fd\U0001f469\u200d\U0001f467\U0001f3f3\ufe0f\u200d\U0001f308",),
    *(
        "\u0130 \u00df \u1e9e \u03a3\u03c3\u03c2",
        "_a_B__ http://a.b/c?d=e&f=%20",
        "\u2581 \u2581\u2581x",
    ),
    *(
        "\x00\x01\x1b[31m\x7f",
        "\U00040000\ue000\U0010ffff\ufffd",
        "<0x41>",
        "a" * 300,
        "\n" * 30,
    ),
    *(" " * 50 + "x" + " " * 17, "0123456789" * 12, "\u00e9" * 40, '{"k": [1, 2.5e-3]}'),
)
"""Texts of many kinds. The proof adds the model's added tokens and, unless the written content
is the model's own, all characters."""
SURROGATES = range(0xD800, 0xE000)
CHUNK = 64
"""Characters in each text of the texts of all characters."""


def read_tokenizer(files: Mapping[str, bytes], where: str) -> PythonTokenizer:
    """Return the tokenizer that transformers makes of a model's files.

    files: the content of those of `READ` that the model has, by name. Raises UserError: the
    library cannot load them.
    """
    with tempfile.TemporaryDirectory(prefix="h2o-pack-") as folder:
        write(Path(folder), files)
        answer = attempt("python_tokenizer", where, folder=folder)
    return PythonTokenizer(**answer)


def prove_tokenizer(
    files: Mapping[str, bytes], python: PythonTokenizer, resolved: ResolvedTokenizer, where: str
) -> None:
    """Check that written files give the ids and texts that a model's own files give.

    files: as in `read_tokenizer`. Raises UserError: they do not, with the first difference.
    """
    own = {TOKENIZER: resolved.tokenizer, TOKENIZER_CONFIG: resolved.config}
    if "config.json" in files:
        own["config.json"] = files["config.json"]
    with tempfile.TemporaryDirectory(prefix="h2o-pack-") as name:
        folder = Path(name)
        write(folder, own)
        (folder / "original.json").write_text(json.dumps(python.content), "utf-8")
        difference = attempt("same_tokenizer", where, folder=name, cleans_up=python.cleans_up)
    if difference is None:
        return
    kind, given, expected, actual = difference
    problems = Problems(where)
    problems.add(
        f"{TOKENIZER} has no form that Python and the app read alike: {shown(given)} gives "
        f"other {kind} ({actual} instead of {expected})",
        REMEDY,
    )
    problems.refuse()


def write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files that transformers reads into a folder."""
    for name in READ:
        if name in files:
            (folder / name).write_bytes(files[name])


def load(folder: str) -> Any:
    """Load a tokenizer with transformers, which `trial` replaces by an empty library."""
    for name in ("transformers", "transformers.tokenization_utils_base", "huggingface_hub"):
        if isinstance(sys.modules.get(name), UnusedLibrary):
            del sys.modules[name]
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


def python_tokenizer(folder: str) -> dict[str, Any]:
    """Return the fields of PythonTokenizer for a folder; `trial` runs this."""
    tokenizer = load(folder)
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    corrupts = "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"
    cleans_up = bool(tokenizer.clean_up_tokenization_spaces) and (
        content["model"]["type"] != "BPE" or getattr(tokenizer, corrupts, False)
    )
    special = {
        name: str(token)
        for name in SPECIAL
        if isinstance(token := getattr(tokenizer, name, None), str)
    }
    return {"content": content, "special": special, "cleans_up": cleans_up}


def same_tokenizer(folder: str, *, cleans_up: bool) -> list[Any] | None:
    """Compare written files with a model's own tokenizer; `trial` runs this.

    Returns the first difference, as [ids or text, what was given, expected, actual]; None if
    there is none.
    """
    from tokenizers import Tokenizer

    original = Tokenizer.from_file(str(Path(folder, "original.json")))
    original.no_truncation()
    original.no_padding()
    tokenizer = load(folder)
    written = tokenizer.backend_tokenizer
    tokens = original.get_added_tokens_decoder()
    texts = list(samples([token.content for token in tokens.values()]))
    # Tokenizers of the same content differ at most in settings that are not part of it, which
    # are about added tokens.
    if original.to_str() != written.to_str():
        texts += all_characters()
    encoded = original.encode_batch(texts, add_special_tokens=False)
    again = written.encode_batch(texts, add_special_tokens=False)
    for text, one, other in zip(texts, encoded, again, strict=True):
        if one.ids != other.ids:
            return ["ids", text, *parting(one.ids, other.ids)]
    for text in SAMPLES[:4]:
        whole, again_whole = original.encode(text).ids, written.encode(text).ids
        if whole != again_whole:
            return ["ids", text, *parting(whole, again_whole)]
    for ids in [*random_ids(original), *(part.ids for part in encoded[: len(SAMPLES)])]:
        text, again_text = (
            original.decode(ids, skip_special_tokens=False),
            tokenizer.decode(ids),
        )
        expected = tokenizer.clean_up_tokenization(text) if cleans_up else text
        if again_text != expected:
            return ["text", str(ids[:12]), expected[:60], again_text[:60]]
    return None


def parting(one: list[int], other: list[int]) -> tuple[list[int], list[int]]:
    """Return a few ids of two lists from where they part."""
    start = first_difference(one, other)
    return one[start : start + 4], other[start : start + 4]


def samples(added: list[str]) -> Iterator[str]:
    """Yield texts of many kinds: `SAMPLES`, and added tokens inside text."""
    yield from SAMPLES
    for token in added[:2000]:
        yield f"x {token} y{token}{token}\u00e9"
        yield f"{token}\n{token}"


def all_characters() -> Iterator[str]:
    """Yield texts of all characters, `CHUNK` side by side, and some apart."""
    for start in range(0, 0x20000, CHUNK):
        if start not in SURROGATES:
            yield "".join(map(chr, range(start, start + CHUNK)))
            yield " x".join(map(chr, range(start, start + CHUNK, 5)))


def random_ids(tokenizer: Tokenizer) -> Iterator[list[int]]:
    """Yield lists of random ids of a tokenizer's vocabulary."""
    ids = sorted(tokenizer.get_vocab().values())
    chance = random.Random(0)  # noqa: S311  it protects nothing
    for _ in range(300 if ids else 0):
        yield [chance.choice(ids) for _ in range(chance.randint(1, 24))]
