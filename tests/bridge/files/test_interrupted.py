"""Runs stopped at changes that they make: nothing is lost, and the next run finishes."""

import os
import random
import resource
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from h2o_pack.cli import main
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.files import lock
from h2o_pack.models import trial
from h2o_pack.models.files import from_folder
from h2o_pack.package import build, render, update
from h2o_pack.package.build import make_package
from h2o_pack.spec import CacheSpec
from h2o_pack.vendoring.edits import EDITS
from h2o_pack.verify.check import verify
from tests.bridge.plans import plan_of
from tests.bridge.repositories import COPIES, FILES, PLACES
from tests.bridge.trees import build_tree, names, relock, tree
from tests.messages import says
from tests.nightly import nightly_except

CHANGES = (
    "open", "os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir", "os.truncate",
    "shutil.rmtree", "shutil.copyfile",
)  # fmt: skip


def in_child(work: Callable[[], object]) -> int:
    """Do something in a forked process; return its exit code, negative for a signal."""
    trial.worker.stop()  # a child cannot use a process of its parent
    child = os.fork()
    if child == 0:
        code = 70
        signal.signal(signal.SIGINT, signal.default_int_handler)  # not what was inherited
        try:
            work()
            code = 0
        except KeyboardInterrupt:
            code = 130
        except SystemExit as error:
            code = int(error.code or 0)
        except BaseException:  # noqa: BLE001 - the child ends here, whatever it was
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def stopping(
    work: Callable[[], object], folder: Path, number: int, how: signal.Signals
) -> Callable[[], None]:
    """Return `work` that gets a signal before its n-th change below `folder`."""

    def stopped() -> None:
        def check(_event: str) -> None:
            nonlocal number
            number -= 1
            if number == 0:
                os.kill(os.getpid(), how)

        watch(folder, check)
        work()

    return stopped


def changes_of(work: Callable[[], object], folder: Path) -> list[str]:
    """Return the kinds of the changes that `work` makes below a folder, tried in a child."""
    reading, writing = os.pipe()

    def counted() -> None:
        events: list[str] = []
        watch(folder, events.append)
        work()
        os.write(writing, " ".join(events).encode())

    code = in_child(counted)
    os.close(writing)
    with os.fdopen(reading) as result:
        events = result.read().split()
    assert code == 0, code
    return events


def watch(folder: Path, report: Callable[[str], object]) -> None:
    """Call `changed` with the kind of each change below a folder, from now on."""
    prefix = str(folder)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event not in CHANGES or not arguments:
            return
        if event == "open" and not set("wax+") & set(str(arguments[1] or "")):
            return
        in_deleted_folder = event in ("os.remove", "os.rmdir") and arguments[1] != -1
        if in_deleted_folder or any(
            str(argument).startswith(prefix) for argument in arguments[:2]
        ):
            report(event)

    sys.addaudithook(hook)


MINE = {"Vendor/mlx-swift/a.cpp": "upstream", "Sources/Old/Mine.swift": "mine", "Notes.md": "n"}


@pytest.fixture(autouse=True)
def without_a_step(monkeypatch):
    """Keep mlx out of the parent: what it starts there does not go on in forked children."""
    monkeypatch.setattr(build, "try_model", lambda *_arguments: None)


@pytest.fixture
def few_files(monkeypatch):
    """Make packages of a few dozen files; a whole one has more of the same kinds."""
    folders = render.folders

    def few(plan):
        return [pair for pair in folders(plan) if pair[0].name in ("App", "Model")]

    monkeypatch.setattr(render, "folders", few)


@pytest.fixture
def work(model, tmp_path, few_files):
    """Return (place, earlier plan, later plan): the later one has another module."""
    place = tmp_path / "place"
    place.mkdir()
    first = plan_of(model, CacheSpec(max_kv=512), "Earlier")
    second = plan_of(model, CacheSpec(max_kv=600), "Later")
    make_package(second, tmp_path / "warm up")  # imports, so that children need none
    shutil.rmtree(tmp_path / "warm up")
    return place, first, second


