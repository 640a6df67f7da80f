"""Options that several commands share: the model and its cache."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from h2o_pack.config_errors import OF_RECALL
from h2o_pack.errors import Problems
from h2o_pack.files.paths import MIRROR, cache_folder, reason
from h2o_pack.measure.profiling.options import LEAST_TOKENS
from h2o_pack.spec import (
    LONG_CONVERSATION,
    PREFILL_STEP,
    AppSpec,
    CacheSpec,
    DeliverySpec,
    DevicesSpec,
    ModelSpec,
    PackageSpec,
)
from h2o_py.policy_fields import FIELDS, NAMED_POLICIES, SCORES, Field
from h2o_py.storages import KV_NAMES, MEANINGS, storage_name

if TYPE_CHECKING:
    from h2o_pack.vendoring.fetch import Origin

POLICIES = tuple(policy.name for policy in NAMED_POLICIES)


class StorageName(click.Choice[str]):
    """The name of a storage; the words of a name may have any order."""

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        """Return the name as it is written in files."""
        return super().convert(storage_name(value), param, ctx)


class UsablePath(click.Path):
    """A path that the system can follow; a link to itself is refused."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the path."""
        try:
            Path(os.fsdecode(value)).resolve()
        except (OSError, RuntimeError, ValueError) as error:
            self.fail(f"{os.fsdecode(value)!r} cannot be followed: {reason(error)}", param, ctx)
        return super().convert(value, param, ctx)


PATH = UsablePath(path_type=Path)
FILE = UsablePath(path_type=Path, exists=True, dir_okay=False)
POSITIVE = click.IntRange(min=1)
Part = TypeVar("Part")


class PinnedRange(click.ParamType):  # type: ignore[type-arg]
    """A half-open range of positions, which users write as A:B."""

    name = "A:B"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, int]:
        """Read "A:B" as (A, B)."""
        begin, colon, end = str(value).partition(":")
        if not (colon and begin.isdecimal() and end.isdecimal() and int(begin) < int(end)):
            self.fail(f"{value!r} is not a range of positions such as 0:128", param, ctx)
        return int(begin), int(end)


class KnownName(click.ParamType):  # type: ignore[type-arg]
    """A name of which the shell completes the known ones."""

    name = "text"

    def __init__(self, known: Callable[[], Iterable[str]]) -> None:
        self.known = known

    def convert(self, value: Any, param: Any, ctx: Any) -> str:  # noqa: ARG002
        """Return the name."""
        return str(value)

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        """Return the known names that begin so, or else folders."""
        begin = incomplete.casefold()
        names = [name for name in self.known() if name.casefold().startswith(begin)]
        return [*map(CompletionItem, names)] or [CompletionItem(incomplete, type="dir")]


def device_names() -> Iterable[str]:
    """Return the names of devices, each once."""
    from h2o_pack.devices.catalogue import catalogue

    return dict.fromkeys(device.name for device in catalogue().all_devices())


def model_names() -> Iterable[str]:
    """Return the short names of models."""
    from h2o_pack.models.catalogue import catalogue

    return [model.name for model in catalogue()]


DEVICE, MODEL = KnownName(device_names), KnownName(model_names)


class CommaSeparated(click.ParamType):  # type: ignore[type-arg]
    """One or more values with commas between them, each of one type.

    comma: a regular expression of what is between two values.
    """

    def __init__(self, element: click.ParamType[Any] = click.STRING, comma: str = ",") -> None:
        self.element, self.comma = element, comma
        self.name = f"{element.name},..."

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[Any, ...]:
        """Read "a,b" as (a, b)."""
        if isinstance(value, tuple):
            return value
        parts = [part.strip() for part in re.split(self.comma, str(value)) if part.strip()]
        if not parts:
            self.fail(f"{value!r} has no value between its commas", param, ctx)
        return tuple(self.element.convert(part, param, ctx) for part in parts)


