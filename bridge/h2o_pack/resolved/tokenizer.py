"""Writes a model's tokenizer files so that the app's library reads them as Python does.

Pure: content in, content out. swift_tokenizers.toml says what the app's library has. What it
lacks is written in an equivalent form or refused by name. Both languages read the written
files, so that Python can prove that they give the ids and texts of the original ones
(python_tokenizer.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from h2o_pack.errors import Problems, model_error, shown
from h2o_pack.facts import FOLDER
from h2o_pack.files.toml import read_tables
from h2o_pack.resolved.expressions import ExpressionError, isolating, portable, quoted

Json = dict[str, Any]
FILE = "tokenizer.json"
REMEDY = "Choose a model with another tokenizer."
DEEPEST = 20
"""The most sequences of components inside each other."""
SPECIAL = (
    *("bos_token", "eos_token", "unk_token", "pad_token", "cls_token", "sep_token"),
    "mask_token",
)
LISTS = ("normalizers", "pretokenizers", "processors", "decoders")
PUNCTUATION = r"[\p{P}\!-\/\:-\@\[-\`\{-\~]"
JOINERS = "\u200c\u200d"
CONTROLS = "[\x01-\x08\x0b\x0e-\x1f\x7f\x8f\x9f]"
BERT_CONTROLS = (
    r"\x{FFFD}|(?=[^\t\n\r\x{890}\x{891}\x{8E2}\x{110CD}\x{13430}-\x{1343F}])"
    r"[\p{Cc}\p{Cf}\p{Co}]"
)
"""What BERT's normalizer removes; its tables are older than some characters."""
SEPARATORS = "[\t\n\x0c\r\u1680\u200b-\u200f\u2028\u2029\u2581\ufeff\ufffd]"


@dataclass(frozen=True)
class Library:
    """The app's tokenizer library. classes: the class that chooses each type of model."""

    name: str
    version: str
    source: str
    classes: dict[str, str]
    measured: bool = False


@dataclass(frozen=True)
class Components:
    """Types of one part of tokenizer.json that the app's library has or that are rewritten."""

    part: str
    types: tuple[str, ...]
    rewritten: bool = False


@dataclass(frozen=True)
class RefusedComponents:
    """Types of one part that the library lacks. effect: what the app would do."""

    part: str
    types: tuple[str, ...]
    effect: str


@dataclass(frozen=True)
class Option:
    """The only values of an option with which the library computes as Python does."""

    part: str
    type: str
    option: str
    allowed: tuple[str, ...]
    effect: str


@dataclass(frozen=True)
class SwiftTokenizersFile:
    """The content of swift_tokenizers.toml."""

    library: tuple[Library, ...]
    component: tuple[Components, ...]
    refused: tuple[RefusedComponents, ...]
    option: tuple[Option, ...]

    def effect(self, part: str, kind: str) -> str:
        """Return what the app would do with a type that it lacks; "" if it has the type."""
        if any(kind in known.types for known in self.component if known.part == part):
            return ""
        effects = (r.effect for r in self.refused if r.part == part and kind in r.types)
        return next(effects, "ends when it loads the model")


@cache
def facts() -> SwiftTokenizersFile:
    """Read swift_tokenizers.toml."""
    return read_tables(FOLDER / "swift_tokenizers.toml", SwiftTokenizersFile)


@dataclass(frozen=True)
class PythonTokenizer:
    """A tokenizer as transformers loads it from a model's files.

    content: what its tokenizer.json would be. special: bos_token, eos_token and so on.
    cleans_up: whether decoding removes spaces before punctuation.
    """

    content: Json
    special: Mapping[str, str] = field(default_factory=dict)
    cleans_up: bool = False


@dataclass(frozen=True)
class ResolvedTokenizer:
    """The two files of a tokenizer for a package.

    tokenizer: tokenizer.json. config: tokenizer_config.json.
    """

    tokenizer: bytes
    config: bytes


