"""Checkpoints and measurements come every so many steps or epochs, and after the last step."""

import pytest
from pydantic import ValidationError

from assay.experiment.stage_tables import GrpoStage, SftStage, due_steps
from assay.experiment.training_settings import EveryEpochs


def sft(**length: int) -> SftStage:
    return SftStage.model_validate({"method": "sft", "data": "x", "batch": 4, **length})


@pytest.mark.parametrize(
    ("every", "due"),
    [
        (None, {7}),
        (3, {3, 6, 7}),
        (EveryEpochs(epochs=1), {3, 5, 7}),
        (EveryEpochs(epochs=2), {5, 7}),
    ],
)
def test_the_steps_of_a_stage_of_7_with_4_of_10_rows(
    every: int | EveryEpochs | None, due: set[int]
) -> None:
    assert due_steps(every, sft(steps=7), 10) == due


def test_epochs_end_at_the_step_that_visits_their_last_row() -> None:
    for rows in range(1, 20):
        ends = due_steps(EveryEpochs(epochs=1), sft(epochs=3), rows)
        assert ends == {-(-rows * epoch // 4) for epoch in (1, 2, 3)}


def test_every_method_can_be_validated_on_rows_that_it_does_not_train_on() -> None:
    table = {"method": "grpo", "data": "x", "steps": 1, "prompts": 2, "reward": "r"}
    stage = GrpoStage.model_validate({**table, "validation": "x.dev"})
    assert stage.reads == ("x", "x.dev")
    with pytest.raises(ValidationError, match="these rows are trained on"):
        GrpoStage.model_validate({**table, "validation": "x"})