NAMES = CommaSeparated()
CONTENDERS = CommaSeparated(comma=r",(?!heavy=|recent=)")  # storages have commas too
NUMBERS = CommaSeparated(click.INT)
COUNTS = CommaSeparated(POSITIVE)


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def together(*options: Decorator) -> Decorator:
    """Combine several decorators into one; help shows their options in this order."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


revision_option = click.option(
    "--revision",
    default="",
    show_default=False,
    help="Branch, tag or commit on the hub. [default: main]",
)


def model_options(*, several: bool = False) -> Decorator:
    """Return --model and --revision.

    The parameter is `model`, None if h2o-pack chooses it; for several models it is `models`,
    empty if h2o-pack chooses a model.
    """
    repeat = " Repeat it for several models." if several else ""
    model = click.option(
        "--model",
        "models" if several else "model",
        multiple=several,
        type=MODEL,
        help=f"Short name, folder, or id or address on huggingface.co.{repeat} "
        "[default: chosen for --device]",
    )
    return together(model, revision_option)


origin_options = together(
    click.option(
        "--upstream",
        type=PATH,
        hidden=True,
        help="Folder with your own clones of mlx-swift, mlx-swift-lm and the other copied "
        "repositories, instead of a download.",
    ),
    click.option(
        "--mirror",
        metavar="URL",
        default="",
        show_default=False,
        envvar=MIRROR,
        show_envvar=True,
        hidden=True,
        help="Download from URL/OWNER/NAME instead of https://github.com/OWNER/NAME.",
    ),
    click.option(
        "--cache",
        type=PATH,
        default=cache_folder,
        show_default=False,
        hidden=True,
        help="Folder that keeps downloads. [default: $H2O_PACK_CACHE, or the user's cache]",
    ),
)
"""The options that `origin` reads."""


def origin(options: dict[str, Any]) -> Path | Origin:
    """Return the origin of upstream's sources: the user's clones, or a download."""
    from h2o_pack.vendoring.fetch import Origin

    clones: Path | None = options["upstream"]
    return clones or part(Origin, options)


sample_options = together(
    click.option(
        "--text",
        type=FILE,
        help="UTF-8 file with the text. [default: text on which the demo model was not "
        "trained]",
    ),
    click.option(
        "--tokens",
        type=click.IntRange(min=LEAST_TOKENS),
        default=1024,
        help="Tokens in each piece of the text.",
    ),
    click.option("--samples", type=POSITIVE, default=4, help="Pieces of the text to read."),
)
"""The text that a model reads to be profiled: fields of `profiling.options.Options`."""

storage_options = together(
    click.option(
        "--kv",
        type=StorageName(KV_NAMES),
        metavar=f"[{'|'.join(name for name in KV_NAMES if '=' not in name)}|heavy=H,recent=R]",
        help=f"How keys and values are stored. {MEANINGS}. [default: 16; if h2o-pack chooses "
        "the model or --max-kv, it chooses this too]",
    ),
    click.option(
        "--policy",
        type=click.Choice(POLICIES),
        default="standard",
        help="Which tokens the cache keeps. paper is the published policy.",
    ),
    click.option(
        "--budgets",
        type=PATH,
        help="JSON file with the budgets of each layer, from `h2o-pack profile --budgets`.",
        hidden=True,
    ),
    click.option(
        "--context",
        type=int,
        help="Tokens of the longest conversation that you expect. [default: the model's "
        f"context; at most {LONG_CONVERSATION} if h2o-pack chooses the model or --max-kv]",
    ),
    click.option(
        "--prefill-step",
        type=int,
        default=PREFILL_STEP,
        help="Tokens of a prompt that the model reads at once.",
        hidden=True,
    ),
)
"""The settings of a cache except --max-kv, recall and the policy's own settings."""

MAX_KV = FIELDS[0]


def recall_option(name: str, text: str) -> Decorator:
    """Return the option of a setting of recall; help does not show the option.

    name: of the field of `CacheSpec`. text: the help, without the default.
    """
    field = OF_RECALL[name]
    default = field.default_meaning.replace(f"`{MAX_KV.name}`", "max-kv")
    choices = click.Choice([str(choice) for choice in field.choices])
    return click.option(
        field.flag,
        type=choices if field.choices else click.IntRange(min=field.least),
        callback=lambda _context, _option, value: None if value is None else int(value),
        metavar="BYTES" if field.type == "bytes" else None,
        help=f"{text} [default: {default}]",
        hidden=True,
    )


