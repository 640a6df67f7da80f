from __future__ import annotations

import json
from functools import partial

import pytest

from h2o_pack.errors import ExitCode
from h2o_pack.files import lock
from tests.bridge.refusals import refused
from tests.messages import says

WITHOUT_VENDOR = lock.Lock(
    h2o_pack="0.1.0",
    package="demo",
    module="Demo",
    spec={},
    models=(lock.LockedModel(model="demo", config={"max_size": 64}),),
    upstream={},
    files={"a": "0" * 64},
)


@pytest.mark.parametrize(
    "vendor",
    [None, lock.Vendored("linux", "1" * 64, (lock.EditedFile("x/y", "2" * 64, "3" * 64),))],
)
def test_a_lock_reads_back_as_it_was_written(tmp_path, vendor):
    written = lock.Lock(**{**vars(WITHOUT_VENDOR), "vendor": vendor})
    (tmp_path / lock.NAME).write_text(written.to_json())
    assert lock.read(tmp_path) == written


refusal = partial(refused, lock.read, code=ExitCode.OUTPUT)


def test_a_folder_without_a_lock_is_not_ours(tmp_path):
    says(refusal(tmp_path))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"format": 2}',
        '{"format": 2, "vendor": null, "surprise": 1}',
        '{"format": 2, "vendor": {"host": "linux"}}',
    ],
)
def test_a_damaged_lock_is_named(tmp_path, text):
    (tmp_path / lock.NAME).write_text(text)
    says(refusal(tmp_path))


def test_a_lock_of_another_format_is_named(tmp_path):
    document = json.loads(WITHOUT_VENDOR.to_json())
    (tmp_path / lock.NAME).write_text(json.dumps({**document, "format": 3}))
    says(refusal(tmp_path))


def test_a_lock_of_an_earlier_format_says_how_to_make_the_package_again(tmp_path):
    (tmp_path / lock.NAME).write_text('{"format": 1, "model": "demo"}')
    says(refused(lock.read, tmp_path, code=ExitCode.VERSION))


@pytest.mark.parametrize("command", ["update", "verify", "vendor"])
def test_a_command_on_a_package_of_an_earlier_format_says_so_in_one_line(
    run, tmp_path, command
):
    (tmp_path / lock.NAME).write_text('{"format": 1, "model": "demo"}')
    made = run(command, tmp_path)
    assert made.exit_code == ExitCode.VERSION
    [line] = made.stderr.splitlines()
    assert line.startswith("error: an earlier h2o-pack made the package")
    assert line.endswith("make the package again with `h2o-pack ios`.")
