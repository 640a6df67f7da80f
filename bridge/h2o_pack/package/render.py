"""Makes the text of every generated file from a plan; writes nothing.

The app is written only once: afterwards it belongs to the user.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from h2o_pack import __version__, assets, naming
from h2o_pack.errors import output_error
from h2o_pack.facts import components, license_text, locked_pins
from h2o_pack.files import lock
from h2o_pack.files.paths import APP_FOLDER, NEW_APP_FOLDER, VENDOR_FOLDER
from h2o_pack.files.write import Content, as_bytes
from h2o_pack.memory.terms import MemoryPlan
from h2o_pack.models.texts import CARRIED
from h2o_pack.naming import one_line, swift_lines, swift_string, xml_text
from h2o_pack.package.icon import ICON_PATH, accent, icon
from h2o_pack.plan.package_plan import ModelPlan, PackagePlan
from h2o_pack.sizes import gigabytes
from h2o_pack.spec import to_document
from h2o_py.config import H2OConfig
from h2o_py.files import read_file
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
class Earlier:
    """The parts of an earlier package that the next one keeps: Vendor/ and the app.

    vendor: the record of Vendor/; None without the folder. has_app: whether there is an App
    folder. scaffold: sha256 of the files that were last written to App or App.new; None if none
    were. new_app: whether the user requests the newest scaffold.
    """

    vendor: lock.Vendored | None = None
    has_app: bool = False
    scaffold: Mapping[str, str] | None = None
    new_app: bool = False

    @property
    def place(self) -> str | None:
        """The folder to which the scaffold is written; None if it is not written."""
        if self.has_app:
            return NEW_APP_FOLDER if self.new_app else None
        return APP_FOLDER if self.new_app or self.scaffold is None else None

    def app_state(self, scaffold: Mapping[str, str]) -> AppState:
        """Return what happens to the app; scaffold: digests of the newest scaffold's files."""
        if self.place is not None:
            return "offered" if self.has_app else "written"
        if not self.has_app:
            return "removed"
        return "kept" if self.scaffold == scaffold else "outdated"


def earlier_package(output: Path, *, new_app: bool = False) -> Earlier:
    """Find the parts of a package in the output folder; new_app: see `Earlier`."""
    record = lock.read(output) if (output / lock.NAME).exists() else None
    vendor = record.vendor if record and (output / VENDOR_FOLDER).is_dir() else None
    has_app = os.path.lexists(output / APP_FOLDER)
    return Earlier(vendor, has_app, record.app if record else None, new_app)


def render_files(
    plan: PackagePlan, output: Path, *, new_app: bool = False
) -> tuple[dict[str, Content], AppState]:
    """Return {path: content} of the files to write to `output`, and the state of its App."""
    files, state = render(plan, earlier_package(output, new_app=new_app))
    return without_offered(files, output), state


def without_offered(files: Mapping[str, Content], output: Path) -> dict[str, Content]:
    """Leave out files that App.new already has; UserError if one of them has other content."""
    others = dict(files)
    for path, content in files.items():
        place = output / path
        if not path.startswith(f"{NEW_APP_FOLDER}/") or not os.path.lexists(place):
            continue
        if not place.is_file() or read_file(place) != as_bytes(content):
            raise output_error(
                f"{output / NEW_APP_FOLDER} already has a different {place.name}",
                "Copy what you need from App.new to App, delete App.new, and run the command "
                "again.",
            )
        del others[path]
    return others


SWIFT_TEMPLATES = "swift_templates"
TEMPLATES = Path(__file__).parent / "templates"
"""The folder of templates that are not Swift: README, .gitignore and a workflow."""
SEVERAL = "Several"
"""The folder of files that, with several models, replace files of the same names."""
DOWNLOAD, ASSET_PACK = "Download", "AssetPack"
"""The folders of files that `--download` and `--asset-pack` add. A folder in them has the name
of the folder to which its files are added."""
XCODE = ".xcodeproj"
PROJECT = f"Chat{XCODE}"
"""The project of the templates."""
COLUMNS = 100
OF_SESSION = "store"  # a setting that is left out: the session chooses the archive's folder
SPACE = "\0"  # a space at which no line may break


def render(
    plan: PackagePlan, earlier: Earlier = Earlier()
) -> tuple[dict[str, Content], AppState]:
    """Return every file to write as {relative path: content}, and the state of the app."""
    values = template_values(plan)
    files: dict[str, Content] = {
        "Package.swift": fill(assets.root() / "Package.swift.j2", values),
        "README.md": fill(TEMPLATES / "README.md.j2", values),
        ".gitattributes": (TEMPLATES / "gitattributes").read_text("utf-8"),
        ".gitignore": (TEMPLATES / "gitignore").read_text("utf-8"),
        ".github/workflows/h2o-pack.yml": fill(TEMPLATES / "h2o-pack.yml.j2", values),
    }
    for folder, target in folders(plan):
        files |= rendered(folder, target, values)
    in_app = [path for path in files if path.startswith(f"{APP_FOLDER}/")]
    # Xcode shows the project's name, which is the app's.
    app = {
        path.removeprefix(f"{APP_FOLDER}/").replace(
            PROJECT, f"{plan.folder_name}{XCODE}", 1
        ): files.pop(path)
        for path in in_app
    }
    app[ICON_PATH] = icon(plan.package_name)
    newest = digests(app)
    recorded = newest if earlier.place else earlier.scaffold
    files[lock.NAME] = make_lock(plan, files, recorded, earlier.vendor).to_json()
    if earlier.place:
        files |= {f"{earlier.place}/{path}": content for path, content in app.items()}
    return dict(sorted(files.items())), earlier.app_state(newest)


