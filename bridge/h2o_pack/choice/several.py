"""The caches of several models in one package, each for the devices that can hold its model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from h2o_pack.choice.command import Given, settle
from h2o_pack.choice.result import Choice
from h2o_pack.errors import ExitCode, Problems, UserError
from h2o_pack.plan.options import CacheOptions
from h2o_pack.plan.package_plan import make_request, read_options, require_fit
from h2o_pack.progress import ProgressReporter


@dataclass(frozen=True)
class Settled:
    """A model and its cache, both as given or as chosen, and the choice if there was one."""

    model: str
    cache: CacheOptions
    choice: Choice | None


def settle_each(given: Given, models: Sequence[str], say: ProgressReporter) -> list[Settled]:
    """Settle each model for those of the devices that can hold it; one is chosen for none.

    Raises:
        UserError: something is open and no device is named, a device can hold none of the
            models, or a model is for none of the devices.

    """
    if len(models) <= 1:
        return [Settled(*settle(replace(given, model=next(iter(models), None)), say))]
    too_small: dict[tuple[str, str], UserError] = {}
    for model in models:
        for device in given.devices:
            refusal = refusal_of(replace(given, model=model, devices=(device,)), say)
            if refusal is not None:
                too_small[model, device] = refusal
    refuse_useless(models, given.devices, too_small)
    settled = []
    for model in models:
        holding = tuple(each for each in given.devices if (model, each) not in too_small)
        settled.append(Settled(*settle(replace(given, model=model, devices=holding), say)))
    return settled


def refusal_of(given: Given, say: ProgressReporter) -> UserError | None:
    """Return why the one device cannot hold a model, whatever is open of its cache."""
    try:
        name, options, choice = settle(given, say)
        if choice is None:
            read = read_options(options)
            model = given.find_model(name, say)
            request = make_request(model, options, read.cache, read.budgets)
            require_fit(request, read.devices)
    except UserError as error:
        if error.code != ExitCode.MEMORY:
            raise
        return error
    return None


def refuse_useless(
    models: Sequence[str],
    devices: Sequence[str],
    too_small: dict[tuple[str, str], UserError],
) -> None:
    """Refuse devices that can hold no model, and models that no device can hold."""
    rows = [[(model, device) for device in devices] for model in models]
    columns = [[(model, device) for model in models] for device in devices]
    refused = {
        pair: too_small[pair]
        for pairs in (*rows, *columns)
        for pair in pairs
        if all(each in too_small for each in pairs)
    }
    problems = Problems()
    problems.found += refused.values()
    problems.refuse()
