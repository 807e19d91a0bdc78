"""Warns of settings that are allowed but seldom intended: learning rates, temperatures, items."""

from assay.errors import Finding
from assay.experiment.stage_tables import GrpoStage
from assay.experiment.training_settings import LoraAdapt
from assay.lab.check.subject import Seen, Subject
from assay.lab.setup.tool_stage import translations
from assay.rl.losses import LOSSES
from assay.rl.signal import may_drop
from assay.train.grpo import algorithm_of, most

COLD = 0.3
"""Below this temperature the completions of a group are nearly the same."""
LORA_LOW, FULL_HIGH = 2e-6, 1e-4


def smells(subject: Subject) -> Seen:
    """Every stage."""
    for name, stage in subject.session.experiment.stage.items():
        if isinstance(stage, GrpoStage):
            yield from groups(f"stage.{name}", stage)
            yield from idle_clip(f"stage.{name}", stage)


def learning_rates(subject: Subject) -> Seen:
    """Learning rates of a language model's stages that belong to the other way of training."""
    for name, stage in subject.session.experiment.stage.items():
        rate, lora = stage.optimizer.lr, isinstance(stage.adapt, LoraAdapt)
        if lora and rate <= LORA_LOW:
            what, fix = "a learning rate for full training with LoRA", "LoRA wants about 1e-4"
        elif not lora and rate >= FULL_HIGH:
            what = "a learning rate for LoRA with full training"
            fix = "full training wants about 1e-5 or less"
        else:
            continue
        yield Finding("warning", f"stage.{name}: {what}", f"lr = {rate:g}", fix)


def groups(place: str, stage: GrpoStage) -> Seen:
    """Groups with nearly equal completions, and groups without signal that are trained on
    anyway."""
    temperature = most(stage.sampling.temperature)
    if temperature < COLD:
        what = f"{place}: the completions of a group will be nearly the same"
        fix = "GRPO learns from differences inside a group: use a temperature near 1"
        yield Finding("warning", what, f"temperature {temperature:g}", fix)
    advantage = algorithm_of(stage).advantage
    droppable = may_drop(
        advantage=advantage, kl_coef=most(stage.kl.coef), entropy_coef=stage.entropy_coef
    )
    if not droppable or stage.drop_without_signal is False:
        why = f"kl.coef {most(stage.kl.coef):g}, entropy_coef {stage.entropy_coef:g}"
        why += f", advantage {advantage!r}, drop_without_signal {stage.drop_without_signal}"
        what = f"{place}: groups of equal rewards are kept and cost a full update"
        fix = "nothing, if that is meant; without KL, entropy and whitening they can be left out"
        yield Finding("note", what, why, fix)


def idle_clip(place: str, stage: GrpoStage) -> Seen:
    """A loss or clip that is the preset's or the stage's own, where every ratio is 1: the gradient
    is then the plain policy gradient's, whatever the loss."""
    algorithm = algorithm_of(stage)
    loss, clip = algorithm.loss, algorithm.clip
    given = [name for name, value in stage.clip if value is not None]
    own = stage.loss is not None or given or clip.low != clip.high
    several = stage.updates.minibatches * stage.updates.epochs > 1
    if own and LOSSES[loss].reads and not (several or stage.stored):
        what = f"{place}: with one update for each rollout the loss {loss!r} and its clip do "
        what += "nothing: it trains by the plain policy gradient"
        told = f"algorithm {stage.algorithm!r}, updates {{ minibatches = 1, epochs = 1 }}: every "
        told += "ratio is 1, inside any bounds"
        fix = "make several updates of a rollout (updates.minibatches or updates.epochs), or read "
        fix += "the result as that of the advantage and the average alone"
        yield Finding("warning", what, told, fix)


def other_trainers(subject: Subject) -> Seen:
    """What is not the same in the tools that train stages."""
    for each, made in translations(subject.session):
        for one in made.differences:
            what = f"stage.{each.name}.{one.key}: {each.trainer.title} {one.what}"
            told = "allowed by name" if one.allowed else "another definition"
            yield Finding("note", what, told, "nothing; the run's page lists it")