def folders(plan: PackagePlan) -> Iterator[tuple[Path, str]]:
    """Yield the folders of sources and templates, and their places in the package."""
    swift = assets.root() / SWIFT_TEMPLATES
    targets = {
        APP_FOLDER: APP_FOLDER,
        "H2OChatScreen": "Sources/H2OChatScreen",
        "H2OFoundationModels": "Sources/H2OFoundationModels",
        "H2OKit": "Sources/H2OKit",
        "H2OSessions": "Sources/H2OSessions",
        "Model": f"Sources/{plan.module_name}Model",
        "Tests": "Tests",
    }
    options = {
        SEVERAL: len(plan.models) > 1,
        DOWNLOAD: plan.spec.delivery.download,
        ASSET_PACK: plan.spec.delivery.asset_pack,
    }
    for name, target in targets.items():
        yield swift / name, target
    for option, wanted in options.items():
        if wanted:
            for folder in sorted((swift / option).iterdir()):
                yield folder, targets.get(folder.name, folder.name)


def rendered(folder: Path, target: str, values: Mapping[str, Any]) -> dict[str, str]:
    """Return {path: text} of a folder of sources and templates; target: their new folder."""
    files = {}
    for source in sorted(folder.rglob("*")):
        if source.is_dir() or source.name.startswith("."):
            continue
        path = f"{target}/{source.relative_to(folder).as_posix().removesuffix('.j2')}"
        body = fill(source, values) if source.suffix == ".j2" else source.read_text("utf-8")
        files[path] = marked(path, body)
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
        "version": __version__,
    }


def megabytes(memory: MemoryPlan) -> float:
    """Return the megabytes that a model needs, without the memory of the app itself."""
    caches = memory.caches + memory.archive + memory.thoughts
    return (memory.weights + caches + memory.prefill + memory.buffer_cache) / 1e6


def model_values(plan: ModelPlan) -> dict[str, Any]:
    """Return the values for templates about one model."""
    return {
        "model_id": plan.model.id,
        "folder": plan.folder,
        "folder_name": plan.folder.rpartition("/")[2],
        "config": plan.cache.to_dict(),
        "evicts": plan.cache.evicts,
        "stored": STORAGE_BITS[plan.storage.name].meaning,
        "config_arguments": config_arguments(plan.cache),
        "nested_config_arguments": config_arguments(plan.cache, indent=20),
        "storage": STORAGE_BITS[plan.storage.name].swift,
        "group_size": plan.storage.group_size,
        "budgets": plan.budgets,
        "layer_rows": layer_rows(plan),
        "memory": plan.memory,
        "memory_of": plan.memory_of,
        "recall": plan.cache.recall is not None,
        "archive_in_files": plan.workload.archive_in_files,
        "model_gigabytes": gigabytes(plan.model.size),
    }


def fill(template: Path, values: Mapping[str, Any]) -> str:
    """Fill one Jinja template."""
    return compiled(template.read_text("utf-8")).render(values)


@cache
def compiled(text: str) -> Template:
    """Compile a template; packages rendered by the same process share it."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # noqa: S701 - Swift and Markdown, not HTML
    )
    for text_filter in (one_line, swift_lines, swift_name, swift_string, xml_text):
        environment.filters[text_filter.__name__] = text_filter
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
        upstream=locked_pins(),
        notes=plan.notes,
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
    return ", ".join(f"{swift_name(name)}:{SPACE}{value}" for name, value in values)


def swift_value(value: object) -> str:
    """Return a setting's value in Swift."""
    if value is None:
        return "nil"
    if isinstance(value, str):
        return f".{swift_name(value)}"
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

    notice: its copyright line, or its own license and notices. texts: the names of the license
    texts that follow.
    """

    name: str
    license: str
    source: str
    notice: str
    texts: tuple[str, ...] = ()


def acknowledgements(plan: PackagePlan) -> tuple[Acknowledgement, ...]:
    """Return the works in a package, the models first."""
    return (
        *map(of_model, plan.models),
        *(
            Acknowledgement(
                component.name,
                component.license,
                component.source if component.package else "",
                "\n".join(component.copyright),
                component.texts,
            )
            for component in components()
        ),
    )


def of_model(plan: ModelPlan) -> Acknowledgement:
    """Return the acknowledgement of the model, with its own license or a shared text."""
    model_license = plan.source.texts.license
    source = model_license.link
    if plan.model.commit:
        source = f"{HUB}/{plan.model.id}"
    name = model_license.id.lower()
    carried = (name,) if not model_license.texts and name in CARRIED else ()
    parts = (f"{file}\n\n{text.strip()}" for file, text in model_license.texts.items())
    return Acknowledgement(plan.model.id, model_license.id, source, "\n\n".join(parts), carried)


def shared_texts(works: Iterable[Acknowledgement]) -> dict[str, str]:
    """Return {name: text} of the license texts to which works refer."""
    names = {name for work in works for name in work.texts}
    return {name: license_text(name) for name in sorted(names)}


def swift_name(name: str) -> str:
    """Return the name in Swift of a setting or a license text: apache-2.0 is apache20."""
    first, *rest = re.split(r"[^A-Za-z0-9]+", name)
    return first + "".join(part.capitalize() for part in rest)
