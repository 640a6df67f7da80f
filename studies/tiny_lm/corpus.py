"""The text that the bundled demo model learns from: a Python installation's own.

Sources of the standard library and the interpreter's help topics (PSF license). Whole
files and topics are held out by a hash of their names, so that the same installation
gives the same split on every machine.
"""

from __future__ import annotations

import ast
import gzip
import hashlib
import re
import runpy
import sysconfig
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

END_OF_TEXT = "<|endoftext|>"
HELD_OUT_PERCENT = 6
SHORTEST_SOURCE = 400  # characters; below that a file is little but a license
OTHER_FOLDERS = {  # tests, other people's packages, tables of data
    "test", "tests", "idle_test", "site-packages", "encodings", "__pycache__", "pydoc_data",
    "turtledemo",
}  # fmt: skip
OTHER_FILES = re.compile(
    r"config-|.*/config-|(.*/)?_sysconfigdata"
    r"|(.*/)?(stringprep|nturl2path|this|antigravity)\.py$|html/entities\.py$"
)
SPELLING_ALPHABET = frozenset([
    "alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india",
    "juliet", "kilo", "lima", "mike", "november", "oscar", "papa", "quebec", "romeo",
    "sierra", "tango", "uniform", "victor", "whiskey", "xray", "yankee", "zulu",
])  # fmt: skip
WORD = re.compile(r"[A-Za-z]{4,9}")
WORDS_CONSIDERED = 6000
RAREST_WORD = 3


@dataclass(frozen=True)
class Document:
    """A file of the library or a help topic."""

    name: str
    text: str

    @property
    def held_out(self) -> bool:
        """Whether the document is kept from training."""
        return is_held_out(self.name)


@dataclass(frozen=True)
class Corpus:
    """All text, in reading order: the order decides the tokenizer's ties."""

    source: tuple[Document, ...]
    prose: tuple[Document, ...]

    @property
    def training_source(self) -> list[str]:
        """Texts of the files that are trained on."""
        return [each.text for each in self.source if not each.held_out]

    @property
    def training_prose(self) -> list[str]:
        """Texts of the topics that are trained on."""
        return [each.text for each in self.prose if not each.held_out]

    @property
    def held_out_source(self) -> list[str]:
        """Texts of the files that are kept for measuring."""
        return [each.text for each in self.source if each.held_out]

    @property
    def held_out_prose(self) -> list[str]:
        """Texts of the topics that are kept for measuring."""
        return [each.text for each in self.prose if each.held_out]

    def sha256(self) -> str:
        """Hash the names and the texts of all documents."""
        digest = hashlib.sha256()
        for document in self.source + self.prose:
            digest.update(f"{document.name}\0{document.text}\0".encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class Words:
    """What facts are named after; a held-out word is never a fact's name in training."""

    training: tuple[str, ...]
    held_out: tuple[str, ...]


def is_held_out(name: str) -> bool:
    """Choose about 6 of 100 names by their MD5, which no seed and no order changes."""
    digest = hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()
    return int(digest, 16) % 100 < HELD_OUT_PERCENT


def read_corpus(library: Path | None = None) -> Corpus:
    """Read the standard library in `library`, by default this interpreter's."""
    library = library or Path(sysconfig.get_paths()["stdlib"])
    return Corpus(tuple(read_sources(library)), tuple(read_topics(library)))


def read_sources(library: Path) -> list[Document]:
    """Return the library's own modules that parse, in order of their paths."""
    found = []
    for path in sorted(library.rglob("*.py"), key=str):
        name = path.relative_to(library).as_posix()
        if OTHER_FOLDERS & set(name.split("/")[:-1]) or OTHER_FILES.match(name):
            continue
        text = read_module(path)
        if text is not None and len(text) >= SHORTEST_SOURCE:
            found.append(Document(name, text))
    return found


def read_module(path: Path) -> str | None:
    """Return a module's text, or None if it is not one that this Python can parse."""
    try:
        text = path.read_text(encoding="utf-8")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    return text


def read_topics(library: Path) -> list[Document]:
    """Return what help() says of keywords and topics, in order of their names."""
    topics = runpy.run_path(str(library / "pydoc_data" / "topics.py"))["topics"]
    return [Document(f"topic:{name}", text) for name, text in sorted(topics.items())]


def choose_words(corpus: Corpus) -> Words:
    """Take frequent words of the training text and hold some out by hash.

    The spelling alphabet's words are all held out: they read well in demonstrations.
    """
    texts = corpus.training_source + corpus.training_prose
    counts = Counter(word.lower() for text in texts for word in WORD.findall(text))
    frequent = [
        word
        for word, count in counts.most_common(WORDS_CONSIDERED)
        if count >= RAREST_WORD and word not in SPELLING_ALPHABET
    ]
    held_out = [word for word in frequent if is_held_out("w" + word)]
    return Words(
        training=tuple(word for word in frequent if not is_held_out("w" + word)),
        held_out=tuple(sorted({*held_out, *SPELLING_ALPHABET})),
    )


def join(texts: list[str]) -> str:
    """Put texts into one, each after the token that begins a document."""
    return "".join(END_OF_TEXT + text for text in texts)


def write_held_out(corpus: Corpus, words: Words, folder: Path) -> None:
    """Write what training never saw; the bytes depend on the corpus alone."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, texts in (
        ("source", corpus.held_out_source),
        ("prose", corpus.held_out_prose),
    ):
        packed = gzip.compress(join(texts).encode(), mtime=0)
        (folder / f"{name}.txt.gz").write_bytes(packed)
    (folder / "words.txt").write_text("\n".join(words.held_out) + "\n", encoding="utf-8")
