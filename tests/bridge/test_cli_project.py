"""h2o-pack.toml: the packages of a project."""

import json

import pytest

from h2o_pack.bundling import manifest
from h2o_pack.errors import ExitCode
from h2o_pack.files import lock
from tests.bridge import schemas
from tests.messages import says

TWO = """
[[package]]
model = "demo"
max-kv = 64
output = "First"
vendor = false

[[package]]
model = "demo"
max_kv = 128
pin = ["0:8"]
kv = "8"
output = "Second"
vendor = false
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Make a folder with the file the current one."""

    def write(text):
        (tmp_path / "h2o-pack.toml").write_text(text)
        monkeypatch.chdir(tmp_path)
        return tmp_path

    return write


def test_ios_alone_makes_every_package_of_the_file(run, project):
    folder = project(TWO)
    result = run("ios", "--quiet")
    assert result.exit_code == 0, result.output
    locks = lock.read(folder / "First"), lock.read(folder / "Second")
    [first], [second] = (record.models for record in locks)
    assert (first.config["max_size"], first.kv) == (64, "16")
    assert (second.config["max_size"], second.kv) == (128, "8")
    assert second.config["pinned"] == [[0, 8]]


def test_a_dry_run_holds_for_every_package(run, project):
    folder = project(TWO)
    result = run("ios", "--dry-run")
    assert result.output.count("nothing was written") == 2
    assert [path.name for path in folder.iterdir()] == ["h2o-pack.toml"]


@pytest.mark.parametrize("text", ["[[package]]\n", "[[package]]\ndry-run = true\n"])
def test_a_package_without_a_model_is_refused_as_the_command_without_one(run, project, text):
    project(text)
    result = run("ios")
    assert result.exit_code == ExitCode.USAGE
    says(result.stderr)


def test_json_of_several_packages_is_one_document(run, project):
    project(TWO)
    document = schemas.check(json.loads(run("ios", "--json", "--dry-run").stdout), "ios")
    assert [
        model["config"]["max_size"]
        for package in document["packages"]
        for model in package["models"]
    ] == [64, 128]


def test_a_package_may_fetch_its_model_from_a_server(run, project):
    folder = project(f"""{TWO}download = "https://models.example.com/second/"\n""")
    result = run("ios", "--json")
    assert result.exit_code == 0, result.output
    first, second = json.loads(result.stdout)["packages"]
    assert (first["download"], second["download"]) == ("", "https://models.example.com/second")
    assert manifest.read(folder / "First").piece_size is None
    assert manifest.read(folder / "Second").piece_size
    settings = folder / "Second/Sources/H2OKit/Download"
    assert settings.is_dir()


def test_json_of_packages_of_which_one_fails_is_one_document_too(run, project):
    project(TWO.replace("max_kv = 128", "max_kv = 4"))
    result = run("ios", "--json", "--dry-run")
    assert result.exit_code == ExitCode.USAGE
    assert schemas.check(json.loads(result.stdout), "error")["errors"]


def test_what_the_command_line_says_goes_before_the_file(run, project):
    folder = project(TWO)
    options = ("--model", "demo", "--max-kv", 64, "--output", folder / "../Own", "--no-vendor")
    assert run("ios", *options).exit_code == 0
    assert (folder.parent / "Own").is_dir()  # a folder of the command line needs no leave
    assert [path.name for path in folder.iterdir()] == ["h2o-pack.toml"]
    assert run("ios", "--name", "Own").exit_code == ExitCode.USAGE