def flat(component: Any, depth: int = 0) -> Iterator[Json]:
    """Yield a component, or those of a sequence, in their order; nothing for null."""
    if depth > DEEPEST:
        raise model_error(f"{FILE} has more than {DEEPEST} sequences inside each other", REMEDY)
    if not isinstance(component, dict):
        return
    if component.get("type") == "Sequence":
        inner: Any = next((component[key] for key in LISTS if key in component), [])
        for part in inner if isinstance(inner, list) else []:
            yield from flat(part, depth + 1)
    else:
        yield component


def sequence(key: str, components: Sequence[Json]) -> Json | None:
    """Return one component that runs several in their order; null for none."""
    if not components:
        return None
    return components[0] if len(components) == 1 else {"type": "Sequence", key: [*components]}


def replace(expression: str, content: str) -> Json:
    """Return the component that replaces all matches of an expression by a text."""
    return {"type": "Replace", "pattern": {"Regex": expression}, "content": content}


def isolate(expression: str) -> Json:
    """Return the pre-tokenizer that makes each match of an expression a piece."""
    pattern = {"Regex": expression}
    return {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}


def prefixed(prefix: str) -> list[Json]:
    """Return normalizers that begin a text with a prefix if it does not do so already."""
    once = quoted(prefix)
    return [{"type": "Prepend", "prepend": prefix}, replace(f"\\A{once * 2}", prefix)]


class RefusalError(ValueError):
    """Something that the app's library computes otherwise: what, and what it would do."""


Parts = tuple[list[Json], list[Json]]
"""Normalizers that a component adds, and the pre-tokenizers that replace it."""


