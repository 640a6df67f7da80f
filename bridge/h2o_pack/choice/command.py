"""What `choose`, `ios` and `plan` do with what was left open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from h2o_pack.architectures.model import Model
from h2o_pack.choice.choose import choose, chosen_options
from h2o_pack.choice.losses import read_losses
from h2o_pack.choice.request import ChoiceRequest
from h2o_pack.choice.result import Choice
from h2o_pack.devices.catalogue import catalogue as device_catalogue
from h2o_pack.errors import ExitCode, Problems, UserError
from h2o_pack.hub.resolve import resolve
from h2o_pack.models.catalogue import catalogue as model_catalogue
from h2o_pack.plan.options import CacheOptions
from h2o_pack.plan.package_plan import make_request, named_devices, read_options
from h2o_pack.plan.report import PlanResult, make_report
from h2o_pack.progress import ProgressReporter


@dataclass(frozen=True)
class Given:
    """What the command line said; None and "" is open.

    options: all other fields of `CacheOptions` by name. own: the user's file of devices.
    losses: a user's own table.
    """

    model: str | None
    max_kv: int | None
    kv: str | None
    recall: bool | None
    devices: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    revision: str = ""
    assume_full_attention: bool = False
    min_speed: float | None = None
    losses: Path | None = None
    own: Path | None = None
    asset_pack: bool = False
    download: str = ""
    upstream_version: str = ""

    def find_model(self, name: str, say: ProgressReporter) -> Model:
        """Describe the model of this name, by its headers.

        Raises:
            UserError: it is unknown, unreadable or unsupported.

        """
        say(f"reading the headers of {name}")
        return resolve(
            name,
            revision=self.revision,
            assume_full_attention=self.assume_full_attention,
            stated=True,
        )

    def cache(self, max_kv: int) -> CacheOptions:
        """Return the cache as it was given, with so many rows."""
        return CacheOptions(
            max_kv=max_kv,
            kv=self.kv or "dense",
            recall=bool(self.recall),
            devices=self.devices,
            device_file=None if self.own is None else self.own.absolute(),
            **self.options,
        )


def settle(given: Given, say: ProgressReporter) -> tuple[str, CacheOptions, Choice | None]:
    """Return the model and its cache, both as given or as chosen, and the choice.

    Raises:
        UserError: something is open and no device is named, or nothing fits.

    """
    if given.model and given.max_kv is not None:
        refuse_without_choice(given)
        return given.model, given.cache(given.max_kv), None
    request = choice_request(given, say)
    choice = make_choice(given, request, say)
    model, options = chosen_options(request, choice)
    return given.model or model, options, choice


def chosen_plan(given: Given, say: ProgressReporter) -> tuple[Choice, PlanResult]:
    """Choose what is open and return the choice and its plan.

    Raises:
        UserError: no device is named, or nothing fits.

    """
    request = choice_request(given, say)
    choice = make_choice(given, request, say)
    if choice.plan is None:
        chosen_options(request, choice)  # raises: it says why nothing fits
        raise AssertionError
    return choice, choice.plan


def make_choice(given: Given, request: ChoiceRequest, say: ProgressReporter) -> Choice:
    """Choose, and plan what was chosen."""
    say("choosing")
    choice = choose(request, model_catalogue(), read_losses(given.losses))
    if choice.chosen is None:
        return choice
    name, options = chosen_options(request, choice)
    model = request.model or resolve(name, stated=True)
    read = read_options(options)
    planned = make_request(model, options, read.cache, read.budgets)
    known = device_catalogue(given.own)
    report = make_report(planned, request.devices, known, model_catalogue())
    return replace(choice, plan=report)


def choice_request(given: Given, say: ProgressReporter) -> ChoiceRequest:
    """Find the devices and the model that were named.

    Raises:
        UserError: no device was named, or one of them or the model is unknown.

    """
    if not given.devices:
        raise UserError(
            "the model and the rows are not both given, and no device is",
            remedy="Give --model and --max-kv, or --device: what is left out is then chosen.",
            code=ExitCode.USAGE,
        )
    problems = Problems()
    with problems.caught():
        devices = named_devices(given.devices, device_catalogue(given.own))
    model = None
    if given.model:
        with problems.caught():
            model = given.find_model(given.model, say)
    problems.refuse()
    return ChoiceRequest(
        devices=devices,
        cache=given.cache(given.max_kv or 1),
        context=given.options.get("context"),
        model=model,
        max_kv=given.max_kv,
        kv=given.kv,
        recall=given.recall,
        min_speed=given.min_speed or 0.0,
        asset_pack=given.asset_pack,
        download=bool(given.download),
        upstream_version=given.upstream_version,
    )


def refuse_without_choice(given: Given) -> None:
    """Refuse options of a choice where nothing is left open."""
    flags = [
        flag
        for flag, value in (("--min-speed", given.min_speed), ("--losses", given.losses))
        if value is not None
    ]
    if flags:
        raise UserError(
            f"{' and '.join(flags)}: nothing is left to choose",
            remedy="Leave --model or --max-kv out, or these options.",
            code=ExitCode.USAGE,
        )
