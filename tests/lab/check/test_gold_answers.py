"""`assay check` finds out whether rewards tell right from wrong, with rewards that do not."""

import json
from pathlib import Path

import pytest

from assay.data.episode import Completion, Reward
from assay.data.row import Row
from assay.lab.check.all_checks import CheckResult
from assay.labs.math import rewards as math_rewards
from tests.from_files import check_experiment
from tests.lab.sound_lab import SEARCH, add_row, found, look, make_sound_lab, silent

CALLS = """\
name  = "calls"
model = "path:model"
task  = "tools"

[data.train]
source = "path:calls.jsonl"
format = "messages"

[stage.rl]
method = "grpo"
data   = "train"
steps  = 2
prompts  = 2
group    = 2
sampling = { max_tokens = 120 }
reward   = "strict_binary"
"""


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    return make_sound_lab(tmp_path)


def write_calls(lab: Path, golds: list[str]) -> None:
    """Eight rows that search for their own number; row i's gold answer searches for `golds[i]`."""
    (lab / "calls.toml").write_text(CALLS)
    file = lab / "calls.jsonl"
    file.unlink(missing_ok=True)
    for i, gold in enumerate(golds):
        add_row(file, f"find {i}", call(str(i)), f"row{i}", tools=[SEARCH], gold=call(gold))


def call(query: str) -> str:
    value = json.dumps({"name": "search", "arguments": {"query": query}})
    return f"<tool_call>\n{value}\n</tool_call>"


def look_at_calls(lab: Path, *overrides: str) -> CheckResult:
    return check_experiment(lab / "calls.toml", overrides, root=lab)


def test_gold_answers_exchanged_between_two_rows_are_caught_and_named(lab: Path) -> None:
    write_calls(lab, [str(i) for i in range(8)])
    report = look_at_calls(lab)
    assert not report.failed and silent(report, "full reward")
    write_calls(lab, ["0", "1", "5", "3", "4", "2", "6", "7"])
    finding = found(look_at_calls(lab), "do not earn the full reward of 'strict_binary'")
    assert finding.severity == "error"
    assert "2 of 8 (25.0%)" in finding.evidence
    assert "row2 (calls.jsonl:3), row5 (calls.jsonl:6)" in finding.evidence


def test_the_ground_truth_of_dialogues_is_played_and_earns_the_score(lab: Path) -> None:
    (lab / "talks.toml").write_text("""\
name  = "talks"
model = "path:model"
task  = "tools"

[evaluate.talks]
benchmark   = "bfcl/multi_turn_miss_func"
role        = "report"
checkpoints = ["base"]
take        = { rows = 3, how = "random" }
sampling    = { max_tokens = 512 }
""")
    report = look(lab, file="talks.toml", settings=())
    numbers = report.numbers["evaluate.talks"]
    assert numbers["gold_full_share: bfcl/multi_turn_miss_func"] == 1
    assert numbers["prompt_tokens_mean"] > 1000 and numbers["answer_tokens_mean"] > 0
    assert silent(report, "gold answer") and silent(report, "full reward")


def test_an_abstention_on_gold_is_an_error_with_its_reason(lab: Path) -> None:
    write_calls(lab, [str(i) for i in range(8)])
    finding = found(look_at_calls(lab, "stage.rl.reward=ast"), "do not earn the full reward")
    assert finding.severity == "error" and "abstains" in finding.evidence
    assert "no possible answers of BFCL" in finding.evidence


def use_reward(monkeypatch: pytest.MonkeyPatch, value) -> str:
    """Register a reward of the math task; returns the override that uses it."""

    def reward(row: Row, completion: Completion) -> Reward:
        return Reward(float(value(row, completion.text)))

    monkeypatch.setitem(math_rewards.REWARDS, "made", reward)  # type: ignore[arg-type]
    return "stage.rl.reward=made"


def right(row: Row, text: str) -> bool:
    return text == f"\\boxed{{{row.gold}}}"


