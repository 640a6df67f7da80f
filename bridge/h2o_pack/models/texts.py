"""The texts of a model's makers: chat template, sampling settings, license.

Templates are written in Jinja. They run in a sandbox, with the functions that transformers has.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

from h2o_pack.errors import (
    Problems,
    UserError,
    in_one_line,
    shown,
    unreadable,
    usage_error,
)
from h2o_pack.facts import FOLDER
from h2o_pack.files.text import parse_object
from h2o_pack.files.toml import read_rows
from h2o_pack.model import Model
from h2o_pack.models.files import (
    CARD,
    SAMPLING_FILE,
    TEMPLATE_BYTES,
    TEMPLATE_FILE,
    TEMPLATE_JSON,
    TOKENIZER_CONFIG,
    is_notice,
)
from h2o_pack.models.trial import attempt
from h2o_pack.naming import one_line

if TYPE_CHECKING:
    from jinja2 import Template
    from jinja2.sandbox import ImmutableSandboxedEnvironment

KEY = "chat_template"
SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token", "cls_token", "sep_token")
GIVEN = {
    *SPECIAL,
    *("messages", "tools", "documents", "add_generation_prompt"),
    *("mask_token", "additional_special_tokens", "raise_exception", "strftime_now"),
}
"""Names that every template receives; any other name in a template is an option for the
user."""


@dataclass(frozen=True)
class ChatTemplate:
    """A template: its text, the file that has it, and the model's special tokens by name."""

    source: str
    file: str
    special: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """The options of this template, sorted, such as enable_thinking."""
        from jinja2 import meta

        environment = sandbox()
        names = meta.find_undeclared_variables(environment.parse(self.source))
        return tuple(sorted(names - GIVEN - environment.globals.keys()))

    def rendered(
        self, chats: Sequence[Mapping[str, Any]], where: str
    ) -> list[dict[str, str | None]]:
        """Return what `renderings` does; UserError if the template exceeds the limits."""
        return list(
            attempt(
                "renderings",
                where,
                source=self.source,
                special=dict(self.special),
                chats=[{"add_generation_prompt": True, **chat} for chat in chats],
            )
        )


def why_not(result: Mapping[str, str | None], what: str) -> str:
    """Say why a template did not render `what`; "" if it did."""
    if result["error"] is None:
        return ""
    if result["kind"] == UNPARSED:
        return f"cannot be parsed: {result['error']}"
    return f"{result['kind']} {what}: {shown(result['error'])}"


def find_template(files: Mapping[str, bytes], where: str) -> ChatTemplate | None:
    """Return a model's template, None if it has none.

    A separate file has precedence over tokenizer_config.json, as in transformers. Of
    several templates, "default" is used. Raises UserError: a file that may contain a template
    cannot be read.
    """
    documents = {
        name: document_of(files, name, where) for name in (TEMPLATE_JSON, TOKENIZER_CONFIG)
    }
    tokens = documents[TOKENIZER_CONFIG]
    special = {name: text for name in SPECIAL if (text := token_text(tokens.get(name)))}
    if TEMPLATE_FILE in files:
        try:
            return ChatTemplate(files[TEMPLATE_FILE].decode("utf-8"), TEMPLATE_FILE, special)
        except UnicodeDecodeError as error:
            raise unreadable(where, f"{TEMPLATE_FILE} is not UTF-8 text") from error
    for name, document in documents.items():
        value = document.get(KEY)
        source = default_of(value)
        if source is not None:
            return ChatTemplate(source, name, special)
        if value is not None:
            raise unreadable(
                where, f"{KEY} in {name} is neither a text nor a list of named texts"
            )
    return None


def document_of(files: Mapping[str, bytes], name: str, where: str) -> dict[str, Any]:
    """Return the object in a model's JSON file; {} if the model has no such file."""
    return parse_object(files[name], name, where, TEMPLATE_BYTES) if name in files else {}


