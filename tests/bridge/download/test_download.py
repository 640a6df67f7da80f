"""A model is fetched from a server piece by piece, whatever happens on the way."""

import random

import pytest

from tests.bridge.download.conftest import PIECE
from tests.hub.faults import Drop, Hold, IgnoreRange, ShiftRange, Status, Truncate

pytestmark = pytest.mark.swift

WEIGHTS = "model.weights"
LARGE = random.Random(1).randbytes(3 * PIECE + 1000)  # noqa: S311
FILES = {"config.json": b'{"a": 1}', WEIGHTS: LARGE, "part/none.txt": b""}


@pytest.fixture
def offered(downloads):
    downloads.offer(FILES)
    return downloads


def test_a_model_arrives_piece_by_piece_and_is_not_fetched_again(offered):
    assert offered.whole(offered.run())
    assert offered.asked(WEIGHTS) == [0, 1, 2, 3]
    assert offered.asked("config.json") == [0]
    offered.hub.requests.clear()
    assert offered.whole(offered.run())
    assert offered.hub.requests == []


def test_a_server_may_send_elsewhere_as_a_hub_does(downloads):
    downloads.offer({"config.json": b"{}", "model.safetensors": LARGE})
    assert downloads.whole(downloads.run())
    assert [request for request in downloads.hub.requests if request.path.startswith("/cdn/")]


@pytest.mark.parametrize(
    "fault", [Drop(1000), Drop(0), Status(503), Truncate(9), ShiftRange(5)]
)
def test_a_piece_that_breaks_is_asked_for_again_alone(offered, fault):
    offered.hub.fail(f"*/{WEIGHTS}", fault, numbers=range(1, 2))
    assert offered.whole(offered.run())
    assert offered.asked(WEIGHTS) == [0, 1, 1, 2, 3]


@pytest.mark.parametrize(
    ("fault", "error", "asked"),
    [
        (Status(404), f'serverStatus(404, path: "{WEIGHTS}")', [0]),
        (Status(500), f'serverStatus(500, path: "{WEIGHTS}")', [0, 0, 0]),
        (IgnoreRange(), f'serverWithoutRanges(path: "{WEIGHTS}")', [0]),
        (ShiftRange(5), f'serverContent(offset: 0, path: "{WEIGHTS}")', [0, 0, 0]),
    ],
)
def test_what_does_not_pass_ends_it_with_an_error_that_names_the_file(
    offered, fault, error, asked
):
    offered.hub.fail(f"*/{WEIGHTS}", fault)
    ended = offered.run()
    assert ended.error == error
    assert WEIGHTS in ended.words
    assert offered.asked(WEIGHTS) == asked


def test_a_connection_that_always_breaks_is_an_error_of_the_network(offered):
    offered.hub.fail(f"*/{WEIGHTS}", Drop(1000))
    ended = offered.run()
    assert ended.error.startswith("network(")
    assert ended.words.startswith("The model was not downloaded. Check the connection,")
    assert offered.asked(WEIGHTS) == [0, 0, 0]


def test_a_server_that_is_not_there_is_one_too(offered):
    offered.hub.close()
    assert offered.run().error.startswith("network(")


@pytest.mark.parametrize("size", [len(LARGE) + 1, len(LARGE) - 1, 10, 2 * PIECE])
def test_a_file_of_another_size_is_another_file(downloads, size):
    other = (LARGE + b"x")[:size]
    downloads.offer({**FILES, WEIGHTS: other}, manifest_of=FILES)
    wanted = f'serverSize(expected: {len(LARGE)}, found: {size}, path: "{WEIGHTS}")'
    assert downloads.run().error == wanted


def test_a_small_file_that_is_longer_is_not_read_to_its_end(downloads):
    downloads.offer({**FILES, "config.json": bytes(1 << 20)}, manifest_of=FILES)
    assert downloads.run().error.startswith("serverSize(expected: 8,")


def test_other_bytes_are_refused_and_the_pieces_before_them_stay(downloads):
    other = LARGE[: PIECE + 9] + b"?" + LARGE[PIECE + 10 :]
    downloads.offer({**FILES, WEIGHTS: other}, manifest_of=FILES)
    ended = downloads.run()
    assert ended.error == f'serverContent(offset: {PIECE}, path: "{WEIGHTS}")'
    assert ended.folder is None
    downloads.offer(FILES)
    downloads.hub.requests.clear()
    assert downloads.whole(downloads.run())
    assert downloads.asked(WEIGHTS) == [1, 2, 3]


def test_too_little_room_is_said_before_anything_is_fetched(offered):
    needed = sum(map(len, FILES.values())) + PIECE  # a piece is there twice for a moment
    ended = offered.run(needed - 1)
    assert ended.error == f"noSpace(needed: {needed}, free: {needed - 1})"
    assert offered.hub.requests == []
    assert offered.whole(offered.run(needed))


@pytest.mark.parametrize("piece", range(4))
@pytest.mark.parametrize("after", [0, 900])
def test_a_killed_download_goes_on_and_fetches_one_piece_twice_at_most(offered, piece, after):
    offered.hub.fail(f"*/{WEIGHTS}", Hold(after), numbers=range(piece, piece + 1))
    with offered.start() as process:
        offered.hub.holding.wait()
        process.kill()
    offered.hub.go_on.set()
    assert not [path for path in offered.root.iterdir() if path.suffix != ".part"]
    assert offered.whole(offered.run())
    assert offered.asked(WEIGHTS) == [*range(piece), piece, *range(piece, 4)]
    assert offered.asked("config.json") == [0]


def test_a_stopped_download_says_so_and_goes_on(offered):
    offered.hub.fail(f"*/{WEIGHTS}", Hold(900), numbers=range(2, 3))
    ended = offered.run(10**9, 2 * PIECE)
    offered.hub.go_on.set()
    assert ended.error == "stopped"
    offered.hub.requests.clear()
    assert offered.whole(offered.run())
    assert offered.asked(WEIGHTS) == [2, 3]


def test_a_new_version_takes_what_is_the_same_and_deletes_the_old_one(offered):
    assert offered.whole(offered.run())
    offered.offer({**FILES, "config.json": b'{"a": 2}'})
    offered.hub.requests.clear()
    assert offered.whole(offered.run())
    assert offered.asked(WEIGHTS) == []
    assert offered.asked("config.json") == [0]