@pytest.mark.parametrize(
    "text",
    [
        "[[package]]\nname = 'A'\n[[package]]\nmodle = 'demo'",
        "package = [{modle = 'demo'}]",
        "[[package]]\nmodel = 'demo'\n\nmax = 1\nrows = 2",
        "[[package]]\nmodel = 'demo'\nmax_kv = 'many'",
        "[[package]]\nmodel = {}",
        "[package]\nmodel = 'demo'",
        "model = 'demo'",
        "[[package]",
        "package = [1]",
        "package = [[1]]",
        "package = ['a']",
        "package = [[{model = 'demo'}]]",
        '[[package]]\nmodel = \'demo\'\nname = """\n[[package]]\nx"""\nnosuch = 1',
        "[[package]]\nmodel = 'demo'\noutput = \"a\\u0000b\"",
        "[[package]]\nmodel = 'demo'\nsystem = \"a\\u0000b\"",
        '[[package]]\nmodel = "a\\u0000b"',
        "[[package]]\npin = [['0:8']]",
        "[[package]]\npin = [{a = 1}]",
        "[[package]]\nmodel = 1979-05-27",
        "[[package]]\nhelp = true",
        "[[package]]\nmodel = 'demo'\noutput = 'loop/x'",
        "[[package]]\nmodel = 'demo'\nbudgets = 'loop'",
        "[[package]]\nmodel = 'demo'\nmax_kv = 1e999",
        "[[package]]\nmodel = 'demo'\nmax_kv = 99999999999999999999999999",
    ],
)
def test_a_mistake_in_the_file_is_refused_with_its_place(run, project, text):
    (project(text) / "loop").symlink_to("loop")
    result = run("ios")
    assert result.exit_code == ExitCode.USAGE
    says(result.stderr)


@pytest.mark.parametrize(
    "line",
    [
        'output = "../Out"',
        'output = "link/Out"',
        'system = "/etc/hostname"',
        'model = ".."',
        'model = "~"',
        'adapter = "../adapter"',
        'budgets = "/budgets.json"',
        'devices = "../devices.toml"',
        'losses = "/etc/hostname"',
        'output = "../Out"\ntrust_file = true',
    ],
)
def test_a_path_of_the_file_stays_in_its_folder(run, project, line):
    folder = project(f"[[package]]\nvendor = false\nmax_kv = 64\n{line}\n")
    (folder / "link").symlink_to("..")
    result = run("ios")
    assert result.exit_code == ExitCode.USAGE
    assert "is outside of this folder" in result.stderr
    assert not (folder.parent / "Out").exists()


def test_a_path_leads_out_where_the_command_line_allows_it(run, project):
    project(TWO.replace("First", "../Outside/First"))
    result = run("ios", "--trust-file", "--dry-run")
    assert result.exit_code == 0, result.output
    assert result.output.count("nothing was written") == 2


@pytest.mark.parametrize("line", ['upstream = "u"', 'cache = "c"', 'mirror = "m"'])
def test_the_file_does_not_choose_where_code_comes_from_unless_it_is_trusted(
    run, project, line
):
    folder = project(f"[[package]]\nmodel = 'demo'\nmax_kv = 64\noutput = 'Out'\n{line}\n")
    result = run("ios")
    assert result.exit_code == ExitCode.USAGE
    says(result.stderr)
    assert [path.name for path in folder.iterdir()] == ["h2o-pack.toml"]
    assert run("ios", "--trust-file", "--dry-run").exit_code == 0


@pytest.mark.parametrize("link", ["Evil", "demo"])
def test_a_package_whose_name_is_a_link_out_of_the_folder_is_not_written(
    run, project, link, tmp_path_factory
):
    name = f'name = "{link}"' if link == "Evil" else ""
    folder = project(f"[[package]]\nmodel = 'demo'\nmax_kv = 64\nvendor = false\n{name}\n")
    mine = tmp_path_factory.mktemp("mine")
    (folder / link).symlink_to(mine)
    for options in ([], ["--dry-run"]):
        result = run("ios", *options)
        assert result.exit_code == ExitCode.USAGE
        assert "is outside of this folder" in result.stderr
    assert list(mine.iterdir()) == []
    assert sorted(path.name for path in folder.iterdir()) == sorted(["h2o-pack.toml", link])
