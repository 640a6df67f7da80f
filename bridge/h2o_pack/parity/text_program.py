"""Builds the program that `--level text` asks, once for each set of sources, and asks it.

The program has the app's own libraries for text, without MLX: the vendored tokenizer, template
engine, decoders of configurations, and the files of H2OSessions/Text. Its sources come from a
package's Vendor/ where they are there, otherwise from the user's clones or the cache of
downloads.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from filelock import FileLock

from h2o_pack import assets
from h2o_pack.errors import Problems, UserError, version_error
from h2o_pack.facts import pins, with_submodules
from h2o_pack.files.paths import VENDOR_FOLDER, cache_folder
from h2o_pack.files.toml import read_rows
from h2o_pack.files.write import in_turn, refuse_others
from h2o_pack.parity import swift
from h2o_pack.progress import ProgressReporter
from h2o_pack.resolved.decoders import decoder_sources
from h2o_pack.resolved.swift_source import declarations
from h2o_pack.vendoring import vendor
from h2o_pack.vendoring.edits import EditSet, apply_all, edits_of
from h2o_pack.vendoring.fetch import Origin, store_of
from h2o_py.files import read_file

FACTS = Path(__file__).with_name("text.toml")
CACHE = "text"
PROGRAM = "h2o-text"
SWIFT = "swift_templates/TextProgram"
OWN = (f"{SWIFT}/*.swift", "swift_templates/H2OSessions/Text/*.swift")
"""The files of this project that are compiled as the program's own module."""
LOADER = "swift_templates/H2OKit/Bundle/ModelLoader.swift"
TOKENIZER_TYPES = ("BundledTokenizerLoader", "BundledTokenizer")
"""The declarations that are cut out of LOADER, which also loads models."""
MANIFEST = "Package.swift"
STUBS = "NoImages.swift"
UPSTREAM = "mlx-swift-lm"
TOKENIZERS = "h2o-tokenizers"
LIBRARIES = (TOKENIZERS, "swift-jinja", "yyjson", "swift-collections")
"""The folders of Vendor/ that the program depends on."""
READ = ("Libraries/MLXLMCommon", "Libraries/MLXLLM")
"""The folders of mlx-swift-lm that the program is cut out of."""
LEAN = ("-Xswiftc", "-gnone", "-Xcc", "-g0")
LIMIT = 120.0
"""The most seconds for an item; then the program is ended, as if the item had ended it."""
NEEDED = ", which the check of the app's text needs"
MOST_ENDS = 25
"""The most times that the program is started again after an item that ended it."""
IMPORTS = re.compile(r"^\s*(?:@\w+\s+)*(?:\w+\s+)?import (?:\w+ )?(MLX\w*)", re.MULTILINE)


@dataclass(frozen=True)
class Module:
    """Files of mlx-swift-lm that the program compiles as a module; see text.toml."""

    name: str
    folder: str
    paths: tuple[str, ...]
    declarations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@cache
def text_modules() -> tuple[Module, ...]:
    """Return the modules of text.toml."""
    return read_rows(FACTS, "module", Module)


def own_files() -> dict[str, Path]:
    """Return {file name: path} of this project's files in the program."""
    root = assets.root()
    return {path.name: path for pattern in OWN for path in sorted(root.glob(pattern))}


# The sources


@contextmanager
def sources(
    package: Path | None, upstream: Path | Origin, say: ProgressReporter
) -> Iterator[Path]:
    """Yield a folder with the edited sources, in the folders that Vendor/ has.

    Raises UserError: sources are missing, cannot be downloaded, or are not as expected.
    """
    edits = needed(edits_of(assets.root()).applying(swift.SYSTEM, "offline"))
    vendored = None if package is None else package / VENDOR_FOLDER
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        copies = []
        for copy in edits.copies:
            name = edits.folder(copy.package)
            if vendored is not None and (vendored / name).is_dir():
                for path in READ if name == UPSTREAM else (".",):
                    shutil.copytree(vendored / name / path, folder / name / path)
            else:
                copies.append(copy)
        if copies:
            rest = with_submodules(sorted({copy.package for copy in copies}))
            with vendor.sources(upstream, rest, say) as (clones, _commits):
                vendor.copy_sources(clones, folder, replace(edits, copies=tuple(copies)), rest)
        problems = Problems()
        for (name, file), of_file in edits.by_file().items():
            with problems.caught():
                source = folder / edits.folder(name) / file
                if not source.is_file():
                    raise changed(f"there is no {file}{NEEDED}", folder / edits.folder(name))
                source.write_text(apply_all(source.read_text("utf-8"), of_file), "utf-8")
        problems.refuse()
        vendor.add_files(assets.root(), folder, edits.files)
        yield folder


