"""A judge that fails abstains and costs no other batch; what it said is journalled at once."""

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from assay.data.episode import Completion, Reward
from assay.data.row import Message, Row
from assay.errors import InputError, RunFailure
from assay.labs.workflows.run_program import RunSettings
from assay.labs.workflows.task import TASK
from assay.rl.policy import SampleKey, Sampling
from assay.runs.judgement_journal import JudgementJournal
from assay.tasks.helper_model import Caller, HelperAnswer, HelperModel, Question, Usage
from assay.tasks.judge_reward import JudgeReward, Pair, answers
from assay.tasks.reward_table import weighted
from assay.tasks.running import RewardRunner

ROW = Row("r", (Message("user", "?"),), gold="4")
Batch = Sequence[tuple[Row, Completion]]
Helpers = Mapping[str, HelperModel]


class Parrot:
    """A helper model that answers with the last message; "lost" fails, "slow" takes its time."""

    name, fingerprint, identity, usage = "parrot", "0", "", Usage()
    sampling = Sampling(temperature=0.0, max_tokens=8)

    def __init__(self) -> None:
        self.keys: list[SampleKey] = []

    def called_by(self, caller: Caller) -> "Parrot":
        return self

    def answer(self, batch: Sequence[Question]) -> list[HelperAnswer]:
        self.keys += [each.key for each in batch]
        texts = [each.messages[-1].content for each in batch]
        return [HelperAnswer(t, failure="HTTP 500" if t == "lost" else "") for t in texts]


def completions(*texts: str) -> list[tuple[Row, Completion]]:
    return [(ROW, Completion(text, id=f"1/r#{n}")) for n, text in enumerate(texts)]


def score(reward: JudgeReward, *texts: str, deadline: float = 20.0, **options) -> list[Reward]:
    with RewardRunner(reward, deadline, **options) as runner:
        return runner.score(completions(*texts))


def length(batch: Batch, helpers: Helpers) -> list[Reward]:
    return [Reward(float(len(c.text)), facts={"together": len(batch)}) for _, c in batch]


@pytest.mark.parametrize(("batch", "sizes"), [(1, [1] * 5), (2, [2, 2, 2, 2, 1]), (None, [5] * 5)])
def test_a_judge_gets_its_batches_and_rewards_come_back_in_order(batch, sizes) -> None:
    rewards = score(JudgeReward(length, batch=batch), "a", "bb", "", "dddd", "eee", concurrency=2)
    assert [reward.value for reward in rewards] == [1.0, 2.0, 0.0, 4.0, 3.0]
    assert [reward.facts["together"] for reward in rewards] == sizes


def test_batches_run_side_by_side_and_no_more_than_said() -> None:
    together, running, most = threading.Barrier(3, timeout=10), [], []

    def meet(batch: Batch, helpers: Helpers) -> list[Reward]:
        running.append(1)
        most.append(len(running))
        together.wait()
        running.pop()
        return [Reward(1.0)] * len(batch)

    rewards = score(JudgeReward(meet), *"abcdef", concurrency=3)
    assert [reward.value for reward in rewards] == [1.0] * 6 and max(most) == 3


OVER = threading.Event()


def moody(batch: Batch, helpers: Helpers) -> list[Reward]:
    """Does what the first completion says."""
    mood = batch[0][1].text
    if mood == "raise":
        raise KeyError("mood")
    if mood == "hang":
        OVER.wait()
    if mood == "few":
        return []
    if mood == "nan":
        return [Reward(float("nan"))]
    if mood == "number":
        return [1.0]  # type: ignore[list-item]
    if mood in ("lost", "found"):
        asked = [[Message("user", c.text)] for _, c in batch]
        said = answers(helpers["parrot"], asked, [c.id for _, c in batch])
        return [Reward(1.0, why=text) for text in said]
    return [Reward(1.0) for _ in batch]


def test_a_judge_that_fails_abstains_with_the_reason_and_costs_no_other_batch() -> None:
    moods = ("fine", "raise", "hang", "few", "nan", "number", "lost", "found", "fine")
    judge, parrot = JudgeReward(moody, helpers=("parrot",)), Parrot()
    OVER.clear()
    rewards = score(judge, *moods, deadline=0.5, concurrency=2, helpers={"parrot": parrot})
    OVER.set()  # not before: a batch that hangs is not waited for
    assert [reward.value for reward in rewards] == [1.0, *[None] * 6, 1.0, 1.0]
    assert [reward.why for reward in rewards[1:7]] == [
        "the judge failed: KeyError: 'mood'",
        "the judge took more than 0.5 seconds",
        "the judge gave 0 rewards for 1 completions",
        "the judge failed: the value is nan",
        "the judge gave float, no Reward",
        "the judge failed: HelperFailed: parrot gave no answer: HTTP 500",
    ]
    assert rewards[7].why == "found"
    assert {key.row for key in parrot.keys} == {"1/r#6", "1/r#7"}