recall_options = together(
    click.option(
        "--recall/--no-recall",
        default=None,
        help="Keep evicted tokens in an archive, which prompts and generated tokens read. "
        "[default: recall where --max-kv bounds the rows]",
    ),
    recall_option(
        "recall_ask",
        "Tokens at the end of a prompt's chunk that read the whole archive. 2147483647: all.",
    ),
    recall_option(
        "recall_reach",
        "Archived tokens that a generated token reads per KV head. 0: none; 2147483647: all.",
    ),
    recall_option("archive_bits", "Bits of an archived key or value."),
    click.option(
        "--archive",
        type=click.Choice(["memory", "files"]),
        help="Where the archive is kept. [default: files]",
        hidden=True,
    ),
    recall_option(
        "archive_limit",
        "Most bytes of one layer's archive. A full archive drops its oldest tokens. 0: no "
        "limit.",
    ),
)
"""The options of recall, named like the fields of `CacheSpec`."""


def cache_options(max_kv: str) -> Decorator:
    """Return the options of a cache but the policy's settings; max_kv: its default in help."""
    rows = click.option(MAX_KV.flag, type=int, help=f"{MAX_KV.help} [default: {max_kv}]")
    return together(rows, storage_options, recall_options)


choice_options = together(
    click.option(
        "--min-speed",
        type=click.FloatRange(min=0, min_open=True),
        metavar="N",
        help="Tokens per second that a chosen model must still generate after ten minutes. "
        "[default: 10]",
    ),
    click.option(
        "--losses",
        type=FILE,
        hidden=True,
        help="Measured losses by which the cache is chosen: the losses.json that `h2o-pack "
        "eval --output DIR` wrote for your model. [default: the losses of "
        "SmolLM2-135M-Instruct]",
    ),
)
"""The fields of `Criteria`."""


def device_options(text: str) -> Decorator:
    """Return the options --device and --devices; text: the end of the help of --device."""
    return together(
        click.option(
            "--device",
            "devices",
            multiple=True,
            type=DEVICE,
            help=f"Identifier or name of a device. {text}",
        ),
        click.option("--devices", "own", type=PATH, help="TOML file with your own devices."),
    )


def spec_of(options: dict[str, Any], problems: Problems) -> PackageSpec:
    """Make a spec from a command's options, and read the files that they name.

    problems: collects the errors of --download and of the files of --budgets and --system.
    """
    from h2o_pack.package.system_prompt import read_system
    from h2o_pack.plan.workload import read_budgets

    values = {field.name: options.pop(field.name, None) for field in FIELDS}
    options["settings"] = {name: x for name, x in values.items() if x not in (None, ())}
    budgets, system, delivery = None, "", DeliverySpec()
    with problems.caught():
        budgets = read_budgets(options["budgets"])
    with problems.caught():
        system = read_system(options.get("system"))
    with problems.caught():
        delivery = part(DeliverySpec, options)
    cache = part(CacheSpec, options, budgets=budgets)
    file = options["own"]
    return PackageSpec(
        models=tuple(
            part(ModelSpec, options, model=model, cache=cache)
            for model in options.get("models") or (options.get("model"),)
        ),
        delivery=delivery,
        app=part(AppSpec, options, system=system),
        devices=DevicesSpec(options["devices"], None if file is None else file.absolute()),
    )


def part(kind: type[Part], options: dict[str, Any], **values: Any) -> Part:
    """Make a dataclass from the options named like its fields, and from other values."""
    names = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: options[name] for name in names & options.keys()} | values)


def setting(field: Field) -> Decorator:
    """Return the option of a policy's setting; help does not show the option."""
    kinds: dict[str, dict[str, Any]] = {
        "integer": {"type": int},
        "score": {"type": click.Choice([score.name for score in SCORES])},
        "ranges": {"type": PinnedRange(), "multiple": True},
    }
    default = "" if field.type == "ranges" else " [default: the policy's]"
    return click.option(
        field.flag,
        field.name,
        help=f"{field.help}{default}",
        hidden=True,
        **kinds[field.type],
    )


settings = together(*(setting(field) for field in FIELDS if field is not MAX_KV))
"""The options of a policy's settings except --max-kv."""
