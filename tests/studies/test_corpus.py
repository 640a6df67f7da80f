import gzip
from pathlib import Path

import pytest

from studies.tiny_lm.corpus import (
    END_OF_TEXT,
    SPELLING_ALPHABET,
    Corpus,
    Document,
    choose_words,
    is_held_out,
    read_corpus,
    write_held_out,
)

HELD_OUT = Path(__file__).parents[2] / "bridge/h2o_pack/models/demo/held_out"
LONG = "# a comment that says nothing at all\n" * 12


@pytest.fixture
def library(tmp_path: Path) -> Path:
    files = {
        "zebra.py": LONG + "answer = 1\n",
        "animals/ant.py": LONG + "answer = 2\n",
        "short.py": "answer = 3\n",
        "broken.py": LONG + "def (:\n",
        "test/test_zebra.py": LONG,
        "animals/tests/test_ant.py": LONG,
        "config-3.11-linux/setup.py": LONG,
        "_sysconfigdata__linux.py": LONG,
        "this.py": LONG,
        "html/entities.py": LONG,
        "pydoc_data/topics.py": "topics = {'while': 'A loop.', 'assert': 'A check.'}\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def test_only_the_librarys_own_modules_are_read_in_order_of_their_paths(library: Path) -> None:
    corpus = read_corpus(library)
    assert [each.name for each in corpus.source] == ["animals/ant.py", "zebra.py"]


def test_topics_are_read_in_order_of_their_names(library: Path) -> None:
    corpus = read_corpus(library)
    assert [each.name for each in corpus.prose] == ["topic:assert", "topic:while"]


def test_the_split_goes_by_names_alone() -> None:
    assert is_held_out("copy.py")
    assert not is_held_out("os.py")
    assert Document("copy.py", "a").held_out == Document("copy.py", "b").held_out


def test_about_six_of_a_hundred_names_are_held_out() -> None:
    share = sum(is_held_out(f"module{number}.py") for number in range(10_000)) / 10_000
    assert share == pytest.approx(0.06, abs=0.01)


def test_what_is_held_out_is_not_trained_on() -> None:
    corpus = Corpus((Document("copy.py", "held"), Document("os.py", "seen")), ())
    assert corpus.held_out_source == ["held"]
    assert corpus.training_source == ["seen"]


def test_the_corpus_hash_follows_names_texts_and_order() -> None:
    one, other = Document("a.py", "x"), Document("b.py", "y")
    hashes = {
        Corpus((one, other), ()).sha256(),
        Corpus((other, one), ()).sha256(),
        Corpus((one, Document("b.py", "z")), ()).sha256(),
        Corpus((one, Document("c.py", "y")), ()).sha256(),
    }
    assert len(hashes) == 4


def test_names_of_facts_are_frequent_words_and_some_are_held_out() -> None:
    seen = Document("os.py", "value " * 3 + "string " * 3 + "lantern " * 2 + "alpha " * 9)
    unseen = Document("copy.py", "address " * 9)
    words = choose_words(Corpus((seen, unseen), ()))
    assert words.training == ("value",)
    assert set(words.held_out) == {"string", *SPELLING_ALPHABET}


def test_held_out_files_depend_on_the_corpus_alone(tmp_path: Path) -> None:
    corpus = Corpus((Document("copy.py", "held\n"), Document("os.py", "seen " * 3)), ())
    for folder in ("one", "two"):
        write_held_out(corpus, choose_words(corpus), tmp_path / folder)
    for name in ("source.txt.gz", "prose.txt.gz", "words.txt"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    packed = (tmp_path / "one" / "source.txt.gz").read_bytes()
    assert gzip.decompress(packed).decode() == END_OF_TEXT + "held\n"


def test_every_committed_word_was_never_a_name_in_training() -> None:
    words = (HELD_OUT / "words.txt").read_text(encoding="utf-8").split()
    assert len(words) > 300
    assert all(word in SPELLING_ALPHABET or is_held_out("w" + word) for word in words)


@pytest.mark.parametrize(("part", "least"), [("source", 200_000), ("prose", 30_000)])
def test_the_committed_text_is_whole_documents_enough_to_measure_on(
    part: str, least: int
) -> None:
    text = gzip.decompress((HELD_OUT / f"{part}.txt.gz").read_bytes()).decode()
    assert text.startswith(END_OF_TEXT)
    assert len(text) > least