def default_of(value: Any) -> str | None:
    """Return the template for conversations in a value of `KEY`; None if there is none."""
    if isinstance(value, list):
        by_name = {
            entry.get("name"): entry.get("template")
            for entry in value
            if isinstance(entry, dict)
        }
        value = by_name.get("default")
    return value if isinstance(value, str) else None


def token_text(value: Any) -> str:
    """Return the text of a special token: the value, or its `content` in an object."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else ""


def to_json(
    value: Any,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 - templates give it without a name
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002 - as above
) -> str:
    """Write a value as the filter `tojson` of transformers does."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def sandbox() -> ImmutableSandboxedEnvironment:
    """Return the environment that transformers gives to templates."""
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> NoReturn:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", generation_tag()],
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = refuse
    return environment


@lru_cache(maxsize=8)
def compiled(source: str) -> Template:
    """Return a template that renders; TemplateSyntaxError if it cannot be parsed."""
    return sandbox().from_string(source)


LONGEST_RENDERING = 4 << 20
"""Characters of a rendered conversation."""
TODAY = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
"""The date in renderings that are compared."""


UNPARSED, REFUSES, FAILS = "unparsed", "refuses", "fails for"
"""Why a template does not render a conversation: kinds of its errors."""


def renderings(
    source: str, special: Mapping[str, str], chats: Sequence[Mapping[str, Any]]
) -> list[dict[str, str | None]]:
    """Return the text of each conversation, or why the template does not render it.

    A template is code that may do anything, so `trial` runs this in another process. chats: the
    variables of each conversation; a `date` is what the template gets for each date.
    """
    from jinja2 import TemplateError, TemplateSyntaxError

    try:
        template = compiled(source)
    except TemplateSyntaxError as error:
        what = f"line {error.lineno}: {error.message}"
        return [{"text": None, "kind": UNPARSED, "error": what} for _ in chats]
    results: list[dict[str, str | None]] = []
    for chat in chats:
        date = chat.get("date")
        now = TODAY.strftime if date is None else (lambda _format, date=date: date)
        values = {"tools": None, "documents": None, "strftime_now": now, **special}
        text, kind, why = "", FAILS, ""
        try:
            for piece in template.generate({**values, **chat}):
                text += piece
                if len(text) > LONGEST_RENDERING:
                    why = f"it writes more than {LONGEST_RENDERING:,} characters"
                    break
            text.encode()
        except UnicodeEncodeError:
            why = "it writes half of a character"
        except TemplateError as problem:
            kind, why = REFUSES, in_one_line(problem)
        except Exception as problem:  # noqa: BLE001 - a template's code may raise anything
            why = in_one_line(problem)
        results.append({"text": None if why else text, "kind": kind, "error": why or None})
    return results


def generation_tag() -> type[Any]:
    """Return the extension for {% generation %}, which marks text for training."""
    from jinja2.ext import Extension
    from jinja2.parser import Parser

    class GenerationTag(Extension):
        tags = {"generation"}  # noqa: RUF012 - Jinja declares it like this

        def parse(self, parser: Parser) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    return GenerationTag


CORRECT_SAMPLING = (
    "Correct the value in a local copy of the model, or delete it there, and give the "
    "copy's folder as --model."
)
EOS = "eos_token_id"


def number(value: Any, least: float, most: float = sys.float_info.max) -> bool:
    """Whether a value is a finite number in a range."""
    return type(value) in (int, float) and least <= value <= most


RANGES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "temperature": ("a number of at least 0", lambda value: number(value, 0)),
    "top_p": ("a number from 0 to 1", lambda value: number(value, 0, 1)),
    "top_k": ("an integer of at least -1", lambda value: type(value) is int and value >= -1),
    "min_p": ("a number from 0 to 1", lambda value: number(value, 0, 1)),
    "repetition_penalty": (
        "a number above 0",
        lambda value: number(value, 0) and value > 0,
    ),
}
"""The valid values of sampling settings. -1 and 0 turn top_k off."""


