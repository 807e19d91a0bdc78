"""Checks an axis of checkpoints: values that can be one, and that every run will have and measure.

Such an axis makes no runs: the checkpoints of one run are several points of a search. Which
checkpoint a value means in a finished run is found in `matrix.units`.
"""

from collections.abc import Sequence

from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.experiment.experiment import Experiment
from assay.experiment.stage_tables import StageSpec
from assay.experiment.training_settings import EveryEpochs

Value = str | int | float
Refusal = tuple[str, str]
"""What is wrong, and what to write."""


def value_refusal(key: str, values: Sequence[Value]) -> Refusal | None:
    """Why a value cannot be a checkpoint, a step or an epoch; None where all can."""
    for value in values:
        if key == "checkpoint":
            reference = parse_checkpoint(str(value))
            if reference is None or reference.which == "all":
                return (
                    f"{value!r} is no single checkpoint",
                    "write base, STAGE.last or STAGE.step-N",
                )
        elif type(value) is not int and (key == "step" or type(value) is not float):
            return f"{value!r} is no number of {key}s", f"write {key} = [3, 6]"
        elif value <= 0:
            return f"{value!r} is not after any training", "write numbers above 0"
    return None


def unmeasured(
    key: str, values: Sequence[Value], experiment: Experiment, evaluations: Sequence[str]
) -> Refusal | None:
    """Why a value will have no record: no evaluation of it, or no checkpoint there."""
    for name in evaluations:
        texts = experiment.evaluate[name].checkpoints
        stages = [text.removesuffix(".all") for text in texts if text.endswith(".all")]
        if key == "checkpoint":
            lacking = [v for v in values if v not in texts and str(v).split(".")[0] not in stages]
        else:
            lacking = [] if stages else list(values)
        if lacking:
            stage = stages[0] if stages else next(iter(experiment.stage), "STAGE")
            fix = f'write evaluate.{name}.checkpoints = ["{stage}.all"]'
            return f"{name} does not measure {key} {lacking[0]}", fix
        for stage in stages[:1]:
            problem = _no_checkpoint(key, values, stage, experiment.stage[stage])
            if problem is not None:
                return problem
    return None


def _no_checkpoint(
    key: str, values: Sequence[Value], stage: str, spec: StageSpec
) -> Refusal | None:
    """Why a stage has no checkpoint at a step or an epoch, as far as its table says."""
    last = spec.steps if key == "step" else spec.epochs
    every = spec.checkpoint_every
    for value in values if key != "checkpoint" else ():
        assert not isinstance(value, str)
        if last is not None and value > last:
            return f"stage {stage} ends after {key} {last}", f"write at most {last}"
        wanted = f"{{ epochs = {value} }}" if key == "epoch" else f"{value}"
        fix = f"write stage.{stage}.checkpoint_every = {wanted}"
        if every is None and value != last:
            return f"stage {stage} has no checkpoint before its last step", fix
        period = every.epochs if isinstance(every, EveryEpochs) else every
        comparable = isinstance(every, EveryEpochs) == (key == "epoch")
        if period is not None and comparable and value % period and value != last:
            return f"stage {stage} has no checkpoint at {key} {value}", fix
    return None
