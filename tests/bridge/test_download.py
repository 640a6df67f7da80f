"""Packages whose app fetches the model: what is in them, and what they are made of."""

from __future__ import annotations

import hashlib
import json

import pytest

from h2o_pack import assets
from h2o_pack.bundling import bundle as bundling
from h2o_pack.bundling import manifest
from h2o_pack.bundling.delivery import check_app_size
from h2o_pack.coexistence.app import read_openstep
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.files import lock
from h2o_pack.package.build import TEMPLATES
from h2o_pack.package.render import render
from h2o_pack.spec import CacheSpec, DeliverySpec, check_server
from tests.bridge import schemas
from tests.bridge.plans import plan_of
from tests.bridge.test_app import PROJECT, catalog_and_texts, of_kind, references
from tests.bridge.trees import tree

SERVER = "https://models.example.com/chat/1"
PIECE = 1000


@pytest.fixture
def files(model):
    plan = plan_of(model, CacheSpec(max_kv=512), delivery=DeliverySpec(download=SERVER))
    return render(plan, assets.root(), TEMPLATES)


@pytest.fixture
def package(run, model, tmp_path, monkeypatch):
    """Make a package whose files have several pieces."""
    monkeypatch.setattr(bundling, "PIECE_SIZE", PIECE)
    output = tmp_path / "Demo"
    command = ("ios", "--model", model.folder, "--max-kv", 256, "--output", output)
    result = run(*command, "--no-vendor", "--json", "--download", f"{SERVER}/")
    assert result.exit_code == 0, result.output
    assert schemas.check(json.loads(result.stdout), "ios")["download"] == SERVER
    return output


@pytest.mark.parametrize(
    "url", [SERVER, "https://a.example:8443/x%20y", "http://127.0.0.1:8000/a", "http://[::1]/a"]
)
def test_an_address_of_a_folder_is_taken(url):
    assert check_server(url) == check_server(f"{url}/") == url


@pytest.mark.parametrize(
    "url",
    [
        *("http://models.example.com", "ftp://a.example/b", "models.example.com/chat", ""),
        *("https://", "https:///chat", "https://a.example:port/", "https://[::1/"),
        *("https://me@a.example/b", "https://me:secret@a.example/b", "https://a.example/b?c"),
        *("https://a.example/b#c", "https://a.example/b c", "https://a.example/\u00e9"),
        *("https://a.example/\n", 'https://a.example/"', "https://a.example/\\(b)"),
    ],
)
def test_anything_else_is_refused_and_no_password_is_repeated(url):
    with pytest.raises(UserError) as refused:
        check_server(url)
    assert refused.value.code == ExitCode.USAGE
    assert "secret" not in str(refused.value)


def test_a_model_of_any_size_may_be_fetched():
    check_app_size(("someone/large",), 300_000_000_000, DeliverySpec(download=SERVER))


def test_the_manifest_has_the_digests_of_all_pieces(package):
    bundled = manifest.read(package)
    assert bundled.piece_size == PIECE
    for file in bundled.files:
        data = (package / "Model" / file.path).read_bytes()
        parts = [data[begin : begin + PIECE] for begin in range(0, len(data), PIECE)]
        assert file.pieces == tuple(hashlib.sha256(part).hexdigest() for part in parts)
    assert max(len(file.pieces) for file in bundled.files) > 1


def test_a_package_with_its_model_in_it_has_none(run, package):
    model = lock.read(package).spec["models"][0]["model"]
    options = ("--model", model, "--max-kv", 256, "--output", package, "--no-vendor")
    assert run("ios", *options).exit_code == 0
    written = json.loads((package / "Model/manifest.json").read_text())
    assert "piece_size" not in written
    assert not [file for file in written["files"] if "pieces" in file]


def test_an_update_repeats_the_address_and_changes_nothing(run, package):
    before = tree(package)
    assert run("update", package).stdout == "nothing to change\n"
    assert tree(package) == before
    (package / "Package.swift").unlink()
    assert run("update", package).exit_code == 0
    assert tree(package) == before


def test_verify_names_pieces_that_are_not_those_of_their_file(run, package):
    assert run("verify", package).exit_code == 0
    place = package / "Model/manifest.json"
    written = json.loads(place.read_text())
    written["files"][0]["pieces"][0] = "0" * 64
    place.write_text(json.dumps(written))
    told = run("verify", package)
    assert told.exit_code == ExitCode.DIFFERENT
    assert f"Model/{written['files'][0]['path']} has pieces of another sha256" in told.output


def test_verify_misses_pieces_where_the_app_needs_them(run, package):
    place = package / "Model/manifest.json"
    written = json.loads(place.read_text())
    del written["piece_size"]
    place.write_text(json.dumps(written))
    assert "has no digests of pieces" in run("verify", package, "--quick").output


def test_the_app_has_the_manifest_and_nothing_else_of_the_model(files):
    project = read_openstep(files[PROJECT])
    objects = project["objects"]
    assert references(list(objects.values())) | {project["rootObject"]} == set(objects)
    [phase] = of_kind(objects, "PBXResourcesBuildPhase")
    paths = [objects[objects[each]["fileRef"]]["path"] for each in phase["files"]]
    assert "../Model/manifest.json" in paths
    assert "../Model" not in paths
    products = of_kind(objects, "XCSwiftPackageProductDependency")
    assert "H2OKit" in {each["productName"] for each in products}


def test_its_code_knows_the_address_and_the_background_session(files):
    [loading] = [
        text for name, text in files.items() if name.endswith("/BundledModel+Loading.swift")
    ]
    assert f'URL(string: "{SERVER}")' in loading
    assert ".backgroundTask(.urlSession(" in files["App/Chat/ChatApp.swift"]


def test_every_text_of_the_download_is_in_the_string_catalog(files):
    catalog, shown = catalog_and_texts(files)
    assert catalog == shown
    assert "Downloading the model" in shown
