"""Acknowledgements that an app shows: the makers of the model and of the code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from h2o_pack.facts import components, license_text
from h2o_pack.models.texts import CARRIED
from h2o_pack.plan.package_plan import ModelPlan, PackagePlan

HUB = "https://huggingface.co"


@dataclass(frozen=True)
class Acknowledgement:
    """A work as the app names it.

    notice: its copyright, or the texts that it comes with. texts: what follows, by the names
    that `shared_texts` has.
    """

    name: str
    license: str
    source: str
    notice: str
    texts: tuple[str, ...] = ()


def acknowledgements(plan: PackagePlan) -> tuple[Acknowledgement, ...]:
    """Return the works in a package, the models first."""
    code = components(plan.spec.upstream)
    return (
        *map(of_model, plan.models),
        *(
            Acknowledgement(
                component.name,
                component.license,
                component.source if component.package else "",
                "\n".join(component.copyright),
                tuple(map(swift_name, component.texts)),
            )
            for component in code
        ),
    )


def of_model(plan: ModelPlan) -> Acknowledgement:
    """Return the acknowledgement of the model, with its own license or a shared text."""
    model_license = plan.source.texts.license
    source = model_license.link
    if plan.model.commit:
        source = f"{HUB}/{plan.model.id}"
    name = model_license.id.lower()
    carried = (swift_name(name),) if not model_license.texts and name in CARRIED else ()
    parts = (f"{file}\n\n{text.strip()}" for file, text in model_license.texts.items())
    return Acknowledgement(plan.model.id, model_license.id, source, "\n\n".join(parts), carried)


def shared_texts(works: tuple[Acknowledgement, ...]) -> Mapping[str, str]:
    """Return {name in Swift: text} of the texts that several works have."""
    files = {text for component in components() for text in component.texts} | set(CARRIED)
    texts = {swift_name(file): file for file in sorted(files)}
    names = {name for work in works for name in work.texts}
    return {name: license_text(file) for name, file in texts.items() if name in names}


def swift_name(file: str) -> str:
    """Return the name in Swift of a license's text: apache-2.0 is apache20."""
    first, *rest = re.split(r"[^A-Za-z0-9]+", file)
    return first + "".join(part.capitalize() for part in rest)
