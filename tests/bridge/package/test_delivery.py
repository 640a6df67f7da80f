"""Models apart from the app, the sizes of both, and what a server has in pieces."""

import hashlib
import json

import pytest

from h2o_pack.bundling import bundle as bundling
from h2o_pack.bundling import manifest
from h2o_pack.bundling.delivery import app_size, check_app_size, model_bytes
from h2o_pack.errors import ExitCode
from h2o_pack.facts import store_limits
from h2o_pack.files import lock
from h2o_pack.models.catalogue import as_model, find
from h2o_pack.spec import DeliverySpec, check_server
from tests.bridge import schemas
from tests.bridge.models.checkpoints import sparse_checkpoint
from tests.bridge.trees import names
from tests.messages import refused, says

SERVER = "https://models.example.com/chat/1"
PIECE = 1000
LARGE = ("someone/large",)


def test_a_model_that_makes_the_app_too_large_is_refused_with_the_way_out():
    most = 4_000_000_000 - app_size(0).code
    check_app_size(LARGE, most, DeliverySpec())
    refused(check_app_size, LARGE, most + 1, DeliverySpec(), code=ExitCode.USAGE)
    says(refused(check_app_size, LARGE, 4_607_731_712, DeliverySpec(), code=ExitCode.USAGE))


def test_an_asset_pack_has_a_limit_too_and_a_server_none():
    pack = DeliverySpec(asset_pack=True)
    check_app_size(LARGE, 4_607_731_712, pack)
    says(refused(check_app_size, LARGE, 200_000_000_001, pack, code=ExitCode.USAGE))
    check_app_size(LARGE, 300_000_000_000, DeliverySpec(download=SERVER))


def test_a_too_large_model_is_refused_before_anything_is_written(model, run, tmp_path):
    tensors = {"w2": ("U8", [4_100_000_000])}
    sparse_checkpoint(model.folder / "model-2.safetensors", tensors)
    options = ("--max-kv", 256, "--output", tmp_path / "Demo")
    assert run("ios", "--model", model.folder, *options).exit_code == ExitCode.USAGE
    assert names(tmp_path) == ["tiny"]


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
    assert "secret" not in refused(check_server, url, code=ExitCode.USAGE)


@pytest.fixture
def package(run, model, tmp_path, monkeypatch):
    """Make a package whose files have several pieces."""
    monkeypatch.setattr(bundling, "PIECE_SIZE", PIECE)
    output = tmp_path / "Demo"
    command = ("ios", "--model", model.folder, "--max-kv", 256, "--output", output)
    result = run(*command, "--json", "--download", f"{SERVER}/")
    assert result.exit_code == 0, result.output
    assert schemas.check(json.loads(result.stdout), "ios")["download"] == SERVER
    return output


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
    assert run("ios", "--model", model, "--max-kv", 256, "--output", package).exit_code == 0
    document = json.loads((package / "Model/manifest.json").read_text())
    assert "piece_size" not in document
    assert not [file for file in document["files"] if "pieces" in file]


def test_verify_names_pieces_that_are_missing_or_not_those_of_their_file(run, package):
    assert run("verify", package).exit_code == 0
    place = package / "Model/manifest.json"
    document = json.loads(place.read_text())
    document["files"][0]["pieces"][0] = "0" * 64
    place.write_text(json.dumps(document))
    result = run("verify", package)
    assert result.exit_code == ExitCode.DIFFERENT
    assert (
        f"Model/{document['files'][0]['path']} has a piece with a different sha256"
        in result.output
    )
    del document["piece_size"]
    place.write_text(json.dumps(document))
    assert "has no digests of pieces" in run("verify", package, "--quick").output


@pytest.fixture
def size_of(ios):
    """Package the demo model; return the size as JSON has it."""
    return lambda *options: schemas.check(json.loads(ios("--json", *options).stdout), "ios")[
        "size"
    ]


@pytest.fixture
def prompt(tmp_path):
    path = tmp_path / "system.txt"
    path.write_text("You are brief.")
    return ("--system", path)


def test_the_models_bytes_are_those_of_all_bundled_files_and_at_most_as_planned(
    size_of, tmp_path, prompt
):
    estimate, size = size_of(*prompt, "--dry-run")["models"], size_of(*prompt)["models"]
    assert estimate >= size == manifest.read(tmp_path / "Demo").size
    plain = size_of("--dry-run")["models"]
    assert size > size_of()["models"] == plain


@pytest.mark.parametrize(
    "way", [(), ("--asset-pack",), ("--download", "https://example.com/m")]
)
def test_models_that_come_apart_are_installed_and_not_downloaded_from_the_store(size_of, way):
    size = size_of("--dry-run", *way)
    assert size["code_least"] <= size["code"] <= size["code_most"]
    assert size["installed"] == size["models"] + size["code"]
    assert size["download"] == size["code" if way else "installed"]


def test_users_are_asked_before_more_than_the_store_downloads_by_cellular():
    most = store_limits()["cellular"].bytes - app_size(0).code
    assert not app_size(most).asks
    assert app_size(most + 1).asks
    assert not app_size(most + 1, apart=True).asks


def test_files_that_are_not_listed_are_estimated_by_the_vocabulary():
    model = as_model(find("Qwen3-4B-4bit"))
    more = model_bytes(model) - model.weights.bytes
    assert 11_422_654 < more < 25_000_000  # its tokenizer.json on the hub


def test_a_plan_says_what_an_app_with_the_model_weighs(run):
    result = run("plan", "--model", "Qwen3-4B-4bit", "--max-kv", 512, "--json")
    size = schemas.check(json.loads(result.stdout), "plan")["size"]
    assert size["models"] == model_bytes(as_model(find("Qwen3-4B-4bit")))
    assert size["asks"]
