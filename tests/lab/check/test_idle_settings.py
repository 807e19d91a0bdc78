"""A check says where settings leave nothing of what is an algorithm's own."""

import pytest

from assay.errors import Finding
from assay.experiment.experiment import Experiment
from assay.experiment.stage_tables import GrpoStage
from assay.lab.check.all_checks import idle_clip


def told(**settings: object) -> list[Finding]:
    stage = {"method": "grpo", "data": "d", "steps": 4, "prompts": 4, "reward": "accuracy"}
    data = {"d": {"source": "path:d.jsonl", "format": "messages"}}
    spec = {"name": "x", "task": "math", "data": data, "stage": {"rl": stage | settings}}
    made = Experiment.model_validate(spec).stage["rl"]
    assert isinstance(made, GrpoStage)
    return [each for each in idle_clip("stage.rl", made) if isinstance(each, Finding)]


@pytest.mark.parametrize(
    "own",
    [
        *({"algorithm": name} for name in ("dapo", "gspo", "cispo")),
        *({"loss": "sapo"}, {"clip": {"high": 0.3}}, {"clip": {"dual": 3.0}}),
    ],
    ids=str,
)
def test_a_loss_or_clip_of_its_own_is_idle_with_one_update_for_each_rollout(own) -> None:
    (found,) = told(**own)
    assert found.severity == "warning" and "plain policy gradient" in found.what
    assert not told(**own, updates={"minibatches": 2})
    assert not told(**own, updates={"epochs": 2})


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo", "reinforce_pp", "egpo", "trl_grpo"])
def test_an_algorithm_whose_own_is_no_clip_loses_nothing_by_one_update(name: str) -> None:
    assert told(algorithm=name) == []


def test_the_ratio_of_stored_candidates_is_to_the_start_and_not_1() -> None:
    assert told(algorithm="dapo", candidates="stored", reward=None) == []