def needed(edits: EditSet) -> EditSet:
    """Return the copies, edits and files that the program's sources need."""
    names = {
        *LIBRARIES,
        *(c.package for c in edits.copies if edits.folder(c.package) in LIBRARIES),
    }

    def reads(package: str, path: str) -> bool:
        return package in names or (package == UPSTREAM and path.startswith(READ))

    return EditSet(
        copies=tuple(
            replace(copy, paths=READ) if copy.package == UPSTREAM else copy
            for copy in edits.copies
            if copy.package in {*names, UPSTREAM}
        ),
        edits=tuple(edit for edit in edits.edits if reads(edit.package, edit.file)),
        files=tuple(file for file in edits.files if reads(file.package, file.destination)),
    )


def missing(package: Path | None, upstream: Path | Origin) -> tuple[str, ...]:
    """Name the sources that are neither in Vendor/ nor at hand without a network."""
    edits = needed(edits_of(assets.root()).applying(swift.SYSTEM, "offline"))
    names = []
    for copy in edits.copies:
        pin, name = pins()[copy.package], edits.folder(copy.package)
        if package is not None and (package / VENDOR_FOLDER / name).is_dir():
            continue
        if isinstance(upstream, Path):
            is_there = (upstream / pin.place).is_dir()
        else:
            is_there = store_of(pin, upstream).is_file()
        if not is_there:
            names.append(pin.name)
    return tuple(dict.fromkeys(names))


def program_files(folder: Path) -> dict[str, Path | str]:
    """Return {path: source} of the program's package; folder: see `sources`.

    Raises UserError: a file or a declaration is missing, or a file imports MLX.
    """
    own = own_files()
    files: dict[str, Path | str] = {MANIFEST: own.pop(MANIFEST)}
    for module in text_modules():
        place = f"Sources/{module.name}"
        files[f"{place}/{STUBS}"] = own.pop(STUBS)
        for path in module_files(module, folder / UPSTREAM / module.folder):
            files[f"{place}/{path.name}"] = path
        for name, cut in module.declarations.items():
            source = folder / UPSTREAM / module.folder / name
            files[f"{place}/Cut{name}"] = cut_out(source, cut)
    for name, text in decoder_sources(folder / UPSTREAM).items():
        files[f"Sources/H2OConfigurations/{name}"] = text
    files |= {f"Sources/{PROGRAM}/{name}": path for name, path in own.items()}
    files[f"Sources/{PROGRAM}/Cut{Path(LOADER).name}"] = loader_source()
    for name in LIBRARIES:
        files |= swift.tree(folder / name, f"{VENDOR_FOLDER}/{name}")
    return files


def loader_source() -> str:
    """Return the app's adapter of its tokenizer as a file of its own."""
    text = cut_out(assets.root() / LOADER, TOKENIZER_TYPES)
    return f"import H2OTokenizers\nimport MLXLMCommon\n{text}"


def module_files(module: Module, folder: Path) -> Iterator[Path]:
    """Yield a module's files; UserError for a pattern without files, or a file with MLX."""
    for pattern in module.paths:
        paths = sorted(folder.glob(pattern))
        if not paths:
            raise changed(f"there is no {module.folder}/{pattern}{NEEDED}", folder)
        for path in paths:
            if match := IMPORTS.search(read_file(path).decode()):
                what = f"{path.name} imports {match[1]}, but"
                raise changed(f"{what} the check of the app's text runs without MLX", folder)
            yield path


def cut_out(source: Path, names: Sequence[str]) -> str:
    """Return declarations of a file as a file of their own; UserError if one is missing."""
    if not source.is_file():
        raise changed(f"there is no {source.name}{NEEDED}", source.parent)
    found = {
        declaration.name: declaration.text
        for declaration in declarations(read_file(source).decode())
        if declaration.kind != "extension"
    }
    for name in names:
        if name not in found:
            raise changed(f"{source.name} does not declare {name}{NEEDED}", source.parent)
    return "import Foundation\n\n" + "\n\n".join(found[name] for name in names) + "\n"


def changed(what: str, where: Path) -> UserError:
    """Make the error for sources that are not as text.toml says."""
    return version_error(
        what,
        f"Use the sources of {UPSTREAM} {pins()[UPSTREAM].version}.",
        where=str(where),
    )


# The build


