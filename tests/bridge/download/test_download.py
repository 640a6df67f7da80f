"""A model is fetched from a server piece by piece, whatever happens on the way."""

import random

import pytest

from tests.bridge.download.conftest import PIECE
from tests.hub.faults import Drop, Hold, IgnoreRange, ShiftRange, Status, Truncate
from tests.nightly import nightly_except

pytestmark = pytest.mark.swift

WEIGHTS = "model.weights"
LARGE = random.Random(1).randbytes(3 * PIECE + 1000)  # noqa: S311
FILES = {"config.json": b'{"a": 1}', WEIGHTS: LARGE, "part/none.txt": b""}


@pytest.fixture
def model_downloads(downloads):
    downloads.offer(FILES)
    return downloads


def test_a_model_arrives_piece_by_piece_and_is_not_fetched_again(model_downloads):
    assert model_downloads.whole(model_downloads.run())
    assert model_downloads.asked(WEIGHTS) == [0, 1, 2, 3]
    assert model_downloads.asked("config.json") == [0]
    model_downloads.hub.requests.clear()
    assert model_downloads.whole(model_downloads.run())
    assert model_downloads.hub.requests == []


def test_a_server_may_send_elsewhere_as_a_hub_does(downloads):
    downloads.offer({"config.json": b"{}", "model.safetensors": LARGE})
    assert downloads.whole(downloads.run())
    assert [request for request in downloads.hub.requests if request.path.startswith("/cdn/")]


def test_the_size_is_confirmed_before_the_first_download_only(model_downloads):
    size = sum(map(len, FILES.values()))
    stopped = model_downloads.run(1 << 30, PIECE)
    assert (stopped.error, stopped.confirm) == ("stopped", size)
    assert model_downloads.run().confirm == 0, "a part of the model is there"
    assert model_downloads.run().confirm == 0, "the model is there"


@pytest.mark.parametrize(
    "fault", [Drop(1000), Drop(0), Status(503), Truncate(9), ShiftRange(5)]
)
def test_a_piece_that_breaks_is_asked_for_again_alone(model_downloads, fault):
    model_downloads.hub.fail(f"*/{WEIGHTS}", fault, numbers=range(1, 2))
    assert model_downloads.whole(model_downloads.run())
    assert model_downloads.asked(WEIGHTS) == [0, 1, 1, 2, 3]


@pytest.mark.parametrize(
    ("fault", "error", "pieces"),
    [
        (Status(404), f'serverStatus(404, path: "{WEIGHTS}")', [0]),
        (Status(500), f'serverStatus(500, path: "{WEIGHTS}")', [0, 0, 0]),
        (IgnoreRange(), f'serverWithoutRanges(path: "{WEIGHTS}")', [0]),
        (ShiftRange(5), f'serverContent(offset: 0, path: "{WEIGHTS}")', [0, 0, 0]),
    ],
)
def test_a_failed_download_names_the_file(model_downloads, fault, error, pieces):
    model_downloads.hub.fail(f"*/{WEIGHTS}", fault)
    outcome = model_downloads.run()
    assert outcome.error == error
    assert WEIGHTS in outcome.words
    assert model_downloads.asked(WEIGHTS) == pieces


def test_a_connection_that_always_breaks_is_an_error_of_the_network(model_downloads):
    model_downloads.hub.fail(f"*/{WEIGHTS}", Drop(1000))
    outcome = model_downloads.run()
    assert outcome.error.startswith("network(")
    assert outcome.words.startswith("The model was not downloaded. Check the connection,")
    assert model_downloads.asked(WEIGHTS) == [0, 0, 0]


def test_a_server_that_is_not_there_is_one_too(model_downloads):
    model_downloads.hub.close()
    assert model_downloads.run().error.startswith("network(")


@pytest.mark.parametrize("size", [len(LARGE) + 1, len(LARGE) - 1, 10, 2 * PIECE])
def test_a_file_of_another_size_is_another_file(downloads, size):
    content = (LARGE + b"x")[:size]
    downloads.offer({**FILES, WEIGHTS: content}, manifest_of=FILES)
    message = f'serverSize(expected: {len(LARGE)}, found: {size}, path: "{WEIGHTS}")'
    assert downloads.run().error == message


def test_a_small_file_that_is_longer_is_not_read_to_its_end(downloads):
    downloads.offer({**FILES, "config.json": bytes(1 << 20)}, manifest_of=FILES)
    assert downloads.run().error.startswith("serverSize(expected: 8,")


def test_other_bytes_are_refused_and_the_pieces_before_them_stay(downloads):
    content = LARGE[: PIECE + 9] + b"?" + LARGE[PIECE + 10 :]
    downloads.offer({**FILES, WEIGHTS: content}, manifest_of=FILES)
    outcome = downloads.run()
    assert outcome.error == f'serverContent(offset: {PIECE}, path: "{WEIGHTS}")'
    assert outcome.folder is None
    downloads.offer(FILES)
    downloads.hub.requests.clear()
    assert downloads.whole(downloads.run())
    assert downloads.asked(WEIGHTS) == [1, 2, 3]


def test_too_little_room_is_said_before_anything_is_fetched(model_downloads):
    needed = sum(map(len, FILES.values())) + PIECE  # a piece is there twice for a moment
    outcome = model_downloads.run(needed - 1)
    assert outcome.error == f"noSpace(needed: {needed}, free: {needed - 1})"
    assert model_downloads.hub.requests == []
    assert model_downloads.whole(model_downloads.run(needed))


KILLED = [(piece, after) for piece in range(4) for after in (0, 900)]


@pytest.mark.parametrize(("piece", "after"), nightly_except([(1, 900), (3, 0)], KILLED))
def test_a_killed_download_goes_on_and_fetches_one_piece_twice_at_most(
    model_downloads, piece, after
):
    model_downloads.hub.fail(f"*/{WEIGHTS}", Hold(after), numbers=range(piece, piece + 1))
    with model_downloads.start() as process:
        model_downloads.hub.holding.wait()
        process.kill()
    model_downloads.hub.go_on.set()
    assert not [path for path in model_downloads.root.iterdir() if path.suffix != ".part"]
    assert model_downloads.whole(model_downloads.run())
    assert model_downloads.asked(WEIGHTS) == [*range(piece), piece, *range(piece, 4)]
    assert model_downloads.asked("config.json") == [0]


def test_a_stopped_download_says_so_and_goes_on(model_downloads):
    model_downloads.hub.fail(f"*/{WEIGHTS}", Hold(900), numbers=range(2, 3))
    outcome = model_downloads.run(10**9, 2 * PIECE)
    model_downloads.hub.go_on.set()
    assert outcome.error == "stopped"
    model_downloads.hub.requests.clear()
    assert model_downloads.whole(model_downloads.run())
    asked = model_downloads.asked(WEIGHTS)
    assert asked[-2:] == [2, 3]
    assert {*asked} == {2, 3}  # a request of the stopped program may arrive late


def test_a_new_version_takes_what_is_the_same_and_deletes_the_old_one(model_downloads):
    assert model_downloads.whole(model_downloads.run())
    model_downloads.offer({**FILES, "config.json": b'{"a": 2}'})
    model_downloads.hub.requests.clear()
    assert model_downloads.whole(model_downloads.run())
    assert model_downloads.asked(WEIGHTS) == []
    assert model_downloads.asked("config.json") == [0]
