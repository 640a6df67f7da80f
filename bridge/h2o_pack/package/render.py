"""Makes the text of every generated file from a plan; writes nothing.

The app is written only once: afterwards it belongs to the user.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from h2o_pack import __version__, naming
from h2o_pack.errors import output_error
from h2o_pack.facts import components, license_text, locked_pins
from h2o_pack.files import lock
from h2o_pack.files.paths import APP_FOLDER, NEW_APP_FOLDER, TRACES_FOLDER
from h2o_pack.files.write import Content, as_bytes
from h2o_pack.memory.terms import MemoryPlan
from h2o_pack.models.texts import CARRIED
from h2o_pack.naming import one_line, swift_lines, swift_string, xml_text
from h2o_pack.package import proof
from h2o_pack.package.icon import ICON_PATH, accent, icon
from h2o_pack.plan.package_plan import ModelPlan, PackagePlan
from h2o_pack.sizes import gigabytes
from h2o_pack.spec import to_document
from h2o_py.config import H2OConfig
from h2o_py.policy_fields import FIELDS, RECALL_FIELDS
from h2o_py.storages import STORAGE_BITS

if TYPE_CHECKING:
    from jinja2 import Template


AppState = Literal["written", "kept", "outdated", "offered", "removed"]
STATES: dict[AppState, str] = {
    "written": "written to App, which is yours from now on",
    "kept": "yours, not changed",
    "outdated": "yours, not changed; --app writes a newer version to App.new",
    "offered": "yours, not changed; a newer version is in App.new",
    "removed": "you removed it; --app writes it again",
}


@dataclass(frozen=True)
class EarlierApp:
    """The app of an earlier package in the output folder.

    exists: whether there is an App folder. scaffold: sha256 of the files that were last written
    to App or App.new; None if none were. wanted: whether the user requests the newest scaffold.
    """

    exists: bool = False
    scaffold: Mapping[str, str] | None = None
    wanted: bool = False

    @property
    def place(self) -> str | None:
        """The folder to which the scaffold is written; None if it is not written."""
        if self.exists:
            return NEW_APP_FOLDER if self.wanted else None
        return APP_FOLDER if self.wanted or self.scaffold is None else None

    def state(self, scaffold: Mapping[str, str]) -> AppState:
        """Return what happens to the app; scaffold: digests of the newest scaffold's files."""
        if self.place is not None:
            return "offered" if self.exists else "written"
        if not self.exists:
            return "removed"
        return "kept" if self.scaffold == scaffold else "outdated"


def earlier_app(output: Path, *, wanted: bool = False) -> EarlierApp:
    """Find the app of an earlier package in the output folder; wanted: see `EarlierApp`."""
    recorded = lock.read(output).app if (output / lock.NAME).exists() else None
    return EarlierApp(os.path.lexists(output / APP_FOLDER), recorded, wanted)


def without_offered(files: Mapping[str, Content], output: Path) -> dict[str, Content]:
    """Leave out files that App.new already has; UserError if one of them has other content."""
    existing = {
        path: output / path
        for path in files
        if path.startswith(f"{NEW_APP_FOLDER}/") and os.path.lexists(output / path)
    }
    for path, place in existing.items():
        if not place.is_file() or place.read_bytes() != as_bytes(files[path]):
            raise output_error(
                f"{output / NEW_APP_FOLDER} already has a different {place.name}",
                "Copy what you need from App.new to App, delete App.new, and run the command "
                "again.",
            )
    return {path: content for path, content in files.items() if path not in existing}


SWIFT_TEMPLATES = "swift_templates"
SEVERAL = "Several"
"""The folder of files that, with several models, replace files of the same names."""
PROOF, DOWNLOAD, ASSET_PACK = "Proof", "Download", "AssetPack"
"""The folders of files that `--proof`, `--download` and `--asset-pack` add."""
PARITY = "Parity"
"""The folder of files that replay a trace, in a package's tests and in an app with --proof."""
COLUMNS = 100
OF_SESSION = "store"  # a setting that is left out: the session chooses the archive's folder
SPACE = "\0"  # a space at which no line may break