def earlier(place, first):
    """Make the earlier package with things of the user's, once; return its tree."""
    copy = place.parent / "earlier"
    if not copy.exists():
        output = make_package(first, copy / "Demo").folder
        relock(output, vendor=lock.Vendored("apple", "0" * 64, (), "0" * 64))
        build_tree(output, MINE)
    shutil.rmtree(place)
    shutil.copytree(copy, place)
    return tree(place / "Demo")


def delicate(events):
    """Return numbers of changes: some of each kind, all about renames and deletions."""
    numbers = {1, 2, len(events) // 3, len(events) // 2, len(events)}
    for number, event in enumerate(events, start=1):
        if event in ("os.rename", "shutil.rmtree"):
            numbers |= {number, number + 1}
    # The earlier package is deleted last, its files in an order that the disk chooses.
    deleting = (
        len(events) - events[::-1].index("shutil.rmtree") if "shutil.rmtree" in events else 0
    )
    numbers |= {deleting + (len(events) - deleting) * part // 4 for part in (1, 2, 3)}
    return sorted(number for number in numbers if number <= len(events))


@pytest.mark.parametrize(
    "how", nightly_except((signal.SIGINT,), (signal.SIGKILL, signal.SIGINT))
)
def test_a_stopped_run_breaks_nothing_and_the_next_one_finishes(work, how):
    place, first, second = work
    before = earlier(place, first)
    output = place / "Demo"

    def run():
        make_package(second, output)

    events = changes_of(run, place)
    after = tree(output)
    assert {path: after[path] for path in MINE} == MINE
    assert {"open", "os.mkdir", "os.link", "os.rename", "os.remove"} <= set(events)
    # An interrupt is handled where a kill is not: some of the moments show that.
    for number in delicate(events)[:: 1 if how == signal.SIGKILL else 3]:
        earlier(place, first)
        code = in_child(stopping(run, place, number, how))
        assert code in (-how, 130), number
        if output.exists() and how == signal.SIGINT:
            assert names(place) == ["Demo"], number
        if output.exists():
            files = tree(output)
            originals = {path: text for path, text in files.items() if path not in MINE}
            assert originals in (
                {path: text for path, text in before.items() if path not in MINE},
                {path: text for path, text in after.items() if path not in MINE},
            ), number
        else:
            assert tree(place / ".Demo.h2o-old") == before, number
        assert in_child(run) == 0
        assert tree(output) == after, number
        assert names(place) == ["Demo"], number


def test_a_first_run_that_is_stopped_leaves_no_folder_of_that_name(work):
    place, _first, second = work
    output = place / "deep" / "Demo"

    def run():
        make_package(second, output)

    for number in delicate(changes_of(run, place)):
        shutil.rmtree(place / "deep", ignore_errors=True)
        in_child(stopping(run, place, number, signal.SIGKILL))
        assert not output.exists() or not verify(output).differences, number
        assert in_child(run) == 0
        assert not verify(output).differences
        assert names(place / "deep") == ["Demo"]


def test_a_disk_that_is_full_leaves_the_earlier_package_whole(work, capfd, model):
    place, first, _second = work
    before = earlier(place, first)
    # It is copied, and larger than a file of this process may be.
    (model.folder / "LICENSE").write_bytes(b" " * 300_000)
    larger = from_folder("tiny", model.folder)
    full = plan_of(larger, CacheSpec(max_kv=600), "Later")

    def run():
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        try:
            make_package(full, place / "Demo")
        except UserError as error:
            os.write(1, str(error).encode())
            raise SystemExit(int(error.code)) from error

    assert in_child(run) == ExitCode.OUTPUT
    says(capfd.readouterr().out)
    assert tree(place / "Demo") == before
    assert names(place) == ["Demo"]


# kill -9 at random moments of the commands; KILLS=100 SEED=7 chooses more, and others


KILLS = int(os.environ.get("KILLS", "6"))
SEED = int(os.environ.get("SEED", "20261122"))
COMMANDS = ("ios", "update", "vendor")
SOURCE = "Sources/H2OKit/H2OKVCache.swift"
OWN_FILES = (
    *("App/Chat/ChatView.swift", "App/demo.xcodeproj/project.pbxproj", "App/Mine/New.swift"),
    *("Sources/H2OKit/Mine.swift", "Vendor/mlx-swift/Source/mine.h", "Notes.md", ".git/HEAD"),
)


@pytest.fixture
def place(model, tmp_path, copied_assets, monkeypatch):
    """A folder with a package of the small model, Vendor too."""
    monkeypatch.setenv("H2O_PACK_VENDOR", "1")
    monkeypatch.setattr(build, "try_model", lambda *_arguments: None)  # seconds of mlx
    build_tree(copied_assets, {EDITS: COPIES})
    for name, files in FILES.items():
        build_tree(tmp_path / "upstream" / PLACES.get(name, name), files)
    (tmp_path / "place").mkdir()
    done(command("ios", 0, tmp_path / "place"))
    return tmp_path / "place"


def command(name, number, place):
    """Return what runs a command that changes the package, another way for each number."""
    upstream = ("--upstream", place.parent / "upstream")
    options_of_ios = ("--model", place.parent / "tiny", "--max-kv", 200 + number)
    options = {
        "ios": (*options_of_ios, "--output", place / "Demo"),
        "update": (place / "Demo",),
        "vendor": (place / "Demo", "--host", ("apple", "linux")[number % 2]),
    }
    arguments = [str(argument) for argument in (name, *options[name], *upstream, "--quiet")]

    def run():
        render.__version__ = update.__version__ = f"0.1.{number}"  # a child's own
        code = main(arguments, prog_name="h2o-pack", standalone_mode=False)
        if code:
            raise SystemExit(code)

    return run


def done(work):
    assert in_child(work) == 0


def edit(package, number):
    """Edit what is the user's, and a file that is not; return {path: text} of the former."""
    edits = {path: f"// {path} {number}" for path in OWN_FILES}
    build_tree(package, {**edits, SOURCE: f"// changed {number}"})
    return edits


@pytest.mark.nightly("test_a_stopped_run_breaks_nothing_and_the_next_one_finishes")
def test_a_kill_at_any_moment_loses_nothing_of_the_users(place):
    choice = random.Random(SEED)  # noqa: S311 - nothing is secret
    package = place / "Demo"
    events = {}
    for number, name in enumerate(COMMANDS, start=1):
        edit(package, number)
        events[name] = len(changes_of(command(name, number, place), place))
    for number in range(len(COMMANDS) + 1, len(COMMANDS) + 1 + KILLS):
        name = choice.choice(COMMANDS)
        moment = choice.randint(1, events[name])
        edits = edit(package, number)
        run = command(name, number, place)
        code = in_child(stopping(run, place, moment, signal.SIGKILL))
        assert code in (-signal.SIGKILL, 0), (name, moment)
        there = tree(package if package.exists() else place / ".Demo.h2o-old")
        for path, text in edits.items():
            if path.startswith("App/"):
                assert there.get(path) == text, (name, moment, path)
        contents = tree(place).values()
        assert {*edits.values(), f"// changed {number}"} <= set(contents), (name, moment)
        done(run)
        after = tree(package)
        assert {path: after.get(path) for path in edits} == edits, (name, moment)
        replaced = [text for path, text in after.items() if SOURCE in path]
        assert f"// changed {number}" in replaced, (name, moment)
        assert names(place) == ["Demo"], (name, moment)
        assert not [name for name in names(package) if name.endswith("h2o-new")], (name, moment)