class Writer:
    """Writes one tokenizer; `problems` collects all that is refused."""

    def __init__(self, python: PythonTokenizer, where: str) -> None:
        self.content = python.content
        self.python = python
        self.problems = Problems(where)

    def refuse(self, part: str, name: str, effect: str) -> None:
        """Refuse a component or option: the app would do `effect`."""
        self.problems.add(f"{FILE}: {part}: {name}: the app {effect}", REMEDY)

    def written(self) -> Json:
        """Return the content of tokenizer.json for the package."""
        model = self.model(self.content["model"])
        normalizers = self.normalizers()
        added, splitters = self.pre_tokenizers()
        document = {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": self.added_tokens(),
            "normalizer": sequence("normalizers", [*normalizers, *added]),
            "pre_tokenizer": sequence("pretokenizers", splitters),
            "post_processor": self.post_processor(),
            "decoder": self.decoder(),
            "model": model,
        }
        self.problems.refuse()
        return document

    # The model

    def model(self, model: Json) -> Json:
        """Return the model; its options and vocabulary are checked."""
        kind = str(model.get("type"))
        self.check("model", model)
        if kind == "BPE":
            model = {**model, "dropout": None}
        elif kind == "Unigram":
            self.check_unigram(model)
        return model

    def check_unigram(self, model: Json) -> None:
        """Refuse a vocabulary of scores that ends the app."""
        pieces = [piece for piece, _ in model["vocab"]]
        if model.get("unk_id") is None:
            self.refuse("model", "no unk_id", "ends when it loads the model")
        if len(set(pieces)) < len(pieces):
            self.refuse("model", "a piece twice in vocab", "ends when it loads the model")
        outside = [t for t in self.content["added_tokens"] if t["id"] >= len(pieces)]
        if outside:
            name = f"{shown(outside[0]['content'])} ({outside[0]['id']}) is not in vocab"
            self.refuse("added_tokens", name, "ends when it decodes the token")

    def check(self, part: str, component: Json) -> None:
        """Check the type and the options of a component."""
        kind = str(component.get("type"))
        if effect := facts().effect(part, kind):
            self.refuse(part, shown(kind), effect)
            return
        for option in facts().option:
            if (option.part, option.type) == (part, kind):
                self.check_option(part, kind, component, option)

    def check_option(self, part: str, kind: str, component: Json, option: Option) -> None:
        """Check one option of a component."""
        value = component.get(option.option)
        text = (
            {None: "", True: "true", False: "false"}.get(value, value)
            if (value is None or isinstance(value, bool))
            else str(value)
        )
        if text not in option.allowed:
            name = f"{kind} with {option.option} = {shown(value)}".strip()
            self.refuse(part, name.removeprefix("with "), option.effect)

    # Normalizers

    def normalizers(self) -> list[Json]:
        """Return the normalizers, all in forms that both libraries read alike."""
        written: list[Json] = []
        for part in flat(self.content.get("normalizer")):
            self.check("normalizer", part)
            try:
                written += self.normalizer(part)
            except (RefusalError, ExpressionError) as error:
                self.refuse("normalizer", str(part["type"]), str(error))
        return written

    def normalizer(self, part: Json) -> list[Json]:  # noqa: PLR0911  one case per type
        """Return the normalizers that one becomes."""
        match part["type"]:
            case "Replace":
                return [self.replacement(part)]
            case "Strip":
                sides = (("strip_left", r"\A\s+"), ("strip_right", r"\s+\z"))
                return [replace(text, "") for key, text in sides if part.get(key, True)]
            case "StripAccents":
                return [replace(r"\p{M}+", "")]
            case "Nmt":
                return [replace(CONTROLS, ""), replace(SEPARATORS, " ")]
            case "BertNormalizer":
                return bert(part)
            case "Precompiled":
                if not part.get("precompiled_charsmap"):
                    return []
                # The proof compares this with the map itself.
                return [replace(CONTROLS, ""), replace(SEPARATORS, " "), {"type": "NFKC"}]
            case "ByteLevel":
                if self.content.get("pre_tokenizer") is not None:
                    raise RefusalError("ends when it loads the model")
                return []
        return [part]

    @staticmethod
    def replacement(part: Json) -> Json:
        """Return a replacement that finds its pattern exactly, not up to equivalence."""
        pattern, content = part["pattern"], part["content"]
        expression = (
            portable_replacement(pattern["Regex"])
            if "Regex" in pattern
            else quoted(pattern["String"])
        )
        if "$" in content or "\\" in content:
            if "String" in pattern:
                return part
            raise RefusalError(f"reads {shown(content)} as a template")
        return replace(expression, content)

    # Pre-tokenizers

    def pre_tokenizers(self) -> Parts:
        """Return the normalizers that pre-tokenizers become, and the pre-tokenizers."""
        parts = list(flat(self.content.get("pre_tokenizer")))
        normalizers: list[Json] = []
        written: list[Json] = []
        for part in parts:
            self.check("pre_tokenizer", part)
            try:
                added, splitters = self.pre_tokenizer(part, is_first=not written)
            except (RefusalError, ExpressionError) as error:
                self.refuse("pre_tokenizer", str(part["type"]), str(error))
                continue
            normalizers += added
            written += splitters
        if any(part["type"] == "ByteLevel" for part in flat(self.content.get("normalizer"))):
            written.append(byte_level())
        return normalizers, written

    def pre_tokenizer(  # noqa: PLR0911  one case per type
        self, part: Json, *, is_first: bool
    ) -> Parts:
        """Return what one pre-tokenizer becomes. is_first: no other one runs before it."""
        match part["type"]:
            case "ByteLevel":
                return self.byte_level(part, is_first=is_first)
            case "Digits":
                # `Digits` of the app's library has only decimal digits, not U+2167.
                each = r"\p{N}" if part.get("individual_digits") else r"\p{N}+"
                return [], [isolate(each)]
            case "FixedLength":
                return [], [isolate(f"[\\s\\S]{{1,{int(part['length'])}}}")]
            case "Punctuation":
                return [], [self.split(PUNCTUATION, part.get("behavior", "Isolated"))]
            case "Whitespace":
                word = rf"[\p{{Alphabetic}}\p{{M}}\p{{Nd}}\p{{Pc}}{JOINERS}]+"
                return [], [{"type": "WhitespaceSplit"}, isolate(word)]
            case "Split":
                return [], [self.split_part(part)]
            case "Metaspace":
                if part.get("prepend_scheme") == "first" and not is_first:
                    raise RefusalError('reads prepend_scheme = "first" as "always" here')
        return [], [part]

    @staticmethod
    def byte_level(part: Json, *, is_first: bool) -> Parts:
        """Return what the pre-tokenizer of bytes becomes.

        The app's library puts add_prefix_space before each word instead of each text.
        """
        normalizers: list[Json] = []
        if part.get("add_prefix_space"):
            if not is_first:
                raise RefusalError("puts a space before each word, not before the text")
            normalizers = prefixed(" ")
        use_regex = part.get("use_regex", True)
        return normalizers, [byte_level(use_regex=use_regex)]

    def split_part(self, part: Json) -> Json:
        """Return the pre-tokenizer that splits at a pattern."""
        pattern = part["pattern"]
        text = portable(pattern["Regex"]) if "Regex" in pattern else quoted(pattern["String"])
        behavior = part["behavior"]
        if behavior == "Removed" and part.get("invert"):
            # Nothing is removed if the expression matches everywhere, as the proof shows.
            return isolate(text)
        if behavior != "Isolated" and part.get("invert"):
            raise RefusalError("ignores invert = true")
        return self.split(text, behavior)

    @staticmethod
    def split(expression: str, behavior: str) -> Json:
        """Return the pre-tokenizer for an expression and a behavior."""
        whole = isolating(expression, behavior)
        if whole is None:
            raise RefusalError(f"ignores behavior = {shown(behavior)}")
        return isolate(whole)

    # The other parts

    def added_tokens(self) -> list[Json]:
        """Return the added tokens; the app finds them in the text as it was written."""
        written = []
        for token in self.content["added_tokens"]:
            self.check_added(token)
            if token["content"]:
                written.append({**token, "normalized": False})
        return written

    def check_added(self, token: Json) -> None:
        """Check the options of an added token."""
        for option in facts().option:
            if option.part == "added_tokens":
                self.check_option("added_tokens", shown(token["content"]), token, option)

    def post_processor(self) -> Json | None:
        """Return the template of special tokens around a text, or null."""
        templates: list[Json] = []
        for part in flat(self.content.get("post_processor")):
            self.check("post_processor", part)
            if part["type"] in {"BertProcessing", "RobertaProcessing"}:
                templates.append(around(part["cls"], part["sep"]))
            elif part["type"] == "TemplateProcessing":
                self.check_template(part)
                templates.append(part)
        return sequence("processors", templates)

    def check_template(self, template: Json) -> None:
        """Refuse a template whose tokens have other ids than the vocabulary."""
        ids = {token["content"]: token["id"] for token in self.content["added_tokens"]}
        vocabulary = self.content["model"]["vocab"]
        for name, token in template["special_tokens"].items():
            expected = ids.get(name)
            if expected is None and isinstance(vocabulary, dict):
                expected = vocabulary.get(name)
            if token["ids"] != [expected]:
                self.refuse("post_processor", shown(name), f"adds the id {expected} instead")

    def decoder(self) -> Json | None:
        """Return the decoder; each of its components is checked."""
        decoder = self.content.get("decoder")
        if decoder is None:
            self.refuse("decoder", "null", "puts no spaces between tokens")
        for part in flat(decoder):
            self.check("decoder", part)
            if part.get("type") == "Replace" and "Regex" in part["pattern"]:
                try:
                    self.replacement(part)
                except (RefusalError, ExpressionError) as error:
                    self.refuse("decoder", "Replace", str(error))
        return decoder


