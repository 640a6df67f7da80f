import json
from pathlib import Path

import pytest

from h2o_pack.measure.evaluation.samples import make_sample
from studies.peers.entries import BY_TOKEN, FULL, KVPRESS, ONCE, Entry
from studies.peers.page import document, render, results_of
from studies.peers.tasks import BUDGETS, CONTEXT, TASKS, Batch, batch

RESULTS = Path(__file__).parents[2] / "docs/results"
ABOUT = {"sha256": "ab", "difference": 1e-5, "kvpress": "0.5.5", "prefill": 32}
FACT, DECOYS, TEXT = TASKS


def results(ours: float, press: float) -> dict[Entry, dict[str, list[float]]]:
    """Return made-up values of 36 samples, of which shares are recalled."""

    def values(share: float) -> dict[str, list[float]]:
        recalled = [float(number < share * 36) for number in range(36)]
        return {FACT.name: recalled, DECOYS.name: recalled, TEXT.name: [2.0] * 35 + [1.9]}

    found = {Entry(BY_TOKEN, FULL, 0): values(1)}
    for rows in BUDGETS:
        found[Entry(KVPRESS, "Poor", rows)] = values(0)
        found[Entry(KVPRESS, "Good", rows)] = values(press)
        found[Entry(BY_TOKEN, "default", rows)] = values(ours)
        found[Entry(ONCE, "default", rows)] = values(ours)
    return found


@pytest.mark.parametrize(
    ("ours", "press", "verdict"),
    [(1.0, 0.5, "better"), (0.5, 1.0, "worse"), (1.0, 1.0, "not distinguishable")],
)
def test_the_verdict_compares_ours_with_the_best_press(
    ours: float, press: float, verdict: str
) -> None:
    made = document(results(ours, press), ABOUT)
    recall = [line for line in made["verdicts"] if line.startswith("recall")]
    assert len(recall) == 4  # two tasks, two protocols
    assert all("of Good," in line and f"**{verdict}**" in line for line in recall)


def test_a_lower_nll_is_the_better_one() -> None:
    found = results(1.0, 0.5)
    for protocol in (BY_TOKEN, ONCE):
        found[Entry(protocol, "default", 256)][TEXT.name] = [1.5] * 36
    verdicts = document(found, ABOUT)["verdicts"]
    assert sum(line.startswith("nll") and "**better**" in line for line in verdicts) == 2


class Letters:
    """Stands for held-out text: ids count up, every letter is a token."""

    first: tuple[int, ...] = ()
    ids = tuple(range(5000, 9000))

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    def window(self, start: int, length: int) -> list[int]:
        return [self.ids[(start + place) % len(self.ids)] for place in range(length)]


def made(task_number: int) -> Batch:
    task = TASKS[task_number]
    samples = [make_sample(Letters(), ["ab", *WORDS], task.shape(n), 1, n) for n in range(4)]  # type: ignore[arg-type]
    return batch(task, samples)


WORDS = [a + b for a in "cdefg" for b in "hij"]


@pytest.mark.parametrize("number", [0, 1])
def test_facts_are_stated_before_any_window_of_half_the_rows(number: int) -> None:
    found = made(number)
    for context, after, answer in zip(found.context, found.after, found.answers, strict=True):
        text = "".join(chr(each) if each < 5000 else " " for each in context)
        name = "".join(map(chr, (each for each in after if each < 5000))).split()[3]
        place = text.index(f"the code of {name} is {answer}.")
        assert place + len(f"the code of {name} is {answer}.") < CONTEXT - BUDGETS[0]


def test_text_goes_on_where_its_context_ends() -> None:
    found = made(2)
    for context, after in zip(found.context, found.after, strict=True):
        assert len(context) == CONTEXT
        assert (after[0] - context[-1]) % 4000 == 1
    assert found.answers == []


def test_the_committed_page_is_what_the_committed_values_say() -> None:
    known = json.loads((RESULTS / "peers.json").read_text(encoding="utf-8"))
    found = results_of(known)
    about = {name: known[name] for name in ABOUT}
    assert document(found, about) == known
    assert (RESULTS / "peers.md").read_text(encoding="utf-8") == render(found, about)


def test_the_committed_full_caches_agree_across_frameworks() -> None:
    found = results_of(json.loads((RESULTS / "peers.json").read_text(encoding="utf-8")))
    theirs, ours = found[Entry(KVPRESS, FULL, 0)], found[Entry(BY_TOKEN, FULL, 0)]
    assert theirs[FACT.name] == ours[FACT.name]
    assert theirs[TEXT.name] == pytest.approx(ours[TEXT.name], abs=1e-3)