def program(
    package: Path | None, upstream: Path | Origin, compiler: str, say: ProgressReporter
) -> Path:
    """Return the program's path; builds it if the cache lacks it.

    package: whose Vendor/ to use. upstream: of the sources that Vendor/ lacks. compiler: the
    path of `swift`. Raises UserError: sources are missing, or the program does not build.
    """
    cache = upstream.cache if isinstance(upstream, Origin) else cache_folder()
    folder = cache / CACHE
    folder.mkdir(parents=True, exist_ok=True)
    refuse_others(folder)
    with sources(package, upstream, say) as tree:
        files = program_files(tree)
        place = folder / key(files, compiler)
        binary = place / PROGRAM
        with in_turn(FileLock(folder / "lock"), say, f"h2o-pack that uses {folder}"):
            if not binary.is_file():
                build(files, compiler, place, say)
    return binary


def key(files: Mapping[str, Path | str], compiler: str) -> str:
    """Return one sha256 of the sources and of the compiler's version."""
    version = subprocess.run([compiler, "--version"], capture_output=True, check=False)  # noqa: S603
    total = hashlib.sha256(version.stdout)
    for name, source in sorted(files.items()):
        data = source.encode() if isinstance(source, str) else read_file(source)
        total.update(name.encode() + b"\0" + hashlib.sha256(data).digest())
    return total.hexdigest()[:32]


def build(
    files: Mapping[str, Path | str], compiler: str, place: Path, say: ProgressReporter
) -> None:
    """Build the program in a folder, and keep only the program and the build's log."""
    say("building the program that checks the app's text (once, about 2 minutes)")
    with TemporaryDirectory(dir=place.parent, prefix=".unfinished-") as temporary:
        root, log = Path(temporary), place.with_suffix(".log")
        swift.sync(files, root)
        options = ("--package-path", str(root), "--scratch-path", str(root / "build"))
        command = (compiler, "build", "-c", "release", *options, *LEAN)
        if swift.run_command(command, log, os.environ, lambda line: say(f"building: {line}")):
            raise swift.failure("swift build of the program that checks the app's text", log)
        place.mkdir(exist_ok=True)
        shutil.copy2(root / "build/release" / PROGRAM, place / f".{PROGRAM}")
        (place / f".{PROGRAM}").replace(place / PROGRAM)


# Questions and answers


Answer = dict[str, Any]


def ask(
    program: Path, request: Mapping[str, Any], work: Path, advance: Callable[[int], None]
) -> list[Answer]:
    """Ask all items of a request; return an answer for each.

    An item that ends the program, or takes longer than LIMIT, has an answer with an `error`;
    the program is then started again with the next item. advance: called with the number of
    items that were answered.
    """
    work.mkdir(parents=True, exist_ok=True)
    path, count = work / "request.json", len(request["items"])
    path.write_text(json.dumps(request), "utf-8")
    answers: list[Answer] = []
    for _ in range(MOST_ENDS):
        for answer in run_program(program, path, len(answers)):
            answers.append(answer)
            advance(1)
        if len(answers) >= count:
            return answers
    ended = f"the program was not asked, because it ended at {MOST_ENDS} items before"
    return answers + [{"error": ended}] * (count - len(answers))


def run_program(program: Path, request: Path, first: int) -> Iterator[Answer]:
    """Yield the answers from an item on; the last has an `error` if the program ended there."""
    log = request.with_name("errors.txt")
    with (
        log.open("wb") as errors,
        subprocess.Popen(  # noqa: S603
            [program, request, str(first)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
        ) as process,
    ):
        is_late = threading.Event()

        def end() -> None:
            is_late.set()
            process.kill()

        try:
            while True:
                timer = threading.Timer(LIMIT, end)
                timer.start()
                line = process.stdout.readline() if process.stdout else b""
                timer.cancel()
                if not line.endswith(b"\n"):
                    break
                yield json.loads(line)
        finally:
            process.kill()
    code = process.returncode
    if is_late.is_set():
        yield {"error": f"the program gave no answer within {LIMIT:g} seconds"}
    elif code:
        yield {"error": f"the program ended{how(code)}{last_line(log)}"}


def how(code: int) -> str:
    """Say how a program ended."""
    if code > 0:
        return f" with exit code {code}"
    try:
        return f" by signal {signal.Signals(-code).name}"
    except ValueError:
        return f" by signal {-code}"


def last_line(log: Path) -> str:
    """Return the line in which Swift says why it ended, after a colon; "" if there is none."""
    lines = log.read_text("utf-8", errors="replace").splitlines()
    fatal = [line.partition("Fatal error: ")[2] for line in lines if "Fatal error: " in line]
    return f": {fatal[0].strip()}" if fatal else ""
