"""Upstream's sources, fetched into a cache: what arrives, what is kept, what is refused."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from h2o_pack import facts
from h2o_pack.errors import ExitCode
from h2o_pack.files.paths import CACHE_VARIABLE, cache_folder
from h2o_pack.vendoring import fetch
from h2o_pack.vendoring.edits import EDITS
from tests.bridge.bundling.sources import until
from tests.bridge.repositories import (
    ALL,
    COPIES,
    FILES,
    commit,
    fetched,
    git,
    store,
)
from tests.bridge.trees import NO_FILES, build_tree, names, tree
from tests.messages import refused, says
from tests.nightly import nightly_except
from tests.processes import interruptible

NOBODY = "http://127.0.0.1:9"  # the port for discarding, where nobody listens


def sources(cache: Path, mirror: str, said: list[str] | None = None) -> dict[str, str]:
    """Fetch, and return the files; `said` collects what was done for each repository."""

    def say(text: str, *, done: bool = False) -> None:
        if done and said is not None:
            said.append(text.partition(": ")[2])

    with fetched(cache, mirror, say) as (folder, _commits):
        return {path: text for path, text in tree(folder).items() if not path.startswith(".")}


refusal = partial(refused, sources, code=ExitCode.NETWORK)


def unfinished(cache: Path) -> list[str]:
    return [name for name in names(cache / fetch.FOLDER) if name.startswith(fetch.UNFINISHED)]


# What arrives


def test_only_the_pinned_commit_is_fetched_without_its_history(repositories, cache, tmp_path):
    before = repositories.commits["mlx-swift-lm"]
    later = commit(repositories.folder("mlx-swift-lm"), {"Package.swift": "later\n"})
    commit(repositories.folder("mlx-swift-lm"), {"Package.swift": "latest\n"})
    repositories.pin(**{"mlx-swift-lm": later})
    assert sources(cache, repositories.url)["mlx-swift-lm/Package.swift"] == "later\n"
    kept = unpacked(cache, "mlx-swift-lm", tmp_path / "kept")
    kinds = git(
        kept, "cat-file", "--batch-all-objects", "--batch-check=%(objecttype) %(objectname)"
    )
    assert [line for line in kinds.splitlines() if "commit" in line] == [f"commit {later}"]
    assert later != before


def test_a_mirror_may_be_a_folder_an_address_of_files_or_a_server(
    repositories, server, tmp_path
):
    for number, mirror in enumerate((str(repositories.mirror), repositories.url, server.url)):
        assert sources(tmp_path / str(number), mirror) == ALL
        assert sources(tmp_path / f"{number}-slash", mirror + "/") == ALL


def test_a_mirror_takes_the_place_of_github():
    pin = replace(facts.pins()["mlx"], source="https://github.com/owner/x")
    assert fetch.address(pin, "") == "https://github.com/owner/x"
    assert fetch.address(pin, "ssh://git@corp/mirrors/") == "ssh://git@corp/mirrors/owner/x"


def test_the_checked_out_files_are_gone_afterwards_and_the_cache_stays(repositories, cache):
    with fetched(cache, repositories.url) as (folder, _commits):
        assert folder.is_dir()
    assert not folder.exists()
    assert len(names(cache / fetch.FOLDER)) == len(FILES) + 1  # and the lock


# The cache


PACK_HEAD = 12  # bytes
DIGEST = 20


def unpacked(cache, name, folder):
    """Return a new repository with the objects of a stored pack."""
    git(folder.parent, "init", "--quiet", "--bare", str(folder))
    with store(cache, name).open("rb") as pack:
        command = ["git", "-C", str(folder), "index-pack", "--stdin"]
        subprocess.run(command, stdin=pack, check=True, capture_output=True)
    return folder


def pack_of(folder, *objects):
    """Return a pack of objects of a repository."""
    process = subprocess.run(
        ["git", "-C", str(folder), "pack-objects", "--stdout", "--quiet"],
        input="\n".join(objects).encode(),
        check=True,
        capture_output=True,
    )
    return process.stdout


def of_another_commit(folder, pinned):
    return pack_of(folder, commit(folder, {"Package.swift": "evil\n"}), f"{pinned}^{{tree}}")


def without_a_file(folder, pinned):
    return pack_of(folder, pinned, f"{pinned}^{{tree}}")


def with_a_changed_byte(folder, pinned):
    whole = pack_of(folder, pinned, f"{pinned}^{{tree}}", f"{pinned}:Package.swift")
    changed = bytearray(whole[:-DIGEST])
    changed[PACK_HEAD + 9] ^= 1
    return bytes(changed) + hashlib.sha1(changed, usedforsecurity=False).digest()


def with_another_files_content(folder, pinned):
    other = pack_of(folder, git(folder, "hash-object", "-w", str(folder / "evil")))
    parts = pack_of(folder, pinned, f"{pinned}^{{tree}}")[PACK_HEAD:-DIGEST]
    head = b"PACK" + (2).to_bytes(4, "big") + (3).to_bytes(4, "big")
    content = head + parts + other[PACK_HEAD:-DIGEST]
    return content + hashlib.sha1(content, usedforsecurity=False).digest()


FORGERIES = (
    of_another_commit,
    without_a_file,
    with_a_changed_byte,
    with_another_files_content,
    lambda _folder, _pinned: b"",
    lambda _folder, _pinned: b"no pack",
)


@pytest.mark.parametrize("forged", nightly_except(FORGERIES[::3], FORGERIES))
def test_a_stored_pack_that_is_not_the_pinned_commit_is_fetched_again(
    repositories, cache, tmp_path, forged
):
    sources(cache, repositories.url)
    folder = repositories.folder("mlx-swift-lm")
    (folder / "evil").write_text("evil\n")
    place = store(cache, "mlx-swift-lm")
    genuine = place.read_bytes()
    place.write_bytes(forged(folder, repositories.commits["mlx-swift-lm"]))
    lines: list[str] = []
    assert sources(cache, repositories.url, lines) == ALL
    assert lines == ["already downloaded", "already downloaded", "fetched"]
    assert place.read_bytes() == genuine
    assert sources(cache, NOBODY) == ALL


def test_a_repository_in_the_cache_runs_nothing_and_gives_nothing(
    repositories, cache, tmp_path
):
    """A cache that somebody else filled: repositories with settings, attributes and hooks."""
    folder = cache / fetch.FOLDER
    for name, pinned in repositories.commits.items():
        for suffix in ("git", "pack"):
            place = folder / f"{name}-{pinned}.{suffix}"
            folder.mkdir(parents=True, exist_ok=True)
            git(
                tmp_path,
                "clone",
                "--quiet",
                "--bare",
                repositories.folder(name).as_uri(),
                place,
            )
            git(place, "update-ref", "refs/heads/pinned", pinned)
            git(place, "config", "filter.evil.smudge", f"touch {tmp_path}/ran; cat")
            git(place, "config", "core.fsmonitor", f"touch {tmp_path}/ran; false")
            git(place, "config", "uploadpack.packObjectsHook", f"touch {tmp_path}/ran; false")
            build_tree(place, {"info/attributes": "* filter=evil\n", "info/grafts": "x\n"})
            for hook in ("post-checkout", "reference-transaction", "pre-auto-gc"):
                build_tree(place, {f"hooks/{hook}": f"#!/bin/sh\ntouch {tmp_path}/ran\n"})
                (place / "hooks" / hook).chmod(0o755)
    assert "Is a directory" in refusal(cache, repositories.url, code=ExitCode.OUTPUT)
    assert not (tmp_path / "ran").exists()
    for place in folder.glob("*.pack"):
        shutil.rmtree(place)
    assert sources(cache, repositories.url) == ALL
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_only_a_file_is_taken_as_a_stored_pack(repositories, cache, kind):
    sources(cache, repositories.url)
    place = store(cache, "mlx-swift-lm")
    place.unlink()
    NO_FILES[kind](place)
    message = refusal(cache, NOBODY, code=ExitCode.OUTPUT)
    assert message.endswith(f"({place}). Give another folder with --cache.")


def test_only_the_user_can_open_the_cache(repositories, cache):
    folder = cache / fetch.FOLDER
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    sources(cache, repositories.url)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_store_that_somebody_else_owns_is_not_used(repositories, server, cache, monkeypatch):
    sources(cache, server.url)
    monkeypatch.setattr(os, "geteuid", lambda: 4321)
    says(refusal(cache, server.url, code=ExitCode.OUTPUT))


def test_only_protocols_that_start_no_program_are_used(repositories, cache, tmp_path):
    message = refusal(cache, f"ext::sh -c 'touch {tmp_path}/ran' ")
    assert "transport 'ext' not allowed" in message
    assert not (tmp_path / "ran").exists()
    assert "transport 'git' not allowed" in refusal(cache, "git://127.0.0.1:9")


def test_a_second_run_needs_no_network(repositories, server, cache):
    sources(cache, server.url)
    count = len(server.requests)
    lines: list[str] = []
    assert sources(cache, server.url, lines) == ALL
    assert len(server.requests) == count
    assert sources(cache, NOBODY) == ALL
    assert lines == ["already downloaded"] * 3


def test_a_malformed_object_is_refused(repositories, cache):
    folder = repositories.folder("mlx-swift-lm")
    blob = git(folder, "rev-parse", "HEAD:Package.swift")
    raw = cache.parent / "raw"
    raw.write_bytes(b"100644 .git\0" + bytes.fromhex(blob))
    literally = ("hash-object", "-t", "tree", "--literally", "-w", str(raw))
    malformed = git(folder, "commit-tree", git(folder, *literally), "-m", "x")
    git(folder, "update-ref", "HEAD", malformed)
    repositories.pin(**{"mlx-swift-lm": malformed})
    assert "hasDotgit" in refusal(cache, repositories.url)
    assert not store(cache, "mlx-swift-lm").exists()


def test_two_runs_at_once_share_one_fetch(server, cache):
    server.held = {"mlx-swift"}
    waits = threading.Event()
    contents = []

    def wait(text: str, *, done: bool = False) -> None:
        if text.startswith("waiting for another h2o-pack"):
            waits.set()

    def second() -> None:
        with fetched(cache, server.url, wait) as (folder, _commits):
            contents.append((folder / "mlx-swift-lm/Package.swift").read_text())

    runs = [threading.Thread(target=sources, args=(cache, server.url))]
    runs[0].start()
    assert server.asked.wait(60)
    runs.append(threading.Thread(target=second))
    runs[1].start()
    assert waits.wait(60)
    server.release.set()
    for run in runs:
        run.join(60)
    assert contents == [ALL["mlx-swift-lm/Package.swift"]]
    assert sorted(server.fetched()) == sorted(FILES)


# Interrupted


CODE = """
import sys
from pathlib import Path
from h2o_pack import assets, facts
from h2o_pack.cli import main
facts.FOLDER = Path(sys.argv.pop(1))
small = Path(sys.argv.pop(1))
assets.root = lambda: small
main()
"""


def running(word: str) -> list[str]:
    """Return the command lines of processes with a word in them."""
    commands = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it ended
            commands.append(place.read_bytes().decode(errors="replace"))
    return [line for line in commands if word in line]


SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


@pytest.mark.parametrize("how", nightly_except(SIGNALS[::2], SIGNALS))
def test_a_killed_run_leaves_the_package_alone_and_the_next_one_goes_on(
    tiny_package, repositories, server, cache, tmp_path, how
):
    before = tree(tiny_package)
    small = build_tree(tmp_path / "small", {EDITS: COPIES})
    server.held = {"mlx"}
    options = ("--mirror", server.url, "--cache", cache)
    command = [sys.executable, "-c", CODE, repositories.facts, small, "vendor", tiny_package]
    with interruptible():
        process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True)
    with process:
        assert server.asked.wait(60)
        process.send_signal(how)
        _, output = process.communicate(timeout=60)
    killed = how == signal.SIGKILL
    assert process.returncode == (-how if killed else ExitCode.INTERRUPTED)
    assert "Traceback" not in output
    if not killed:
        until(lambda: not running(str(cache)))
    assert tree(tiny_package) == before
    assert names(tmp_path).count(".Demo.h2o-new") == 0

    server.release.set()
    until(lambda: not running(str(cache)))  # git goes on after a kill, and has its folder open
    lines: list[str] = []
    assert sources(cache, server.url, lines) == ALL
    assert lines == ["already downloaded", "fetched", "fetched"]
    assert unfinished(cache) == []


def test_a_server_that_does_not_answer_is_given_up(server, cache, monkeypatch):
    monkeypatch.setattr(fetch, "FETCH_LIMIT", 0.5)
    server.held = {"mlx-swift"}
    assert "cannot be downloaded: git did not end within 0.5 seconds" in refusal(
        cache, server.url
    )
    assert names(cache / fetch.FOLDER) == [fetch.LOCK]


# Refused


def test_a_mirror_without_the_submodule_is_named(repositories, cache):
    shutil.rmtree(repositories.folder("mlx"))
    message = refusal(cache, repositories.url)
    assert message.startswith(f"mlx 1.0, commit {repositories.commits['mlx'][:12]}, cannot be")
    assert f"({repositories.url}/owner/mlx)" in message
    assert unfinished(cache) == []


def test_a_mirror_without_the_commit_is_asked_to_be_brought_up_to_date(repositories, cache):
    repositories.pin(mlx="1" * 40)
    message = refusal(cache, repositories.url)
    assert "mlx 1.0, commit 111111111111, cannot be downloaded: " in message
    assert "not our ref" in message
    assert ". Update the mirror, or give another mirror of" in message


def test_a_password_of_a_mirror_is_not_shown(repositories, cache):
    message = refusal(cache, "http://user:secret@127.0.0.1:9")
    assert "(http://127.0.0.1:9/owner/mlx-swift)" in message
    assert "secret" not in message


def test_facts_that_do_not_fit_the_parents_tree_are_an_error_of_ours(repositories, cache):
    new = commit(repositories.folder("mlx"), {"array.h": "other\n"})
    repositories.pin(mlx=new)
    with pytest.raises(ValueError, match=r"mlx-swift has submodules .* not "):
        sources(cache, repositories.url)


def test_without_git_the_message_says_how_to_get_it(repositories, cache, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    says(refusal(cache, repositories.url, code=ExitCode.TOOL))


def test_a_cache_that_cannot_be_made_is_named(repositories, tmp_path):
    (tmp_path / "file").write_text("in the way")
    says(refusal(tmp_path / "file", repositories.url, code=ExitCode.OUTPUT))


# The user's settings


def test_the_users_settings_of_git_change_nothing_of_what_arrives(
    repositories, cache, tmp_path, monkeypatch
):
    hook = tmp_path / "hooks/reference-transaction"
    build_tree(
        tmp_path,
        {
            "home/.gitconfig": f"""
                [core]
                    autocrlf = true
                    hooksPath = {tmp_path}/hooks
                    attributesFile = {tmp_path}/attributes
                [filter "shout"]
                    smudge = tr a-z A-Z
                [init]
                    templateDir = {tmp_path}/template
                """,
            "home/.config/git/attributes": "* eol=crlf\n",
            "attributes": "* filter=shout\n",
            "hooks/reference-transaction": f"#!/bin/sh\ntouch {tmp_path}/ran\n",
            "template/hooks/x": "",
        },
    )
    hook.chmod(0o755)
    filtered = commit(
        repositories.folder("mlx-swift-lm"), {".gitattributes": "* filter=shout\n"}
    )
    repositories.pin(**{"mlx-swift-lm": filtered})
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home/.config"))
    for name in ("GIT_DIR", "GIT_OBJECT_DIRECTORY"):
        monkeypatch.setenv(name, str(tmp_path / "another"))
    monkeypatch.delenv("GIT_CONFIG_GLOBAL", raising=False)
    with fetched(cache, repositories.url) as (folder, _commits):
        for path, text in ALL.items():
            assert (folder / path).read_bytes() == text.encode()
    assert not (tmp_path / "another").exists()
    assert not (tmp_path / "ran").exists()


def test_the_users_settings_may_choose_the_way(repositories, cache, tmp_path, monkeypatch):
    settings = f'[url "{repositories.url}/"]\n insteadOf = https://mirror.example/\n'
    monkeypatch.setenv("HOME", str(build_tree(tmp_path / "home", {".gitconfig": settings})))
    monkeypatch.delenv("GIT_CONFIG_GLOBAL", raising=False)
    with fetched(cache, "https://mirror.example") as (folder, _commits):
        assert (folder / "mlx-swift-lm/Package.swift").is_file()


@pytest.mark.parametrize(
    ("errors", "reason"),
    [
        ("fatal: no\n", "no"),
        ("remote: x\nerror: 403.\nfatal: Could not read from remote repository.\n", "403"),
        ("Denied (publickey).\nfatal: Could not read from remote repository.\n", None),
        ("fatal: Could not read from remote repository.\n", fetch.VAGUE),
        ("", "git printed no reason"),
    ],
)
def test_the_line_that_says_why_is_found_in_gits_messages(errors, reason):
    assert fetch.reason_of(errors) == (reason or "Denied (publickey)")


# Where the cache is


def test_the_cache_is_where_the_variable_says(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    assert cache_folder() == tmp_path / "h2o-pack"
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"
