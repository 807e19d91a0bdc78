"""Warns of settings that are allowed but seldom intended: learning rates, temperatures, few items.

Also compares rows taken from the start of a source with the rest: lengths, turns and calls.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from assay.data.hashing import canonical_json
from assay.data.row import Row
from assay.data.splits import conversation_of
from assay.data.tools import function_names
from assay.errors import Finding
from assay.experiment.stage_tables import GrpoStage, StageSpec
from assay.experiment.training_settings import LoraAdapt
from assay.judge.families import holm
from assay.judge.power import minimum_detectable_difference
from assay.judge.subset import Unlike, names_unlike, values_unlike
from assay.lab.check.subject import Number, Seen, Subject
from assay.lab.setup.prepare import load_rows
from assay.lab.setup.stage_methods import most
from assay.lab.setup.tool_stage import translations
from assay.rl.losses import LOSSES
from assay.rl.presets import PRESETS
from assay.rl.signal import may_drop
from assay.tasks.task import BenchmarkOptions, benchmark, made_source

CHANCE = 0.01
"""The share of random subsets that may be as far from the rest as an unusual one."""


@dataclass(frozen=True, slots=True)
class Gap:
    """One way in which a subset may differ from the rest."""

    name: str
    words: str
    found: Unlike


def unlike(place: str, rows: Sequence[Row], count: int) -> Seen:
    """The differences between the first rows and the others, conversation by conversation.

    A conversation that was expanded into several rows is judged by the last of them, which has the
    most of it.
    """
    size = len({conversation_of(row) for row in rows[:count]})
    talks = list({conversation_of(row): row for row in rows}.values())
    if size == len(talks):
        return
    gaps = list(gaps_of(talks, size))
    adjusted = holm([gap.found.p_value for gap in gaps])
    for gap in gaps:
        yield Number(place, f"first_rows_distance: {gap.name}", gap.found.distance)
    strange = min(adjusted) < CHANCE
    said = ", and they are not like the others" if strange else ""
    yield Finding(
        "warning" if strange else "note",
        f"{place}: the first {count} of {len(rows)} rows are taken{said}",
        "; ".join(
            f"{gap.words} (distance {gap.found.distance:.2f}; {p_value:.1%} of random ones as far)"
            for gap, p_value in zip(gaps, adjusted, strict=True)
        ),
        'take them at random: how = "random"' if strange else "nothing, if their order is random",
    )


def gaps_of(talks: Sequence[Row], size: int) -> Iterator[Gap]:
    """Lengths in characters, answers in a conversation, and functions, each against the rest."""
    for name, unit, values in (
        ("length", "characters", [characters(row) for row in talks]),
        ("turns", "assistant messages", [roles(row).count("assistant") for row in talks]),
    ):
        first, rest = values[:size], values[size:]
        means = [sum(part) / len(part) for part in (first, rest)]
        words = f"{means[0]:,.1f} {unit} on average, the others {means[1]:,.1f}"
        yield Gap(name, words, values_unlike(first, rest))
    calls = [Counter(c.name for m in row.messages for c in m.tool_calls) for row in talks]
    what = "called"
    if not any(calls):
        calls, what = [Counter(function_names(row.tools)) for row in talks], "described"
    if any(calls):
        have, others = (len(set().union(*part)) for part in (calls[:size], calls[size:]))
        words = f"{have} functions {what}, by the others {others}"
        yield Gap("functions", words, names_unlike(calls, size))


def roles(row: Row) -> list[str]:
    """Who says each message."""
    return [message.role for message in row.messages]


def characters(row: Row) -> int:
    """Characters of a row with its tools and calls: tokens are not needed to see a shift."""
    said = sum(len(message.content) + len(message.reasoning) for message in row.messages)
    calls = [dict(call.arguments) for message in row.messages for call in message.tool_calls]
    return said + len(canonical_json([calls, list(row.tools)]))


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
    yield from not_run_here(subject)
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


def not_run_here(subject: Subject) -> Seen:
    """Benchmarks that lack a part on this machine."""
    for name, evaluation in subject.session.evaluations.items():
        if why := evaluation.record.missing:
            yield Finding(
                "warning",
                f"evaluate.{name}: {evaluation.record.benchmark} cannot be run here",
                why,
                "get what is missing; else its score is N/A, and an average that needs it too",
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
    """Subsets taken from the start of a source, compared with the rest of it."""
    session = subject.session
    for name, spec in session.experiment.data.items():
        if spec.take is not None and spec.take.rows is not None and spec.take.how == "first":
            # The first rows are taken of those that were not dropped before.
            if made_source(session.task, spec.source) is not None:
                continue  # its rows are those of another set
            loaded = load_rows(spec, session.task, session.run.root)
            dropped = session.sets[name].dropped.items()
            gone = {id_ for why, ids in dropped if why not in loaded.dropped for id_ in ids}
            left = [row for row in loaded.rows if row.id not in gone]
            yield from unlike(f"data.{name}", left, spec.take.rows)
    for name, spec in session.experiment.evaluate.items():
        if spec.take is not None and spec.take.how == "first" and spec.benchmark is not None:
            options = BenchmarkOptions(spec.options, session.run.root)
            made = benchmark(session.task, spec.benchmark, options)
            yield from unlike(f"evaluate.{name}", made.items, spec.take.rows)


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
