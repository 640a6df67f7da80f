"""A model's chat template: what it reads, and whether it can be used.

Templates are Jinja, parsed and run here in a sandbox, with what transformers offers them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from h2o_pack.errors import shown, unreadable
from h2o_pack.models.json_file import parse_object

if TYPE_CHECKING:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

FILE, JSON_FILE, TOKENIZER_CONFIG = FILES = (
    "chat_template.jinja",
    "chat_template.json",
    "tokenizer_config.json",
)
KEY = "chat_template"
LARGEST = 16 << 20  # bytes of a file; some tokenizer_config.json list a vocabulary
SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token", "cls_token", "sep_token")
GIVEN = {
    *SPECIAL,
    *("messages", "tools", "documents", "add_generation_prompt"),
    *("mask_token", "additional_special_tokens", "raise_exception", "strftime_now"),
}
"""What every template is given; whatever else one reads is a choice of the user's."""


@dataclass(frozen=True)
class ChatTemplate:
    """A template: its text, the file that has it, and the model's special tokens by name."""

    source: str
    file: str
    special: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """What it reads that is not in every template, such as enable_thinking; sorted.

        Raises:
            jinja2.TemplateError: it cannot be parsed.

        """
        from jinja2 import meta

        environment = sandbox()
        read = meta.find_undeclared_variables(environment.parse(self.source))
        return tuple(sorted(read - GIVEN - environment.globals.keys()))

    def render(
        self, messages: Sequence[Mapping[str, str]], strftime_now: Callable[[str], str]
    ) -> str:
        """Return the text of messages, with what begins the model's turn after them.

        strftime_now: gives the date in a format, for templates that write it.

        Raises:
            jinja2.TemplateError: it cannot be parsed, or refuses the messages.

        """
        template = sandbox().from_string(self.source)
        values = {"tools": None, "documents": None, "strftime_now": strftime_now}
        return template.render(
            messages=messages, add_generation_prompt=True, **values, **self.special
        )

    @cached_property
    def drops_thoughts(self) -> bool:
        """Whether it writes what a model thinks, and leaves it out once the user goes on."""
        from jinja2 import TemplateError

        def text(**thoughts: str) -> str:
            reply = {"role": "assistant", "content": "b", **thoughts}
            asked = [{"role": "user", "content": said} for said in "ac"]
            return self.render([asked[0], reply, asked[1]], lambda _format: "today")

        if "<think>" not in self.source:
            return False
        try:
            return text(reasoning_content="t") == text()
        except (TemplateError, TypeError, ValueError):
            return False

    def problem(self) -> str:
        """Say why it cannot be used for a conversation that a user opens, or nothing."""
        from jinja2 import TemplateError, TemplateSyntaxError

        try:
            self.render([{"role": "user", "content": "a"}], lambda _format: "today")
        except TemplateSyntaxError as error:
            return f"cannot be parsed: line {error.lineno}: {error.message}"
        except TemplateError as error:
            return f"refuses a user's message: {shown(str(error.message))}"
        except Exception as error:  # noqa: BLE001 - a template runs whatever it says
            return f"fails at a user's message: {shown(str(error))}"
        return ""


def find_template(files: Mapping[str, bytes], where: str) -> ChatTemplate | None:
    """Return a model's template, None if it has none.

    A file of its own comes before tokenizer_config.json, as in transformers and
    swift-tokenizers; of several templates the one named "default" is for conversations.

    Args:
        files: those of `FILES` that the model has, by their names.
        where: the model, for messages.

    Raises:
        UserError: a file that may have it cannot be read.

    """
    documents = {
        name: parse_object(files[name], name, where, LARGEST) if name in files else {}
        for name in (JSON_FILE, TOKENIZER_CONFIG)
    }
    tokens = documents[TOKENIZER_CONFIG]
    special = {name: text for name in SPECIAL if (text := token_text(tokens.get(name)))}
    if FILE in files:
        try:
            return ChatTemplate(files[FILE].decode("utf-8"), FILE, special)
        except UnicodeDecodeError as error:
            raise unreadable(where, f"{FILE} is not UTF-8 text") from error
    for name, document in documents.items():
        given = document.get(KEY)
        source = default_of(given)
        if source is not None:
            return ChatTemplate(source, name, special)
        if given is not None:
            raise unreadable(where, f"{KEY} in {name} is neither a text nor named texts")
    return None


def default_of(value: Any) -> str | None:
    """Return the template for conversations among what a file gives; None if there is none."""
    if isinstance(value, list):
        named = {
            each.get("name"): each.get("template") for each in value if isinstance(each, dict)
        }
        value = named.get("default")
    return value if isinstance(value, str) else None


def token_text(value: Any) -> str:
    """Return the text of a special token, which is that or an object with it."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else ""


def sandbox() -> ImmutableSandboxedEnvironment:
    """Return the environment that transformers gives templates."""
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> NoReturn:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", generation_tag()],
    )
    environment.filters["tojson"] = lambda value, **options: json.dumps(
        value, ensure_ascii=False, **{"indent": None, **options}
    )
    environment.globals["raise_exception"] = refuse
    return environment


def generation_tag() -> type[Any]:
    """Return the extension for {% generation %}, which marks what training learns from."""
    from jinja2.ext import Extension
    from jinja2.parser import Parser

    class GenerationTag(Extension):
        tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

        def parse(self, parser: Parser) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    return GenerationTag