def check_sampling(files: Mapping[str, bytes], vocabulary: int, where: str) -> None:
    """Refuse all impossible values in generation_config.json that a session uses."""
    problems = Problems(f"{where}/{SAMPLING_FILE}")
    document = document_of(files, SAMPLING_FILE, where)
    for name, (expected, fits) in RANGES.items():
        value = document.get(name)
        if value is not None and not fits(value):
            problems.add(f"{name} is {shown(value)}, but must be {expected}", CORRECT_SAMPLING)
    end = document.get(EOS)
    ids = end if isinstance(end, list) else [] if end is None else [end]
    wrong = [token for token in ids if type(token) is not int or not 0 <= token < vocabulary]
    if wrong:
        problems.add(
            f"{EOS} is {shown(wrong[0])}, but the model has {vocabulary} tokens",
            CORRECT_SAMPLING,
        )
    problems.refuse()


LONGEST = 200  # characters of an entry that are shown
FRONT_MATTER = re.compile(r"\A\s*---[ \t]*\n(.*?\n)---[ \t]*$", re.DOTALL | re.MULTILINE)
OTHER = ("other", "unknown")
ENTRY = re.compile(
    r"^(license(?:_name|_link)?):[ \t]*(?:\n[ \t]*-[ \t]*)?(\S.*)$", re.MULTILINE
)
CARRIED = ("apache-2.0",)
"""Ids of licenses with one common text, which packages contain in any case."""
NO_LICENSE = (
    "the model's files name no license: there is no LICENSE file, and README.md has no "
    "`license`. Ask the model's makers before you ship it."
)
NO_TEXT = (
    "The license's text is not among the model's files: add it as LICENSE to a local "
    "copy of the model."
)
FREE = (
    *("apache-2.0", "mit", "isc", "zlib", "bsd", "bsd-2-clause", "bsd-3-clause"),
    *("cc0-1.0", "unlicense", "wtfpl", "bsl-1.0", "cdla-permissive-2.0", "afl-3.0"),
)
"""Ids of licenses that require only their text in the app."""


@dataclass(frozen=True)
class Terms:
    """Licenses that require something of an app; see licenses.toml for the fields."""

    ids: tuple[str, ...]
    name: str
    asks: str
    source: str
    read: bool


@dataclass(frozen=True)
class ModelLicense:
    """The license of a model, as far as it is known.

    id and link: from the model card, "" if it has none. texts: of license and notices, by their
    names in Model/.
    """

    id: str = ""
    link: str = ""
    texts: Mapping[str, str] = field(default_factory=dict)


@cache
def terms() -> Mapping[str, Terms]:
    """Return the licenses that require something of an app, by their ids on model cards."""
    rows = read_rows(FOLDER / "licenses.toml", "license", Terms)
    return {name: row for row in rows for name in row.ids}


def read_license(files: Mapping[str, bytes]) -> ModelLicense:
    """Find the license of a model in its card and notices, {name: content}."""
    texts = {name: data.decode("utf-8", "replace") for name, data in sorted(files.items())}
    cards = [name for name in texts if name.lower() == CARD]
    card = front_matter(texts[cards[0]]) if cards else {}
    notices = {name: text for name, text in texts.items() if name not in cards}
    license_id = card.get("license", "").lower()
    license_name = card.get("license_name", "")
    return ModelLicense(
        id=license_name if license_name and license_id in ("", *OTHER) else license_id,
        link=card.get("license_link", ""),
        texts=notices,
    )


def front_matter(card: str) -> dict[str, str]:
    """Return the license fields of a model card; for a list, its first entry."""
    head = FRONT_MATTER.match(card.replace("\r\n", "\n"))
    if head is None:
        return {}
    entries = {key: value.strip().strip("\"'[]") for key, value in ENTRY.findall(head[1])}
    return {key: one_line(value)[:LONGEST] for key, value in entries.items()}


