from __future__ import annotations

import pytest

from h2o_pack.vendoring import fetch as git
from tests.bridge.repositories import ALL, commit, fetched, store
from tests.bridge.trees import build_tree


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
    assert not (store(cache, "mlx-swift") / "hooks").exists()


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
        ("fatal: Could not read from remote repository.\n", git.VAGUE),
        ("", "git gave no reason"),
    ],
)
def test_the_line_that_says_why_is_found_in_gits_messages(errors, reason):
    assert git.reason_of(errors) == (reason or "Denied (publickey)")
