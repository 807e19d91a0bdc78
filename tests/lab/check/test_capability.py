"""The capability floor: a prompt counts once, as solved where any answer to it is right."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from assay.data.episode import Reward
from assay.experiment.reward_tables import Reward as RewardSpec
from assay.judge.intervals import wilson
from assay.lab.check.capability import capability, floor_finding, full_reward
from assay.lab.monitor.observer import Silent
from assay.lab.run.runner import start
from assay.tasks.task import task
from assay.train.pair_choice import OVERLONG
from tests.lab.sound_lab import SOUND, make_sound_lab


class Watching(Silent):
    """Keeps notes and steps in their order."""

    def __init__(self):
        self.said: list[str] = []
        self.name = ""

    def note(self, text: str) -> None:
        self.said.append(text)

    def stage(self, name: str, method: str, step: int, steps: int) -> None:
        self.name = name

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        self.said.append(f"{self.name} step {step}")


def judged(*prompts: Sequence[float | None]) -> list[tuple[str, Reward]]:
    return [(f"row{n}", Reward(value)) for n, values in enumerate(prompts) for value in values]


def test_a_prompt_is_solved_where_any_of_its_answers_is():
    floor = capability(judged([0, 0, 1], [0, 0, 0], [1, 1, 1]), 1.0)
    assert floor is not None
    assert (floor.prompts, floor.solved, floor.group) == (3, 2, 3)
    assert floor.interval == wilson(2, 3)


def test_a_bonus_for_form_alone_solves_nothing_and_a_long_right_answer_is_right():
    assert capability(judged([0.1, 0.1], [1.1, 0.0]), 1.1) == capability(
        judged([0, 0], [1, 0]), 1.0
    )
    long = [("row", Reward(-0.2, {OVERLONG: -1.2}))]
    floor = capability(long, 1.0)
    assert floor is not None and floor.solved == 1


def test_the_full_reward_of_a_weighted_sum_is_the_sum_of_its_parts():
    tools = task("tools")
    assert full_reward(tools, "tools.fine_grained", Path()) == 1.1
    weights: RewardSpec = {"fine_grained": 2.0, "ast": 0.5, "strict_binary": -1.0}
    assert full_reward(tools, weights, Path()) == 2.7


@pytest.mark.parametrize(
    ("solved", "prompts", "severity"),
    [(0, 4, "warning"), (1, 4, "note"), (1, 80, "warning"), (8, 80, "note"), (4, 4, "note")],
)
def test_it_warns_where_nothing_or_surely_next_to_nothing_is_solved(
    solved: int, prompts: int, severity: str
):
    floor = capability(judged(*[[float(n < solved), 0.0] for n in range(prompts)]), 1.0)
    assert floor is not None
    finding = floor_finding("rl", "base", floor)
    assert finding.severity == severity and f"{solved} of {prompts} prompts" in finding.what
    interval = wilson(solved, prompts)
    assert f"{interval.low:.0%} to {interval.high:.0%}" in finding.evidence
    assert ("SFT" in finding.fix) == (severity == "warning")


def test_a_run_tells_it_before_it_trains_and_goes_on(tmp_path: Path):
    lab, watching = make_sound_lab(tmp_path), Watching()
    (run,) = start(lab / "tiny.toml", (*SOUND, "seeds=[7]"), root=lab, observer=watching)
    said = [each for each in watching.said if "prompts solved at least once" in each]
    (line,) = said
    assert line.startswith("warning: stage.rl: 0 of 2 prompts solved at least once at sft.last")
    assert "SFT" in line
    told_at = watching.said.index(line)
    first_step = next(n for n, each in enumerate(watching.said) if each.startswith("rl step 1"))
    assert told_at < first_step
    assert run.metrics.read_text().count('"stage": "rl"') == 3
