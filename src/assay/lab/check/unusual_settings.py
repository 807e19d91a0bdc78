"""Settings that are allowed and seldom meant: learning rates, temperatures, few items, subsets."""

from assay.experiment.stage_tables import GrpoStage, StageSpec
from assay.experiment.training_tables import LoraAdapt
from assay.judge.findings import Finding
from assay.judge.power import minimum_detectable_difference
from assay.lab.check.subject import Seen, Subject
from assay.lab.check.unlike_subsets import unlike
from assay.lab.setup.prepare import load_rows
from assay.rl.presets import PRESETS
from assay.rl.signal import may_drop
from assay.tasks.task import BenchmarkOptions, benchmark

COLD = 0.3
"""Below this temperature the completions of a group are nearly the same."""
LORA_LOW, FULL_HIGH = 2e-6, 1e-4
FEW_ITEMS = 100
DISCORDANCE = 0.2
"""Share of items that change between two checkpoints, to say what few items can show."""


def smells(subject: Subject) -> Seen:
    """Every stage, reporting evaluation and subset."""
    for name, stage in subject.session.experiment.stage.items():
        yield from rates(f"stage.{name}", stage)
        if isinstance(stage, GrpoStage):
            yield from groups(f"stage.{name}", stage)
    yield from small_reports(subject)
    yield from first_subsets(subject)


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
    """Groups that can hardly differ, and groups without signal that are trained on all the same."""
    temperature = stage.sampling.temperature
    if temperature < COLD:
        yield Finding(
            "warning",
            f"{place}: the completions of a group will be nearly the same",
            f"temperature {temperature:g}",
            "GRPO learns from differences inside a group: use a temperature near 1",
        )
    advantage = stage.advantage or PRESETS[stage.algorithm].advantage
    droppable = may_drop(
        advantage=advantage, kl_coef=stage.kl.coef, entropy_coef=stage.entropy_coef
    )
    if not droppable or stage.drop_without_signal is False:
        why = f"kl.coef {stage.kl.coef:g}, entropy_coef {stage.entropy_coef:g}"
        why += f", advantage {advantage!r}, drop_without_signal {stage.drop_without_signal}"
        yield Finding(
            "note",
            f"{place}: groups of equal rewards are kept and cost a full update",
            why,
            "nothing, if that is meant; without KL, entropy and whitening they can be left out",
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
    """Subsets taken from the start of a source, against the whole of it."""
    session = subject.session
    for name, spec in session.experiment.data.items():
        if spec.take is not None and spec.take.how == "first":
            # The first rows are taken of those that were not dropped before.
            loaded = load_rows(spec, session.task, session.run.root)
            dropped = session.sets[name].dropped.items()
            gone = {id_ for why, ids in dropped if why not in loaded.dropped for id_ in ids}
            left = [row for row in loaded.rows if row.id not in gone]
            yield from unlike(f"data.{name}", left, spec.take)
    for name, spec in session.experiment.evaluate.items():
        if spec.take is not None and spec.take.how == "first" and spec.benchmark is not None:
            options = BenchmarkOptions(spec.options, session.run.root)
            made = benchmark(session.task, spec.benchmark, options)
            yield from unlike(f"evaluate.{name}", made.items, spec.take)