def license_remark(model_license: ModelLicense) -> str:
    """Say what a developer should know before shipping the model; "" for nothing."""
    if not model_license.id:
        return "" if model_license.texts else NO_LICENSE
    name = model_license.id.lower()
    no_text = "" if model_license.texts or name in CARRIED else NO_TEXT
    if name in terms():
        entry = terms()[name]
        asks = f"The license requires you to {entry.asks}: {entry.source}."
        return " ".join(filter(None, [f"the model's license is {entry.name}.", asks, no_text]))
    if name not in FREE:
        at = f" ({model_license.link})" if model_license.link else ""
        sentence = f"the model's license is {model_license.id}{at}: read it before you ship it."
        return " ".join(filter(None, [sentence, no_text]))
    return f"the model's license is {model_license.id}. {no_text}" if no_text else ""


NO_TEMPLATE = "the model has no chat template, so sessions give it plain lines of text"


@dataclass(frozen=True)
class ModelTexts:
    """The texts of a model's makers.

    template: None if there is none. remarks: notes for the user.
    """

    template: ChatTemplate | None = None
    license: ModelLicense = field(default_factory=ModelLicense)
    remarks: tuple[str, ...] = ()


def read_texts(files: Mapping[str, bytes], model: Model) -> ModelTexts:
    """Read and check the texts of a model's makers, from the files of `text_files`.

    Raises UserError: all errors in generation_config.json, or a file that cannot be read.
    """
    where = str(model.folder or model.id)
    problems, template = Problems(where), None
    with problems.caught():
        template = find_template(files, where)
    with problems.caught():
        check_sampling(files, model.config.vocabulary, where)
    problems.refuse()
    remark = "" if template is not None else NO_TEMPLATE
    model_license = read_license(
        {name: data for name, data in files.items() if is_notice(name)}
    )
    remarks = filter(None, (remark, license_remark(model_license)))
    return ModelTexts(template, model_license, tuple(remarks))


USERS = ("a", "0")
"""Two first messages of users that have no common beginning; PromptFormat uses them too."""
DATES = ("1", "2")
NEEDLESS = "Leave out --system: the app then reads its system prompt in the first turn."


def first_turns(texts: ModelTexts, system: str, where: str) -> list[str]:
    """Return rendered first turns; all begin with the system prompt.

    Without a template, one of them is only the system prompt.

    Raises UserError: the template refuses a system prompt, leaves it out, or writes the date
    before its end.
    """
    template = texts.template
    if template is None:
        return [f"{system}\n", *(f"{system}\n{user}" for user in USERS)]

    chats = [
        {
            "messages": [
                {"role": "system", "content": system},
                {"role": "user", "content": user},
            ],
            "date": date,
        }
        for user, date in ((USERS[0], DATES[0]), (USERS[1], DATES[0]), (USERS[0], DATES[1]))
    ]
    texts_of_turns = []
    for result in template.rendered(chats, where):
        if result["text"] is None:
            raise refused_template(template, why_not(result, "a system prompt"))
        texts_of_turns.append(result["text"])
    *turns, tomorrow = texts_of_turns
    always = common(turns)
    if system not in "".join(always):
        raise refused_template(template, "omits the system prompt")
    if len(common([turns[0], tomorrow])) < len(always):
        raise refused_template(
            template,
            "writes the date before the system prompt, so prepared caches would "
            "be valid for one day only",
        )
    return turns


def common(sequences: Sequence[Sequence[Any]]) -> list[Any]:
    """Return the elements with which all sequences begin."""
    first = sequences[0]
    return list(first[: min(first_difference(first, other) for other in sequences)])


def first_difference(one: Sequence[Any], other: Sequence[Any]) -> int:
    """Return the first place at which two sequences differ."""
    pairs = zip(one, other, strict=False)
    shorter = min(len(one), len(other))
    return next((place for place, (a, b) in enumerate(pairs) if a != b), shorter)


def refused_template(template: ChatTemplate, what: str) -> UserError:
    """Make the error for a template that cannot format a system prompt."""
    return usage_error(f"the chat template {what}", NEEDLESS, where=template.file)
