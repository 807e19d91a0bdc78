"""Answers that were labelled right or wrong without sight of the rules.

`pairs/held_out.jsonl` was not looked at while the rules were made, the others were;
`sentences.jsonl` is of answers that end with a sentence, labelled with the rules in sight. The aims
are at most 1 % of the wrong answers accepted, and at most 10 % of the right ones of `held_out`
refused.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from assay.data.episode import Completion
from assay.labs.math.rewards import answer_of, gold_answer
from tests.docs.pages import DOCS
from tests.json_lines import json_lines
from tests.labs.math.many import in_one_call, judged, row

PAIRS = Path(__file__).parent / "pairs"
ACCEPTED, REFUSED = 0.01, 0.1
SLOW = [
    pytest.param(half, marks=pytest.mark.slow)
    for half in ("development", "development_2", "development_3")
]


def rates(pairs: Sequence[dict[str, Any]], accepted: Sequence[bool]) -> tuple[float, float]:
    """Shares of the wrong answers that are accepted and of the right ones that are refused."""
    wrong = [found for pair, found in zip(pairs, accepted, strict=True) if not pair["right"]]
    right = [found for pair, found in zip(pairs, accepted, strict=True) if pair["right"]]
    return sum(wrong) / len(wrong), 1 - sum(right) / len(right)


@pytest.mark.slow
@pytest.mark.parametrize("half", ["development", "development_2", "development_3", "held_out"])
def test_math_verify_alone_has_the_rates_of_the_page(half: str) -> None:
    pairs = json_lines(PAIRS / f"{half}.jsonl")
    asked = [(gold_answer(row(p["gold"])), Completion(p["answer"])) for p in pairs]
    calls = [{"gold": gold, "answer": answer_of(text) or text.text} for gold, text in asked]
    found = [bool(value and value["equal"]) for value in in_one_call("alone", calls)]
    accepted, refused = (f"{100 * rate:.1f} %" for rate in rates(pairs, found))
    lines = (DOCS / "math.md").read_text().splitlines()
    (line,) = [each for each in lines if each.startswith(f"| `{half}`")]
    assert line.endswith(f"| {accepted}, {refused} |")


@pytest.mark.parametrize("half", [*SLOW, "sentences", "held_out"])
def test_few_wrong_answers_are_accepted_and_few_right_ones_refused(half: str) -> None:
    """By the reward, from the whole text of the answer and with the question."""
    pairs = json_lines(PAIRS / f"{half}.jsonl")
    rewards = judged([(row(p["gold"], p["question"]), p["answer"]) for p in pairs], "ruled")
    accepted = [reward.value == 1.0 for reward in rewards]
    for pair, found in zip(pairs, accepted, strict=True):
        if found != pair["right"]:
            fault = "accepted" if found else "refused"
            print(f"{fault}: {pair['id']}: {pair['gold']!r} ~ {pair['answer']!r}")
    wrong, refused = rates(pairs, accepted)
    assert wrong <= ACCEPTED
    assert half != "held_out" or refused <= REFUSED
