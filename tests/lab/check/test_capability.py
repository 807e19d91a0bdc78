"""`assay check --probe` asks the checkpoint that a stage of RL starts from, and no other."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assay.data.episode import Episode, Reward
from assay.errors import Finding
from assay.judge.intervals import wilson
from assay.lab.check.all_checks import CheckResult
from assay.lab.check.capability import findings, told
from assay.tasks.task import task
from assay.train.pair_choice import OVERLONG
from tests.from_files import check_experiment, start
from tests.lab.sound_lab import SOUND, make_sound_lab


def seen(reward: str, *groups: list[Reward]) -> dict[str, str]:
    """What is said of groups of judged completions -> its severity."""
    session = SimpleNamespace(task=task("tools"), run=SimpleNamespace(root=Path()))
    stage = SimpleNamespace(reward=reward, group=len(groups[0]))
    turn: Any = SimpleNamespace(ended="stop")
    of = (("e", str(n), (turn,), r) for n, group in enumerate(groups) for r in group)
    episodes: Any = [Episode(*each) for each in of]
    subject: Any = SimpleNamespace(session=session)
    found = findings(subject, "rl", stage, "base", episodes)  # type: ignore[arg-type]
    return {each.what: each.severity for each in found if isinstance(each, Finding)}


def rewards(*values: float | None) -> list[Reward]:
    return [Reward(value) for value in values]


def test_a_prompt_is_solved_where_any_answer_is_and_form_alone_solves_nothing() -> None:
    said = seen("tools.strict_binary", rewards(0, 0, 1), rewards(0, 0, 0), rewards(1, 1, 1))
    assert "stage.rl: 2 of 3 prompts solved at least once at base" in said
    assert "stage.rl: 1 of 3 groups carry signal at base" in said
    # The full reward is 1.1, of which form is 0.1.
    said = seen("tools.fine_grained", rewards(0.1, 0.1), rewards(0.0, 0.1))
    assert said["stage.rl: 0 of 2 prompts solved at least once at base"] == "warning"
    assert said["stage.rl: 1 of 2 groups carry signal at base"] == "note"


def test_a_long_right_answer_is_right_and_an_abstention_is_no_wrong_answer() -> None:
    long = Reward(-0.2, {OVERLONG: -1.2})
    said = seen("tools.strict_binary", [long, Reward(None)], rewards(None, None))
    assert "stage.rl: 1 of 2 prompts solved at least once at base" in said


@pytest.mark.parametrize(
    ("count", "whole", "severity"),
    [(0, 4, "warning"), (1, 4, "note"), (1, 80, "warning"), (8, 80, "note"), (4, 4, "note")],
)
def test_it_warns_where_nothing_or_surely_next_to_nothing_is_solved(
    count: int, whole: int, severity: str
) -> None:
    _, finding = told("rl", "base", "prompts solved", count, whole)
    assert isinstance(finding, Finding) and finding.severity == severity
    interval = wilson(count, whole)
    assert f"{interval.low:.0%} to {interval.high:.0%}" in finding.evidence
    assert ("SFT" in finding.fix) == (severity == "warning")


def test_the_stages_own_start_is_asked_once_a_run_has_it_and_no_other_model(tmp_path: Path) -> None:
    lab = make_sound_lab(tmp_path)

    def probed() -> CheckResult:
        return check_experiment(lab / "tiny.toml", (*SOUND, "seeds=[7]"), root=lab, probe=2)

    before = [each.what for each in probed().findings if "stage.rl: " in each.what]
    assert "stage.rl: not asked, because no run has its start sft.last yet" in before
    assert not [each for each in before if "at least once" in each]
    (run,) = start(lab / "tiny.toml", (*SOUND, "seeds=[7]"), root=lab)
    after = [each.what for each in probed().findings]
    assert [each for each in after if each.endswith(f"at least once at {run}@sft.last")]
