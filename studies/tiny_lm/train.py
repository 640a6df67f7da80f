"""From the corpus to a model's folder and the record of its training."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from studies.tiny_lm.corpus import choose_words, read_corpus, write_held_out
from studies.tiny_lm.files import program_sha256, write_json, write_model
from studies.tiny_lm.recipe import Architecture, Recipe
from studies.tiny_lm.samples import SampleMaker
from studies.tiny_lm.training import Trainer, use_threads
from studies.tiny_lm.vocabulary import encode, train_tokenizer

RECORD = "training.json"


def train(
    model_folder: Path,
    record_folder: Path,
    recipe: Recipe,
    threads: int,
    say: Callable[[str], None],
) -> None:
    """Train one model; `record_folder` gets the curve with all that a rerun needs."""
    random = use_threads(threads, recipe.seed)
    corpus = read_corpus()
    words = choose_words(corpus)
    tokenizer = train_tokenizer(corpus)
    source = np.array(encode(tokenizer, corpus.training_source), np.int32)
    prose = np.array(encode(tokenizer, corpus.training_prose), np.int32)
    say(f"{len(source):,} tokens of source, {len(prose):,} of prose; {recipe}")
    program = program_sha256()
    maker = SampleMaker(recipe, tokenizer, words.training, source, prose, random)
    shape = Architecture()
    trainer = Trainer(shape, recipe, maker)
    curve = trainer.run(say)
    weights = trainer.model.state_dict()
    write_model(model_folder, weights, shape, tokenizer)
    write_held_out(corpus, words, model_folder / "held_out")
    write_json(
        record_folder / RECORD,
        {
            "format": 1,
            "recipe": asdict(recipe),
            "architecture": asdict(shape),
            "parameters": sum(weight.numel() for weight in weights.values()),
            "tokens": recipe.tokens,
            "steps": recipe.steps,
            "threads": threads,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "corpus_sha256": corpus.sha256(),
            "program_sha256": program,
            "corpus": {
                "source_files": len(corpus.source),
                "topics": len(corpus.prose),
                "held_out_files": len(corpus.held_out_source),
                "held_out_topics": len(corpus.held_out_prose),
                "source_tokens": len(source),
                "prose_tokens": len(prose),
                "names": len(words.training),
                "held_out_names": len(words.held_out),
            },
            "curve": curve.document(),
        },
    )
