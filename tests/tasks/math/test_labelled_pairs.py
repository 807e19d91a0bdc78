"""Answers that were labelled right or wrong without sight of the rules.

`pairs/held_out.jsonl` was not looked at while the rules were made, the others were;
`sentences.jsonl` is of answers that end with a sentence, labelled with the rules in sight. The aims
are at most 2 % of the wrong answers accepted, and at most 8 % of the right ones of `held_out`
refused.
"""

import json
from pathlib import Path

import pytest

from tests.tasks.math.many import judged, row

PAIRS = Path(__file__).parent / "pairs"
ACCEPTED, REFUSED = 0.02, 0.08
SLOW = [
    pytest.param(half, marks=pytest.mark.slow)
    for half in ("development", "development_2", "development_3")
]


@pytest.mark.parametrize("half", [*SLOW, "sentences", "held_out"])
def test_few_wrong_answers_are_accepted_and_few_right_ones_refused(half: str) -> None:
    """By the reward, from the whole text of the answer and with the question."""
    pairs = [json.loads(line) for line in (PAIRS / f"{half}.jsonl").read_text().splitlines()]
    rewards = judged([(row(p["gold"], p["question"]), p["answer"]) for p in pairs], "ruled")
    accepted = [reward.value == 1.0 for reward in rewards]
    for pair, found in zip(pairs, accepted, strict=True):
        if found != pair["right"]:
            fault = "accepted" if found else "refused"
            print(f"{fault}: {pair['id']}: {pair['gold']!r} ~ {pair['answer']!r}")
    both = list(zip(pairs, accepted, strict=True))
    wrong = [found for pair, found in both if not pair["right"]]
    right = [found for pair, found in both if pair["right"]]
    assert sum(wrong) / len(wrong) <= ACCEPTED
    assert half != "held_out" or 1 - sum(right) / len(right) <= REFUSED
