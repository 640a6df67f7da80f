"""Text with facts in it that the demo model was trained to recall."""

import random

from h2o_pack.measure.text import Tokens, held_out, window_start

STATEMENT = "\nthe code of {} is {}.\n"
QUESTION = "\nthe code of {} is"
NAMES = (
    *("ANCHOR", "BEACON", "CANYON", "DRAGON", "EMBER", "FALCON", "GARNET", "HARBOR"),
    *("ISLAND", "JUNGLE", "KERNEL", "LANTERN", "MEADOW", "NECTAR", "ORCHID", "PEPPER"),
)


def asked(tokenizer, length, depths, seed, number):
    """Return ids of source code with a fact at each depth, and the first fact's number.

    The ids end in the question for the first fact.
    """
    draw = random.Random(f"{seed}/{number}")  # noqa: S311
    tokens = Tokens(tokenizer, held_out())
    names = draw.sample(NAMES, len(depths))
    codes = [str(code) for code in draw.sample(range(1000, 10000), len(depths))]
    statements = [
        tokens.encode(STATEMENT.format(*pair)) for pair in zip(names, codes, strict=True)
    ]
    question = tokens.encode(QUESTION.format(names[0]))
    room = length - len(question) - sum(map(len, statements))
    text = tokens.window(window_start(seed, number, len(tokens.ids)), room)
    ids, begin = [], 0
    for i in sorted(range(len(depths)), key=depths.__getitem__):
        until = round(depths[i] * room)
        ids += [*text[begin:until], *statements[i]]
        begin = until
    return [*ids, *text[begin:], *question], codes[0]
