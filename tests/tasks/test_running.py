"""A reward that goes wrong abstains with its reason, but for what the answer did: that earns 0."""

import json
import os
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from assay.data.episode import Completion, Reward, row_of, row_values
from assay.data.row import ImagePart, Message, Row, TextPart, ToolCall
from assay.errors import InputError
from assay.sandbox.isolation import isolation_available
from assay.sandbox.pool import WorkerPools
from assay.tasks.reward_table import RewardTable
from assay.tasks.running import RewardRunner, WorkerReward
from assay.tasks.task import RewardFunction
from tests.tasks.reward_faults import SEARCH, dies_once, moody, noted, noting, repeat

ROW = Row("r", (Message("user", "?"),))


def score(
    reward: RewardFunction | RewardTable, *texts: str, deadline: float = 20.0
) -> list[Reward]:
    with RewardRunner(reward, deadline, sandbox="limits-only") as runner:
        return runner.score([(ROW, Completion(text)) for text in texts])


def test_a_pure_reward_runs_here_and_its_exception_is_an_abstention() -> None:
    def pure(row: Row, completion: Completion) -> Reward:
        return Reward(1 / len(completion.text), why=str(os.getpid()))

    here = str(os.getpid())
    assert score(pure, "ab", "", "a") == [
        Reward(0.5, why=here),
        Reward(None, why="exception: ZeroDivisionError: division by zero"),
        Reward(1.0, why=here),
    ]


def test_an_unsafe_reward_runs_elsewhere_and_each_failure_stays_with_its_completion() -> None:
    """What the answer does twice, and the gold answer does not, is the answer's: it earns 0."""
    texts = ("fine", "raise", "loop", "die", "nan", "fine")
    rewards = score(moody, *texts, deadline=1.0)
    assert [reward.value for reward in rewards] == [1.0, 0.0, 0.0, 0.0, 0.0, 1.0]
    assert int(rewards[0].why) != os.getpid()
    assert [(reward.outcome, reward.why) for reward in rewards[1:5]] == [
        ("checker raised", "checker raised: KeyError: 'mood'"),
        ("timed out", "timed out: still running at its deadline"),
        ("checker crashed", "checker crashed: ended with exit code 1"),
        ("checker raised", "checker raised: the value is nan"),
    ]


def test_a_failure_that_a_second_try_does_not_repeat_is_forgotten(tmp_path: Path) -> None:
    """A worker that was killed from outside says nothing of the answer."""
    (tmp_path / "first").touch()
    with RewardRunner(dies_once, 20.0, sandbox="limits-only") as runner:
        (reward,) = runner.score([(ROW, Completion(str(tmp_path / "first")))])
    assert reward == Reward(1.0)