def portable_replacement(expression: str) -> str:
    """Return a regular expression whose matches the app replaces, anywhere in the text."""
    start = expression.startswith("^")
    if start and ("\n" in expression or "|" in expression):
        raise ExpressionError('has "^", which the app also finds inside a text')
    return r"\A" * start + portable(expression[start:])


def byte_level(*, use_regex: bool = False) -> Json:
    """Return the pre-tokenizer that writes bytes as characters."""
    options = {"add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}
    return {"type": "ByteLevel", **options}


def bert(part: Json) -> list[Json]:
    """Return BERT's normalizer after the cleaning that the app's library lacks."""
    written: list[Json] = []
    if part.get("clean_text", True):
        written = [
            replace(BERT_CONTROLS, ""),
            replace(r"\s", " "),
        ]
    strips = part.get("strip_accents")
    lowers = part.get("lowercase", True)
    options = {"strip_accents": lowers if strips is None else strips, "clean_text": False}
    return [*written, {**part, **options}]


def around(first: Sequence[Any], last: Sequence[Any]) -> Json:
    """Return the template that puts a token before a text and one after it."""

    def token(entry: Sequence[Any], kind: int = 0) -> Json:
        return {"SpecialToken": {"id": entry[0], "type_id": kind}}

    def text(name: str, kind: int) -> Json:
        return {"Sequence": {"id": name, "type_id": kind}}

    single = [token(first), text("A", 0), token(last)]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, text("B", 1), token(last, 1)],
        "special_tokens": {
            name: {"id": name, "ids": [number], "tokens": [name]}
            for name, number in (first, last)
        },
    }


