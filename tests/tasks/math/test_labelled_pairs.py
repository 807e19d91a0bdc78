"""Answers that were labelled right or wrong without sight of the rules.

`pairs/held_out.jsonl` was not looked at while the rules were made, the others were;
`sentences.jsonl` is of answers that end with a sentence, labelled with the rules in sight. The aims
are at most 2 % of the wrong answers accepted, and at most 8 % of the right ones of `held_out`
refused.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from assay.data.episode import Completion, Reward
from assay.data.row import Message, Row
from assay.sandbox.limits import Outcome
from assay.tasks.math.rewards import accuracy, answer_of, gold_answer
from tests.tasks.math.many import in_one_call

PAIRS = Path(__file__).parent / "pairs"
ACCEPTED, REFUSED = 0.02, 0.08
FAILED = Outcome(failure="exception", why="raised")


@dataclass(frozen=True)
class Rates:
    """Shares of the wrong answers that are accepted and of the right ones that are refused."""

    accepted: float
    refused: float


def read(half: str) -> list[dict]:
    path = PAIRS / f"{half}.jsonl"
    if not path.exists():
        pytest.skip(f"{path.name} is not there: the {half} half of the labelled pairs")
    return [json.loads(line) for line in path.read_text().splitlines()]


def rates(pairs: list[dict], verdicts: list[bool]) -> Rates:
    wrong = [verdict for pair, verdict in zip(pairs, verdicts, strict=True) if not pair["right"]]
    right = [verdict for pair, verdict in zip(pairs, verdicts, strict=True) if pair["right"]]
    return Rates(sum(wrong) / len(wrong), 1 - sum(right) / len(right))


def assays_verdicts(pairs: list[dict]) -> list[bool]:
    """By the reward, from the whole text of the answer and with the question."""
    cases = [
        (Row(p["id"], (Message("user", p["question"]),), gold=p["gold"]), Completion(p["answer"]))
        for p in pairs
    ]
    found = [accuracy.ask(*case) for case in cases]
    asked = [n for n, each in enumerate(found) if not isinstance(each, Reward)]
    values = in_one_call("judge", [found[n] for n in asked])  # type: ignore[misc]
    for n, value in zip(asked, values, strict=True):
        found[n] = accuracy.read(*cases[n], value) if value else accuracy.failed(*cases[n], FAILED)
    return [isinstance(each, Reward) and each.value == 1.0 for each in found]


def math_verifys_verdicts(pairs: list[dict]) -> list[bool]:
    """By math-verify alone, of the gold answer and the whole text as it reads them itself."""
    calls = []
    for pair in pairs:
        row = Row(pair["id"], (Message("user", "?"),), gold=pair["gold"])
        answer = answer_of(Completion(pair["answer"])) or pair["answer"]
        calls.append({"gold": gold_answer(row), "answer": answer})
    return [bool(value and value["equal"]) for value in in_one_call("own", calls)]


@pytest.mark.parametrize(
    "half",
    [
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in ("development", "development_2", "development_3")
        ),
        *("sentences", "held_out"),
    ],
)
def test_few_wrong_answers_are_accepted_and_few_right_ones_refused(half: str) -> None:
    pairs = read(half)
    verdicts = assays_verdicts(pairs)
    for judge, found in (("assay", verdicts), ("math-verify", math_verifys_verdicts(pairs))):
        each = rates(pairs, found)
        print(
            f"{half}: {judge}: wrong accepted {each.accepted:.1%}, right refused {each.refused:.1%}"
        )
    for pair, verdict in zip(pairs, verdicts, strict=True):
        if verdict != pair["right"]:
            fault = "accepted" if verdict else "refused"
            print(f"{fault}: {pair['id']}: {pair['gold']!r} ~ {pair['answer']!r}")
    found = rates(pairs, verdicts)
    assert found.accepted <= ACCEPTED
    if half == "held_out":
        assert found.refused <= REFUSED
