"""Warns of settings that are allowed but seldom intended: learning rates, temperatures, items."""

from assay.errors import Finding
from assay.experiment.stage_tables import GrpoStage, StageSpec
from assay.experiment.training_settings import LoraAdapt
from assay.judge.power import minimum_detectable_difference
from assay.lab.check.subject import Seen, Subject
from assay.lab.setup.tool_stage import translations
from assay.rl.losses import LOSSES
from assay.rl.presets import PRESETS
from assay.rl.signal import may_drop
from assay.train.grpo import most

COLD = 0.3
"""Below this temperature the completions of a group are nearly the same."""
LORA_LOW, FULL_HIGH = 2e-6, 1e-4
FEW_ITEMS = 100
DISCORDANCE = 0.2
"""Share of items that change between two checkpoints, to say what few items can show."""


def smells(subject: Subject) -> Seen:
    """Every stage, reporting evaluation and subset."""
    for name, stage in subject.session.experiment.stage.items():
        if isinstance(stage, GrpoStage):
            yield from groups(f"stage.{name}", stage)
            yield from idle_clip(f"stage.{name}", stage)
    yield from small_reports(subject)
    yield from first_subsets(subject)


def learning_rates(subject: Subject) -> Seen:
    """The learning rate of every stage of a language model."""
    for name, stage in subject.session.experiment.stage.items():
        yield from rates(f"stage.{name}", stage)


def rates(place: str, stage: StageSpec) -> Seen:
    """A learning rate that belongs to the other way of training."""
    rate = stage.optimizer.lr
    lora = isinstance(stage.adapt, LoraAdapt)
    if lora and rate <= LORA_LOW:
        what, fix = "a learning rate for full training with LoRA", "LoRA wants about 1e-4"
    elif not lora and rate >= FULL_HIGH:
        what, fix = "a learning rate for LoRA with full training", "full training wants about 1e-5"
    else:
        return
    yield Finding("warning", f"{place}: {what}", f"lr = {rate:g}", fix + " or less" * (not lora))


def groups(place: str, stage: GrpoStage) -> Seen:
    """Groups with nearly equal completions, and groups without signal that are trained on
    anyway."""
    temperature = most(stage.sampling.temperature)
    if temperature < COLD:
        yield Finding(
            "warning",
            f"{place}: the completions of a group will be nearly the same",
            f"temperature {temperature:g}",
            "GRPO learns from differences inside a group: use a temperature near 1",
        )
    advantage = stage.advantage or PRESETS[stage.algorithm].advantage
    droppable = may_drop(
        advantage=advantage, kl_coef=most(stage.kl.coef), entropy_coef=stage.entropy_coef
    )
    if not droppable or stage.drop_without_signal is False:
        why = f"kl.coef {most(stage.kl.coef):g}, entropy_coef {stage.entropy_coef:g}"
        why += f", advantage {advantage!r}, drop_without_signal {stage.drop_without_signal}"
        yield Finding(
            "note",
            f"{place}: groups of equal rewards are kept and cost a full update",
            why,
            "nothing, if that is meant; without KL, entropy and whitening they can be left out",
        )


def idle_clip(place: str, stage: GrpoStage) -> Seen:
    """A loss or clip that is the preset's or the stage's own, where every ratio is 1: the gradient
    is then the plain policy gradient's, whatever the loss."""
    preset = PRESETS[stage.algorithm]
    loss = stage.loss or preset.loss
    given = [name for name, value in stage.clip if value is not None]
    low, high = (
        getattr(stage.clip, end) or getattr(preset, f"clip_{end}") for end in ("low", "high")
    )
    own = stage.loss is not None or given or low != high
    several = stage.updates.minibatches * stage.updates.epochs > 1
    if own and LOSSES[loss].reads and not (several or stage.stored):
        yield Finding(
            "warning",
            f"{place}: with one update for each rollout the loss {loss!r} and its clip do nothing: "
            "it trains by the plain policy gradient",
            f"algorithm {stage.algorithm!r}, updates {{ minibatches = 1, epochs = 1 }}: every "
            "ratio is 1, inside any bounds",
            "make several updates of a rollout (updates.minibatches or updates.epochs), or read "
            "the result as that of the advantage and the average alone",
        )


def small_reports(subject: Subject) -> Seen:
    """Reports on so few items that only a large difference shows."""
    for name, evaluation in subject.session.evaluations.items():
        items = len(evaluation.items)
        if evaluation.spec.role != "report" or items >= FEW_ITEMS:
            continue
        seen = minimum_detectable_difference(items, DISCORDANCE)
        shown = "no difference at all" if seen is None else f"differences from {seen:.0%} on"
        yield Finding(
            "note",
            f"evaluate.{name}: {items} items show {shown}",
            f"at 80% power, where a share of {DISCORDANCE:.0%} of the items changes",
            f"smaller differences will be undecided; take {FEW_ITEMS} items or more",
        )


def first_subsets(subject: Subject) -> Seen:
    """Rows that are taken from the start of a source, whose order may mean something."""
    experiment = subject.session.experiment
    for table in ("data", "evaluate"):
        for name, spec in getattr(experiment, table).items():
            if spec.take is not None and spec.take.rows is not None and spec.take.how == "first":
                yield Finding(
                    "note",
                    f"{table}.{name}: the first {spec.take.rows} rows are taken",
                    "a source that is sorted has others at its end",
                    'nothing, if their order is random; else take them at random: how = "random"',
                )


def other_trainers(subject: Subject) -> Seen:
    """What is not the same in the tools that train stages."""
    for each, made in translations(subject.session):
        for one in made.differences:
            yield Finding(
                "note",
                f"stage.{each.name}.{one.key}: {each.trainer.title} {one.what}",
                "allowed by name" if one.allowed else "another definition",
                "nothing; the run's page lists it",
            )