def resolve_tokenizer(python: PythonTokenizer, where: str) -> ResolvedTokenizer:
    """Return the tokenizer files of a package.

    Raises UserError: everything that the app's library lacks or computes otherwise.
    """
    writer = Writer(python, where)
    document = writer.written()
    config = configuration(python, document["model"])
    return ResolvedTokenizer(
        json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode(),
        (json.dumps(config, ensure_ascii=False, indent=2) + "\n").encode(),
    )


def configuration(python: PythonTokenizer, model: Json) -> Json:
    """Return tokenizer_config.json: what the app's library and transformers read of it."""
    config: Json = {
        "tokenizer_class": facts().library[0].classes[model["type"]],
        "clean_up_tokenization_spaces": python.cleans_up,
    }
    if model["type"] == "BPE":
        config["fuse_unk"] = bool(model.get("fuse_unk"))
    if model["type"] == "WordPiece":
        config |= {"do_lower_case": False, "handle_chinese_chars": False}
    for name in SPECIAL:
        token = python.special.get(name)
        if name == "unk_token":
            # The app would read its id instead of nothing for bytes without a token.
            token = model.get("unk_token") if model["type"] == "BPE" else token
        if token is not None:
            config[name] = token
    return config


def check_ids(ids: Mapping[str, int], vocabulary: int, where: str) -> None:
    """Check that all ids of a tokenizer lie inside the model's embedding.

    ids: by what has them, such as a token's text. vocabulary: rows of the embedding. Raises
    UserError: the greatest id of them is not below `vocabulary`.
    """
    name, greatest = max(ids.items(), key=lambda item: item[1], default=("", -1))
    if greatest >= vocabulary:
        outside = sum(number >= vocabulary for number in ids.values())
        others = f" and {outside - 1:,} more" if outside > 1 else ""
        raise model_error(
            f"the tokenizer gives {shown(name)} the id {greatest:,}{others}, but the model has "
            f"only {vocabulary:,} tokens, so that the app would end at the first such id",
            "The tokenizer is that of another model: download the model again.",
            where=where,
        )


def token_ids(content: Json) -> dict[str, int]:
    """Return the ids of all tokens of a tokenizer.json, the added ones among them."""
    vocabulary = content["model"]["vocab"]
    tokens = (
        dict(vocabulary)
        if isinstance(vocabulary, dict)
        else {piece[0]: index for index, piece in enumerate(vocabulary)}
    )
    return tokens | {token["content"]: token["id"] for token in content["added_tokens"]}
