"""How much work an experiment asks for: steps, tokens, checkpoints, weights that are trained."""

from dataclasses import dataclass

import torch
from transformers import AutoModelForCausalLM

from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.experiment.experiment import Experiment
from assay.experiment.stage_tables import SamplingStage, SftStage, StageSpec, steps_of
from assay.lab.check.subject import Subject, samples
from assay.lab.setup.checkpoint_models import adapt
from assay.lab.setup.evaluation import Evaluation
from assay.lab.setup.prepare import find_part
from assay.models.adapt import Adaptation


@dataclass(frozen=True, slots=True)
class StageWork:
    """The sizes of a stage, from the lengths of its gold answers."""

    steps: int
    prompts: int
    """Prompts of one step; the rows of one step for SFT."""
    group: int
    """Answers to each of them."""
    prompt: float
    """Mean tokens of a prompt."""
    prompt_most: int
    answer: float
    """Mean tokens of a gold answer."""
    answer_most: int
    """Tokens of the longest answer: `max_tokens` where answers are sampled."""

    def tokens(self, answer: float) -> float:
        """Tokens of one step's training passes, prompts once, with answers of this length."""
        return self.prompts * (self.prompt + self.group * answer)


def stage_work(subject: Subject, stage: StageSpec) -> StageWork | None:
    """The work of a stage; None where no row has a gold answer to measure."""
    golds = subject.golds_of_data(stage.data, stage.rendering).answers
    if not golds:
        return None
    steps = steps_of(stage, len(find_part(subject.session.sets, stage.data)))
    longest = max(len(gold.actions) for gold in golds)
    return StageWork(
        steps=steps,
        prompts=stage.batch if isinstance(stage, SftStage) else stage.prompts,
        group=stage.group if isinstance(stage, SamplingStage) else 1,
        prompt=sum(len(gold.prompt) for gold in golds) / len(golds),
        prompt_most=max(len(gold.prompt) for gold in golds),
        answer=sum(len(gold.actions) for gold in golds) / len(golds),
        answer_most=stage.sampling.max_tokens if samples(stage) else longest,
    )


def validation_tokens(subject: Subject, stage: StageSpec, steps: int) -> int:
    """Tokens that the measurements of a stage's validation loss go over."""
    if not isinstance(stage, SftStage) or stage.validation is None:
        return 0
    golds = subject.golds_of_data(stage.validation, stage.rendering).answers
    looks = -(-steps // (stage.validation_every or steps))
    return looks * sum(len(gold.context) + len(gold.actions) for gold in golds)


def checkpoint_count(stage: StageSpec, steps: int) -> int:
    """Checkpoints that a stage leaves: every so many steps, and after the last."""
    every = stage.checkpoint_every
    return 1 if every is None else -(-steps // every)


def asked_items(experiment: Experiment, evaluation: Evaluation, subject: Subject) -> list[int]:
    """How many items each checkpoint is asked that an evaluation measures; one that chooses looks
    at the starts as well."""
    references = [parse_checkpoint(text) for text in evaluation.spec.checkpoints]
    stages = {reference.stage for reference in references if reference and reference.stage}
    items, fewer = len(evaluation.items), evaluation.spec.fewer
    asked = [items] * (len(stages) if evaluation.spec.role == "select" else 0)
    for reference in references:
        count = 1
        if reference is not None and reference.stage is not None and reference.which == "all":
            stage = experiment.stage[reference.stage]
            rows = len(find_part(subject.session.sets, stage.data))
            count = checkpoint_count(stage, steps_of(stage, rows))
        asked += [fewer.get((reference and reference.stage) or "base", items)] * count
    return asked


def adaptation_of(subject: Subject, stage: StageSpec) -> Adaptation:
    """What of the model the stage trains, found on a model without storage.

    Raises LoraTargetError, FreezePatternError and NothingToTrain as the stage itself would.
    """
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(subject.session.base.config)
        return adapt(model, stage)[1]