@dataclass(frozen=True)
class Earlier:
    """The parts of an earlier package that the next one keeps: Vendor/ and the app."""

    vendor: lock.Vendored | None = None
    app: EarlierApp = field(default_factory=EarlierApp)


def render(
    plan: PackagePlan, assets: Path, templates: Path, earlier: Earlier = Earlier()
) -> dict[str, Content]:
    """Return every file to write to the package as {relative path: content}.

    assets: the folder that `h2o_pack.assets.root` finds. templates: the folder of templates
    that are not Swift (README, .gitignore).
    """
    values = template_values(plan)
    files: dict[str, Content] = {
        "Package.swift": fill(assets / "Package.swift.j2", values),
        "README.md": fill(templates / "README.md.j2", values),
        ".gitignore": (templates / "gitignore").read_text("utf-8"),
        ".github/workflows/parity.yml": fill(templates / "parity.yml.j2", values),
    }
    folders = {
        "H2OChatScreen": "Sources/H2OChatScreen",
        "H2OFoundationModels": "Sources/H2OFoundationModels",
        "H2OKit": "Sources/H2OKit",
        "H2OSessions": "Sources/H2OSessions",
        "Model": f"Sources/{plan.module_name}Model",
        "Tests": "Tests",
        PARITY: f"Tests/H2OKitTests/{PARITY}",
    }
    if len(plan.models) > 1:
        model, tests = folders["Model"], folders["Tests"]
        folders |= {f"{SEVERAL}/Model": model, f"{SEVERAL}/Tests": tests}
    if plan.spec.app.proof:
        folders |= {
            f"{PROOF}/{name}": folders[name] for name in ("H2OSessions", "Model", "Tests")
        }
    if plan.spec.delivery.download:
        folders |= {f"{DOWNLOAD}/{name}": folders[name] for name in ("H2OKit", "Tests")}
    if plan.spec.delivery.asset_pack:
        folders |= {f"{ASSET_PACK}/H2OKit": folders["H2OKit"]}
        folders |= {f"{ASSET_PACK}/{ASSET_PACK}": ASSET_PACK}
    for folder, target in folders.items():
        files |= rendered(assets / SWIFT_TEMPLATES / folder, target, values)
    if plan.spec.app.proof:
        parity = assets / SWIFT_TEMPLATES / PARITY
        files |= rendered(parity, f"{folders['H2OSessions']}/{PROOF}/{PARITY}", values)
        files |= proof.traces(plan)
    app = earlier.app
    scaffold = rendered_app(plan, assets) if app.place else {}
    recorded = digests(scaffold) if app.place else app.scaffold
    files[lock.NAME] = make_lock(plan, files, recorded, earlier.vendor).to_json()
    files |= {f"{app.place}/{path}": content for path, content in scaffold.items()}
    return dict(sorted(files.items()))


def rendered_app(plan: PackagePlan, assets: Path) -> dict[str, Content]:
    """Return {path in App: content} of the app."""
    folders = [APP_FOLDER]
    folders += [f"{ASSET_PACK}/{APP_FOLDER}"] if plan.spec.delivery.asset_pack else []
    folders += [f"{DOWNLOAD}/{APP_FOLDER}"] if plan.spec.delivery.download else []
    folders += [f"{PROOF}/{APP_FOLDER}"] if plan.spec.app.proof else []
    files: dict[str, str] = {}
    values = template_values(plan)
    for folder in folders:
        files |= rendered(assets / SWIFT_TEMPLATES / folder, APP_FOLDER, values)
    texts = {path.removeprefix(f"{APP_FOLDER}/"): text for path, text in files.items()}
    return {**texts, ICON_PATH: icon(plan.package_name)}