def test_a_batch_has_the_time_of_all_its_completions() -> None:
    def slow(batch: Sequence[Pair], helpers: Mapping[str, HelperModel]) -> list[Reward]:
        time.sleep(0.6)
        return [Reward(1.0) for _ in batch]

    whole = JudgeReward(slow, batch=None)
    assert [r.value for r in score(whole, *"abcdef", deadline=0.5)] == [1.0] * 6
    (late,) = score(whole, "a", deadline=0.5)
    assert late.why == "the judge took more than 0.5 seconds"
    patient = JudgeReward(slow, batch=None, least_seconds=5.0)
    assert [r.value for r in score(patient, "a", deadline=0.5)] == [1.0]
    solved = TASK.rewards["solved"]
    assert isinstance(solved, JudgeReward)
    assert solved.least_seconds > RunSettings().seconds, "a program's own time"


def test_a_completion_too_long_to_judge_earns_what_the_reward_declares() -> None:
    long = "x" * 11
    (reward,) = score(JudgeReward(length, longest=10), long)
    assert (reward.value, reward.outcome) == (0.0, "too long")
    assert reward.why == "too long: 11 characters, more than 10"
    declared = JudgeReward(length, longest=10, failed=lambda row, c, f: Reward(-1.0, why=f.why))
    assert [r.value for r in score(declared, long, "x" * 10)] == [-1.0, 10.0]


def test_a_judge_gets_the_helper_models_that_it_declares_and_no_others() -> None:
    def names(batch: Batch, helpers: Helpers) -> list[Reward]:
        return [Reward(1.0, why=" ".join(sorted(helpers)))] * len(batch)

    there = {"parrot": Parrot(), "other": Parrot()}
    (reward,) = score(JudgeReward(names, helpers=("parrot",)), "x", helpers=there)
    assert reward.why == "parrot"
    with pytest.raises(InputError, match="parrot"):
        score(JudgeReward(names, helpers=("parot",)), "x", helpers=there)


def counted(calls: list[str]) -> JudgeReward:
    def judge(batch: Batch, helpers: Helpers) -> list[Reward]:
        calls.extend(c.id for _, c in batch)
        return [Reward(float(len(calls)), {"part": 0.1}, "w", "o", {"fact": "f"}) for _ in batch]

    return JudgeReward(judge)


def journalled(file: Path, pairs: Batch, judge: str = "hash") -> tuple[list[Reward], list[str]]:
    calls: list[str] = []
    journal = JudgementJournal(file, judge)
    with RewardRunner(counted(calls), concurrency=1, journal=journal) as runner:
        return runner.score(pairs), calls


def test_what_is_journalled_is_not_judged_again(tmp_path: Path) -> None:
    file, pairs = tmp_path / "j.jsonl", completions("same", "same")
    first, calls = journalled(file, pairs)
    assert [r.value for r in first] == [1.0, 2.0], "two samples of one text are two judgements"
    assert calls == ["1/r#0", "1/r#1"]
    assert journalled(file, pairs) == (first, [])


@pytest.mark.parametrize(
    "change",
    [
        {"id": "2/r#0"},
        {"text": "other"},
        {"ended": "length"},
        {"row": Row("r", ROW.messages, gold="5")},
        {"judge": "another"},
    ],
)
def test_what_differs_in_anything_is_judged_again(tmp_path: Path, change: dict) -> None:
    file = tmp_path / "j.jsonl"
    journalled(file, completions("same"))
    row, judge = change.pop("row", ROW), change.pop("judge", "hash")
    other = Completion(**{"text": "same", "id": "1/r#0", **change})
    assert len(journalled(file, [(row, other)], judge)[1]) == 1


def test_parts_of_one_reward_have_journals_of_their_own_and_pure_ones_none(tmp_path: Path) -> None:
    def pure(row: Row, completion: Completion) -> Reward:
        return Reward(1.0)

    calls: list[str] = []
    rewards = {"one": counted(calls), "two": counted(calls), "pure": pure}
    both = weighted(rewards, dict.fromkeys(rewards, 1.0))
    journal = JudgementJournal(tmp_path / "j.jsonl", "hash")
    with RewardRunner(both, concurrency=1, journal=journal) as runner:
        first = runner.score(completions("a"))
        assert runner.score(completions("a")) == first
    assert len(calls) == 2 and len((tmp_path / "j.jsonl").read_text().splitlines()) == 2


def test_a_recorded_step_leaves_the_journal_and_a_later_one_stays(tmp_path: Path) -> None:
    file = tmp_path / "j.jsonl"
    later = [(ROW, Completion("a", id="12/r#0"))]
    journalled(file, [*completions("a", "b"), *later])
    JudgementJournal(file, "hash").drop("1/")
    assert journalled(file, later)[1] == []
    assert len(journalled(file, completions("a"))[1]) == 1
    journal = JudgementJournal(file, "hash")
    journal.drop("1/")
    journal.drop("12/")
    assert not file.exists() and journal.known("", *later[0]) is None


def test_what_cannot_be_recorded_stops_the_run_and_is_no_abstention() -> None:
    def unrecorded(batch: Sequence[Pair], helpers: Mapping[str, HelperModel]) -> list[Reward]:
        raise RunFailure("the ledger cannot be written")

    for size in (1, None):
        with pytest.raises(RunFailure, match="cannot be written"):
            score(JudgeReward(unrecorded, batch=size), "a", "b")
