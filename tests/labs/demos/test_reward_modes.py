"""Each mode is what the reports' table says, stored or asked for; what nobody scored abstains."""

import math
from dataclasses import asdict

import pytest

from assay.data.episode import Completion
from assay.experiment.reward_tables import RewardPart
from assay.lab.session.reward_parts import full_reward, table_part
from assay.labs.demos.demonstrations import Query, query_row
from assay.labs.demos.rewards import MODES, REWARDS, OutcomeFacts
from assay.labs.demos.task import TASK
from assay.rl.policy import Sampling
from assay.tasks.helper_model import HelperAnswer, Usage
from assay.tasks.reward_table import stored_reward
from tests.labs.demos.made_sets import asked, shown

WRONG = OutcomeFacts(0.0, "official", "cat", 0.25, 0.5)
HALF = OutcomeFacts(0.6, "official", "dog", 0.5, 0.9)
RIGHT = OutcomeFacts(1.0, "official", "dogs", 0.8, 1.0)

TABLE = {
    "hard_plus_soft": (0.0, 1.6, 2.0),
    "separated": (0.0, 2.6, 3.0),
    "hard_only": (0.0, 1.0, 1.0),
    "soft_only": (0.0, 0.6, 1.0),
    "hard01_plus_gtprob": (0.25, 1.5, 1.8),
    "hard_plus_gtprob_plus_rel": (0.3, 1.5, 1.8),
}
"""By hand from domain.md 5.3: of an accuracy of 0, .6 and 1."""


def stored(known: OutcomeFacts) -> dict:
    return {"text": "[1, 2]", "reward": 77.0, "facts": asdict(known)}


def made(kind: str, **options):
    return table_part(TASK, RewardPart(kind=kind, options=options), None).reward  # type: ignore[arg-type]


@pytest.mark.parametrize("name", TABLE)
def test_each_mode_is_the_reports_from_stored_facts(name):
    found = [stored_reward(made(name), ROW, stored(each)).value for each in (WRONG, HALF, RIGHT)]
    assert found == pytest.approx(TABLE[name])


@pytest.mark.parametrize(
    ("kind", "options", "known", "expected"),
    [
        ("hard_plus_soft", {"hard": 2.0, "soft": 0.5}, HALF, 2.3),
        ("hard_plus_gtprob_plus_rel", {"relevance": 1.0}, WRONG, 0.75),
        ("hard_only", {"hard": 9.0}, RIGHT, 5.0),
    ],
)
def test_weights_are_options_and_values_are_held_at_five(kind, options, known, expected):
    reward = stored_reward(made(kind, **options), ROW, stored(known))
    assert reward.value == pytest.approx(expected)


def test_the_full_reward_is_what_a_certain_right_answer_earns():
    full = {name: full_reward(TASK, name, None) for name in MODES}  # type: ignore[arg-type]
    assert full["hard_plus_soft"] == 2 and full["separated"] == 3 and full["soft_only"] == 1


@pytest.mark.parametrize(
    ("known", "why"),
    [
        (OutcomeFacts(0.5, "fallback", "cat"), "fallback"),
        (OutcomeFacts(0.0, "error", "cat"), "no metric"),
        (OutcomeFacts(1.0, "official", " \n"), "empty"),
    ],
)
def test_what_was_not_scored_officially_abstains_and_says_why(known, why):
    reward = stored_reward(made("hard_plus_soft"), ROW, stored(known))
    assert reward.value is None and why in reward.why


def test_a_mode_abstains_from_what_was_not_noted_and_never_reads_it_as_nothing():
    bare = stored(OutcomeFacts(1.0, "official", "dog"))
    assert stored_reward(made("hard01_plus_gtprob"), ROW, bare).value is None
    assert "gold_probability" in stored_reward(made("hard01_plus_gtprob"), ROW, bare).why
    assert stored_reward(made("hard_plus_soft"), ROW, bare).value == 2.0
    nothing = {"text": "[1, 2]", "reward": 1.0}
    assert stored_reward(made("hard_plus_soft"), ROW, nothing).value is None
    assert stored_reward(None, ROW, nothing).value == 1.0


class Frozen:
    """Answers by the picks that it reads, and scores any answer at a quarter a token."""

    name, fingerprint, identity = "frozen", "f", ""
    sampling, usage = Sampling(), Usage()

    def __init__(self, *answers: str):
        self.answers = answers
        self.scored = 0

    def called_by(self, caller):
        return self

    def answer(self, batch):
        return [HelperAnswer(text) for text, _ in zip(self.answers, batch, strict=True)]

    def score(self, conversations, answers, ended=False):
        self.scored += len(answers)
        return [(math.log(0.25),) * 2 for _ in answers]


ROW = query_row(shown(6), Query("q", asked("wants"), ("a",)), (0, 1, 2, 3), 2)


def judged(kind: str, texts: list[str], *answers: str):
    pairs = [(ROW, Completion(text)) for text in texts]
    return REWARDS[kind].judge(pairs, {"frozen": Frozen(*answers)})  # type: ignore[arg-type]


def test_a_new_selection_earns_what_the_same_stored_one_does():
    for kind in MODES:
        (online,) = judged(kind, ["[0, 3]"], "b")
        candidate = {"text": "[0, 3]", "reward": 0.0, "facts": dict(online.facts)}
        again = stored_reward(REWARDS[kind], ROW, candidate)
        assert (again.value, again.parts) == (online.value, online.parts), kind


def test_a_selection_that_is_not_allowed_earns_nothing_and_is_not_asked():
    rewards = judged("hard_plus_soft", ["[0, 0]", "[0, 3]", "[5, 0]"], "a")
    assert [each.value for each in rewards] == [0, 2, 0]
    assert rewards[0].outcome == "not allowed"