def rendered(folder: Path, target: str, values: Mapping[str, Any]) -> dict[str, str]:
    """Return {path: text} of a folder of sources and templates; target: their new folder."""
    files = {}
    for path, source in sources(folder):
        body = fill(source, values) if source.suffix == ".j2" else source.read_text("utf-8")
        files[f"{target}/{path}"] = marked(f"{target}/{path}", body)
    return files


def marked(path: str, body: str) -> str:
    """Add a line that says whether h2o-pack or the user owns a file.

    It is the first line; in XML it follows the declaration, and in a page of documentation it
    is the last line. Xcode prescribes the first line of a project file, whose template contains
    the mark.
    """
    mark = f"generated by h2o-pack {__version__}, do not edit"
    if path.startswith(f"{APP_FOLDER}/"):
        mark = "written once by h2o-pack, yours to change"
    if path.endswith(".swift"):
        return f"// {mark}\n{body}"
    if path.endswith(".md"):  # DocC takes the first line of a page for its title
        return f"{body}\n<!-- {mark} -->\n"
    declaration, newline, rest = body.partition("\n")
    if declaration.startswith("<?xml"):
        return f"{declaration}{newline}<!-- {mark} -->\n{rest}"
    return body


def sources(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the path in the package and the source of each file or template."""
    for source in sorted(folder.rglob("*")):
        if source.is_file() and not source.name.startswith("."):
            yield source.relative_to(folder).as_posix().removesuffix(".j2"), source


def template_values(plan: PackagePlan) -> dict[str, Any]:
    """Return the values for templates; an unknown name in a template is an error."""
    works = acknowledgements(plan)
    models, delivery = [model_values(model) for model in plan.models], plan.spec.delivery
    return {
        "accent": accent(plan.package_name),
        "acknowledgements": works,
        "license_texts": shared_texts(works),
        "package_name": plan.package_name,
        "module_name": plan.module_name,
        **models[0],
        "megabytes": megabytes,
        "models": models,
        "system_prompt": plan.spec.app.system,
        "asset_pack": naming.asset_pack_id(plan.package_name) if delivery.asset_pack else "",
        "download": delivery.download,
        "model_in_app": not delivery.apart,
        "bundle_id": plan.bundle_id,
        "display_name": plan.display_name,
        "proof": plan.spec.app.proof,
        "proof_versions": proof.versions(plan),
        "traces_folder": TRACES_FOLDER,
        "version": __version__,
    }


def megabytes(memory: MemoryPlan) -> float:
    """Return the megabytes that a model needs, without the memory of the app itself."""
    caches = memory.caches + memory.archive + memory.thoughts
    return (memory.weights + caches + memory.prefill + memory.buffer_cache) / 1e6


def model_values(plan: ModelPlan) -> dict[str, Any]:
    """Return the values for templates about one model."""
    template = plan.source.texts.template
    return {
        "model_id": plan.model.id,
        "folder": plan.folder,
        "folder_name": plan.folder.rpartition("/")[2],
        "config": plan.cache.to_dict(),
        "config_arguments": config_arguments(plan.cache),
        "nested_config_arguments": config_arguments(plan.cache, indent=20),
        "storage": STORAGE_BITS[plan.storage.name].swift,
        "group_size": plan.storage.group_size,
        "budgets": plan.budgets,
        "layer_rows": layer_rows(plan),
        "memory": plan.memory,
        "kv": plan.storage.name,
        "planned_bytes": proof.planned_bytes(plan),
        "memory_of": plan.memory_of,
        "recall": plan.cache.recall is not None,
        "archive_in_files": plan.workload.archive_in_files,
        "template_variables": template.variables if template else (),
        "model_gigabytes": gigabytes(plan.model.size),
    }


def fill(template: Path, values: Mapping[str, Any]) -> str:
    """Fill one Jinja template."""
    return compiled(template.read_text("utf-8")).render(values)


@cache
def compiled(text: str) -> Template:
    """Compile a template, only once, because the app is rendered twice."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # noqa: S701 - Swift and Markdown, not HTML
    )
    environment.filters["swift_string"] = swift_string
    environment.filters["swift_lines"] = swift_lines
    environment.filters["one_line"] = one_line
    environment.filters["xml_text"] = xml_text
    return environment.from_string(text)