def test_the_gold_answer_is_tried_once_for_all_answers_to_it(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    row = replace(ROW, gold=f"{log} fine")
    with RewardRunner(noted, 20.0, sandbox="limits-only", workers=1) as runner:
        for _ in range(2):
            rewards = runner.score([(row, Completion(f"{log} raise"))] * 3)
            assert [reward.value for reward in rewards] == [0.0] * 3
    assert Counter(log.read_text().split()) == {"raise": 12, "fine": 1}


def test_a_pure_reward_that_raises_on_an_answer_earns_its_lowest_value() -> None:
    def pure(row: Row, completion: Completion) -> Reward:
        return Reward(float(completion.text))

    row = replace(ROW, gold="1")
    with RewardRunner(pure) as runner:
        raised, right = runner.score([(row, Completion("x")), (row, Completion("1"))])
        assert (raised.value, raised.outcome) == (0.0, "checker raised")
        pure.lowest = -1.0  # type: ignore[attr-defined]
        assert runner.score([(row, Completion("x"))])[0].value == -1.0
        assert runner.abstained_share == 0.0 and right.value == 1.0


def test_what_the_gold_answer_does_too_is_the_labs_doing_abstains_and_is_counted() -> None:
    cases = (("raise", "raise"), ("raise", "fine"), ("die", "die"), ("fine", "raise"))
    with RewardRunner(moody, 20.0, sandbox="limits-only") as runner:
        assert runner.abstained_share == 0.0
        pairs = [(replace(ROW, gold=gold), Completion(text)) for gold, text in cases]
        rewards = [reward for pair in pairs for reward in runner.score([pair])]
        reasons = ["exception: KeyError: 'mood'", "crash: ended with exit code 1"]
        assert [reward.value for reward in rewards] == [None, 1.0, None, 0.0]
        assert [(each.why, each.outcome) for each in rewards[::2]] == [(why, "") for why in reasons]
        assert runner.abstentions == dict.fromkeys(reasons, 1)
        assert runner.outcomes == {"checker raised": 1}
        assert (runner.scored, runner.abstained_share) == (4, 0.5)


def test_rows_and_completions_reach_the_worker_whole() -> None:
    call = ToolCall("f", {"x": [1, None]}, "id")
    messages = (Message("user", "käse"), Message("assistant", "", (call,), reasoning="hm"))
    row = Row("r", messages, ({"name": "f"},), {"gold": 1}, "c", "file:3", {"k": 2})
    completion = Completion("text", (1, 2), "length")
    with RewardRunner(repeat, sandbox="limits-only") as runner:
        (reward,) = runner.score([(row, completion)])
    assert reward.why == repr((asdict(row), asdict(completion)))


def test_facts_and_images_pass_a_worker() -> None:
    image = ImagePart("0" * 64, "image/png", data=b"\x89PNG\x00", origin=("f", 3, "content"))
    message = Message("user", "look", parts=(TextPart("look"), image))
    row = Row("r", (message,), tools=({"name": "f"},))
    with RewardRunner(noting, sandbox="limits-only") as runner:
        (reward,) = runner.score([(row, Completion("<b>"))])
    assert reward.facts == {"said": "<b>", "bytes": 5, "tools": "({'name': 'f'},)"}
    assert row_of(json.loads(json.dumps(row_values(row)))) == row


def test_an_unsafe_reward_runs_in_namespaces_unless_the_user_gave_that_up() -> None:
    if not isolation_available().tool:
        pytest.skip("no namespaces on this machine")
    with RewardRunner(moody) as runner:
        (reward,) = runner.score([(ROW, Completion("write"))])
    assert reward.value == 0.0 and "Read-only file system" in reward.why


@pytest.mark.parametrize("sent", [{}, {"gold": "gold of the row"}])
def test_a_program_finds_no_gold_where_it_runs_unless_it_was_sent(sent: dict) -> None:
    """As docs/add-a-task.md says of rewards that run programs; the search finds what is there."""
    program = WorkerReward(
        "tests.tasks.reward_faults:run_program",
        lambda row, completion: {
            "program": completion.text + "".join(f"#{v}" for v in sent.values())
        },
        lambda row, completion, value: Reward(float(value == row.gold)),
    )
    texts = ['answer = "gold of"; answer += " the row"', SEARCH]
    with RewardRunner(program, 20.0) as runner:
        rewards = runner.score(
            [(replace(ROW, gold="gold of the row"), Completion(t)) for t in texts]
        )
    assert [reward.value for reward in rewards] == [1.0, float(bool(sent))]


def test_an_unsafe_reward_without_an_importable_name_is_refused() -> None:
    def local(row: Row, completion: Completion) -> Reward:
        return Reward(1.0)

    local.unsafe = True  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="define it in a module"):
        score(local, "x")


def test_runners_share_the_workers_of_their_callers_pools_until_one_is_under_suspicion() -> None:
    import psutil

    before = psutil.Process().children()

    def workers_after(text: str, pools: WorkerPools) -> list[psutil.Process]:
        with RewardRunner(moody, sandbox="limits-only", workers=1, pools=pools) as runner:
            runner.score([(ROW, Completion(text))])
        return [each for each in psutil.Process().children() if each not in before]

    with WorkerPools() as pools:
        first, second = (workers_after("fine", pools) for _ in range(2))
        assert len(first) == 1 and second == first
        renewed = workers_after("raise", pools)
        assert len(renewed) == 1 and renewed != first
    assert [each for each in psutil.Process().children() if each not in before] == []