def test_a_reward_that_never_looks_is_an_error(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = look(lab, use_reward(monkeypatch, lambda row, text: 1.0))
    assert found(report, "stage.rl: the reward does not tell right").severity == "error"


def test_a_reward_for_empty_answers_is_an_error(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = look(lab, use_reward(monkeypatch, lambda row, text: not text or right(row, text)))
    finding = found(report, "empty answers earn the full reward")
    assert finding.severity == "error" and "12 of 12" in finding.evidence


def test_a_reward_for_cut_answers_is_found(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def value(row: Row, text: str) -> bool:
        return right(row, text) or (bool(text) and not text.endswith("}"))

    report = look(lab, use_reward(monkeypatch, value))
    assert found(report, "cut answers earn the full reward").severity == "error"
    assert silent(report, "exchanged answers")


def test_rows_that_all_have_one_short_answer_are_sound(lab: Path) -> None:
    # Nothing can be exchanged, so that a part that judges form is not taken for one that judges
    # correctness: an empty answer repeats nothing and earns all that `repetition` gives.
    (lab / "sums.jsonl").unlink()
    for n in range(16):
        add_row(lab / "sums.jsonl", f"{30 + n} - {21 + n} = ?", r"\boxed{9}", f"r{n}", gold="9")
    report = look(lab)
    assert report.numbers["stage.rl"]["gold_full_share: accuracy"] == 1
    assert not report.failed and silent(report, "full reward")


@pytest.mark.parametrize(
    ("golds", "severity"), [((2, 3, 5, 6, 7), "error"), ((5,), "warning"), ((), "")]
)
def test_a_reward_for_other_rows_answers_is_found(
    lab: Path, monkeypatch: pytest.MonkeyPatch, golds: tuple[int, ...], severity: str
) -> None:
    def careless(row: Row, text: str) -> bool:
        return right(row, text) or (text.endswith("}") and int(str(row.gold)) in golds)

    report = look(lab, use_reward(monkeypatch, careless))
    severities = [f.severity for f in report.findings if "exchanged answers earn" in f.what]
    assert severities == [severity] * bool(severity)
    assert silent(report, "empty answers") and silent(report, "do not earn")


def test_parts_that_judge_form_warn_and_alone_they_stop(lab: Path) -> None:
    table = "stage.rl.reward={ accuracy = 1.0, think_format = 0.2 }"
    report = look(lab, table)
    finding = found(report, "do not earn the full reward of 'think_format'")
    assert finding.severity == "warning" and not report.failed
    alone = look(lab, "stage.rl.reward=think_format")
    assert found(alone, "full reward of 'think_format'").severity == "error"


RAISES = """
def close(prompt, completion, row):
    return 1.0 if completion else "zero"
"""
GRADES = """
import math

from assay.data.episode import Reward
from assay.tasks.judge_reward import JudgeReward


def judged(batch, helpers):
    return [Reward(-float(abs(len(c.text) - len(r.messages[-1].content)))) for r, c in batch]


graded = JudgeReward(judged, maximum=math.inf)
unknown = JudgeReward(judged)
"""


def test_a_reward_that_raises_on_wrong_answers_is_named(lab: Path) -> None:
    (lab / "rewards.py").write_text(RAISES)
    report = look(lab, 'stage.rl.reward="path:rewards.py:close"')
    finding = found(report, "raises on wrong answers")
    assert finding.severity == "warning" and "returned str" in finding.evidence
    assert silent(look(lab), "raises on wrong answers")


def test_a_reward_that_grades_without_a_full_value_is_sound(lab: Path) -> None:
    (lab / "rewards.py").write_text(GRADES)
    graded = look(lab, 'stage.rl.reward="path:rewards.py:graded"')
    assert silent(graded, "earn the full reward") and silent(graded, "do not earn the full")
    unknown = look(lab, 'stage.rl.reward="path:rewards.py:unknown"')
    assert found(unknown, "do not earn the full reward").severity in ("error", "warning")


BROKEN = """
def asks(prompts, completions, answers, **columns):
    return [1.0]


def some(row, completion):
    if row.gold in ("2", "5"):
        raise SystemExit(0)
    return float(row.gold in completion.text)
"""


def test_where_the_reward_itself_fails_nothing_that_follows_from_it_is_said(lab: Path) -> None:
    (lab / "rewards.py").write_text(BROKEN)
    report = look(lab, 'stage.rl.reward="path:rewards.py:asks"')
    (finding,) = [f for f in report.findings if f.what.startswith("stage.rl")]
    assert finding.what == "stage.rl: 'path:rewards.py:asks' (rewards.py:2) fails on gold answers"
    assert finding.evidence.startswith("TypeError: asks asks for 'answers', and the columns here ")
    partly = look(lab, 'stage.rl.reward="path:rewards.py:some"')
    (finding,) = [f for f in partly.findings if f.what.startswith("stage.rl")]
    assert finding.severity == "error" and "SystemExit: 0 (rewards.py:8)" in finding.evidence