def layer_rows(plan: ModelPlan) -> dict[str, int | float]:
    """Return the largest and the average number of rows of the layers that evict."""
    sizes = [cache.max_size for cache in plan.workload.caches if cache] or [plan.cache.max_size]
    return {"most": max(sizes), "average": sum(sizes) / len(sizes)}


def make_lock(
    plan: PackagePlan,
    files: Mapping[str, Content],
    scaffold: Mapping[str, str] | None,
    vendor: lock.Vendored | None,
) -> lock.Lock:
    """Make the lock; files: all other files; scaffold: digests of the app's files."""
    return lock.Lock(
        h2o_pack=__version__,
        package=plan.package_name,
        module=plan.module_name,
        spec=to_document(plan.spec, lock.NAME),
        models=tuple(map(locked_model, plan.models)),
        files=digests(files),
        app=None if scaffold is None else dict(scaffold),
        vendor=vendor,
        **locked_pins(plan.spec.upstream),
    )


def locked_model(plan: ModelPlan) -> lock.LockedModel:
    """Return the lock's entry for one model."""
    return lock.LockedModel(
        folder=plan.folder,
        model=plan.model.id,
        commit=plan.model.commit,
        config=plan.cache.to_dict(),
        kv=plan.storage.name,
        group_size=plan.storage.group_size,
    )


def digests(files: Mapping[str, Content]) -> dict[str, str]:
    """Return the sha256 of each file."""
    return {path: lock.sha256(as_bytes(content)) for path, content in sorted(files.items())}


def config_arguments(config: H2OConfig, indent: int = 12) -> str:
    """Return Swift arguments of H2OConfiguration, on indented lines of at most 100 columns."""
    text = arguments(config, [field.name for field in FIELDS])
    if config.recall is not None:
        names = [field.name for field in RECALL_FIELDS if field.name != OF_SESSION]
        text += f", recall:{SPACE}H2ORecall({arguments(config.recall, names)})"
    lines = textwrap.wrap(
        text, COLUMNS - indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(" " * indent + line for line in lines).replace(SPACE, " ")


def arguments(settings: object, names: list[str]) -> str:
    """Return Swift arguments for the settings of these names."""
    values = ((name, swift_value(getattr(settings, name))) for name in names)
    return ", ".join(f"{camel(name)}:{SPACE}{value}" for name, value in values)


def camel(name: str) -> str:
    """Return a setting's name in Swift."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def swift_value(value: object) -> str:
    """Return a setting's value in Swift."""
    if value is None:
        return "nil"
    if isinstance(value, str):
        return f".{camel(value)}"
    if isinstance(value, tuple):
        return f"[{f',{SPACE}'.join(map(element, value))}]"
    return str(value)


def element(value: object) -> str:
    """Return an element of a list in Swift: a range of positions, or a number."""
    if isinstance(value, tuple):
        begin, end = value
        return f"{begin}{SPACE}..<{SPACE}{end}"
    return str(value)


HUB = "https://huggingface.co"


@dataclass(frozen=True)
class Acknowledgement:
    """The entry of a work in the app's acknowledgements.

    notice: its copyright line, or its own license and notices. texts: the license texts that
    follow, by their names in `shared_texts`.
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
    """Return {name in Swift: text} of the license texts to which works refer."""
    files = {text for component in components() for text in component.texts} | set(CARRIED)
    texts = {swift_name(file): file for file in sorted(files)}
    names = {name for work in works for name in work.texts}
    return {name: license_text(file) for name, file in texts.items() if name in names}


def swift_name(file: str) -> str:
    """Return the name in Swift of a license's text: apache-2.0 is apache20."""
    first, *rest = re.split(r"[^A-Za-z0-9]+", file)
    return first + "".join(part.capitalize() for part in rest)
