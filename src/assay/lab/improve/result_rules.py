"""Rules about what a run has reached: stages that did not help, checkpoints that were passed by,
differences that stay undecided, checkpoints that cannot differ.

Each rule is a generator over the evidence of a run. Comparisons and corrections are `judge`'s.
"""

from collections.abc import Iterator, Mapping

from assay.compare.arm import agreement
from assay.compare.selection_pairs import SelectionPair, picked
from assay.experiment.stage_tables import GrpoStage
from assay.judge.families import adjust_family
from assay.judge.improvements import (
    Cost,
    Fact,
    Improvement,
    Risk,
    Stake,
    loss_at_stake,
    share_of_range,
)
from assay.judge.paired import compare
from assay.judge.scores import ItemScores, on_one_scale
from assay.judge.selection import corrected_for_looks
from assay.judge.trends import trend
from assay.judge.verdict import Comparison
from assay.lab.improve.run_evidence import Measured, RunEvidence, StageEvidence

FREE = Cost("settings", 0.0)
LOSS = "validation_loss"


def keep_start(evidence: RunEvidence) -> Iterator[Improvement]:
    """GRPO stages that no evaluation shows better than their start, and others that one shows no
    better: the start is the result."""
    for stage in evidence.stages.values():
        found = against_start(evidence, stage)
        verdicts = {each.verdict for each in found.values()}
        enough = {"undecided", "worse", "equivalent"}
        if not isinstance(stage.spec, GrpoStage):
            enough = {"worse", "equivalent"}
        if not found or "better" in verdicts or not verdicts & enough:
            continue
        stakes = [loss_at_stake(each) for each in found.values()]
        yield Improvement(
            "keep_start",
            stage.name,
            ("improve_what.keep_start",),
            "protect",
            tuple(_verdict(stage, name, evidence, each) for name, each in found.items()),
            max(stakes, key=lambda stake: (not stake.at_most, stake.share)),
            FREE,
            "none",
        )


def against_start(evidence: RunEvidence, stage: StageEvidence) -> dict[str, Comparison]:
    """A stage's last checkpoint against its start on every evaluation that measured both, by the
    evaluation's folder, corrected as one family."""
    pairs = {
        each.place: (each.arms[stage.start].scores, each.arms[stage.last].scores)
        for each in evidence.measured
        if stage.start in each.arms and stage.last in each.arms
    }
    return dict(adjust_family({place: _compared(*pair) for place, pair in pairs.items()}))


def _compared(control: ItemScores, other: ItemScores) -> Comparison:
    before, after = on_one_scale(control, other)
    return compare(before, after)


def _verdict(stage: StageEvidence, place: str, evidence: RunEvidence, found: Comparison) -> Fact:
    (name,) = (each.record.name for each in evidence.measured if each.place == place)
    figures = {"start": stage.start, "last": stage.last, "evaluation": name, **_figures(found)}
    return Fact("improve_evidence.verdict", figures, place)


def _figures(found: Comparison) -> dict[str, str]:
    """A comparison as text, in points where scores run from 0 to 1."""
    scale = 100.0 if found.interval.share else 1.0
    return {
        "difference": f"{scale * found.difference:+.1f}",
        "low": f"{scale * found.interval.low:+.1f}",
        "high": f"{scale * found.interval.high:+.1f}",
        "items": str(found.items),
        "p": f"{found.adjusted_p:.2g}",
        "verdict": found.verdict,
    }


def take_best(evidence: RunEvidence) -> Iterator[Improvement]:
    """Stages that start from the last checkpoint of another where the gate chose an earlier one."""
    for later in evidence.experiment.stage:
        for stage in evidence.stages.values():
            chosen = stage.selection
            start = evidence.experiment.stage[later].start
            if chosen is None or chosen.checkpoint == stage.last or start != f"{stage.name}.last":
                continue
            scores = {look.name: look.scores for look in stage.looks}
            stake = Stake(0.0, "score", at_most=True)
            if chosen.checkpoint in scores and stage.last in scores:
                stake = loss_at_stake(_compared(scores[chosen.checkpoint], scores[stage.last]))
            begun = evidence.stages.get(later)
            figures = {"later": later, "last": stage.last, "best": chosen.checkpoint}
            yield Improvement(
                "take_best",
                later,
                ("improve_what.take_best",),
                "protect",
                (Fact("improve_evidence.take_best", figures, "selection.json"),),
                stake,
                Cost("train", begun.seconds if begun else None),
                guarded(evidence, later),
            )


def guarded(evidence: RunEvidence, stage: str) -> Risk:
    """The risk of training a stage otherwise: whether the gate looks at its checkpoints."""
    return evidence.stages[stage].risk if stage in evidence.stages else "open"


def stop_early(evidence: RunEvidence) -> Iterator[Improvement]:
    """Stages whose last checkpoint is shown worse on dev items than an earlier one of theirs, and
    stages whose validation loss rises after its lowest value."""
    for stage in evidence.stages.values():
        yield from _past_the_peak(evidence, stage)
        yield from _past_the_lowest(evidence, stage)


def _past_the_peak(evidence: RunEvidence, stage: StageEvidence) -> Iterator[Improvement]:
    own = [look for look in stage.looks if look.step]
    if len(own) < 2:
        return
    peak = max(own[:-1], key=lambda look: (look.scores.mean, -look.step))
    found = corrected_for_looks(_compared(peak.scores, own[-1].scores), len(own) - 1)
    if found.verdict != "worse":
        return
    figures = {"peak": peak.name, "last": own[-1].name, **_figures(found)}
    yield Improvement(
        "stop_early",
        stage.name,
        ("improve_what.stop_early",),
        "protect",
        (Fact("improve_evidence.dev_fell", figures, "evaluations"),),
        loss_at_stake(found),
        FREE,
        "none",
    )


def _past_the_lowest(evidence: RunEvidence, stage: StageEvidence) -> Iterator[Improvement]:
    lines = [line for line in stage.lines if line.get(LOSS) is not None]
    if not lines:
        return
    lowest = min(lines, key=lambda line: line[LOSS])
    after = [line for line in lines if line["step"] >= lowest["step"]]
    found = trend([line["step"] for line in after], [line[LOSS] for line in after])
    if found is None or not found.rises:
        return
    figures = {
        "step": str(lowest["step"]),
        "lowest": f"{lowest[LOSS]:.4g}",
        "last": f"{after[-1][LOSS]:.4g}",
        "at": str(after[-1]["step"]),
    }
    steps = stage.lines[-1]["step"]
    yield stage.improvement(
        "stop_early",
        "protect",
        Fact("improve_evidence.validation_rose", figures, "metrics.jsonl"),
        share=(steps - lowest["step"]) / steps,
        unit="steps",
        at_most=True,
    )


def look_at_dev(evidence: RunEvidence) -> Iterator[Improvement]:
    """GRPO stages that no selecting evaluation looks at: no gate can keep their start."""
    for stage in evidence.stages.values():
        if not isinstance(stage.spec, GrpoStage) or stage.selection or not stage.steps:
            continue
        found = against_start(evidence, stage)
        stakes = [loss_at_stake(each) for each in found.values()]
        whole = Stake(1.0, "steps", at_most=True)
        figures = {"stage": stage.name, "checkpoints": str(len(stage.steps))}
        facts = [Fact("improve_evidence.no_look", figures, "spec.toml")]
        facts += [_verdict(stage, name, evidence, each) for name, each in found.items()]
        yield Improvement(
            "look_at_dev",
            stage.name,
            ("improve_what.look_at_dev",),
            "protect",
            tuple(facts),
            max(stakes, key=lambda stake: stake.share, default=whole),
            Cost("measure", _asking(evidence, 1 + len(stage.steps))),
            "none",
        )


def _asking(evidence: RunEvidence, checkpoints: int) -> float | None:
    """Seconds of asking as many items as the largest evaluation has, of so many checkpoints."""
    known = [(len(m.record.items), m.seconds) for m in evidence.measured if m.seconds is not None]
    items, seconds = max(known, default=(0, 0.0))
    return items * seconds * checkpoints if known else None


def more_items(evidence: RunEvidence) -> Iterator[Improvement]:
    """Undecided differences between a stage and its start that a stated number of items settles."""
    for stage in evidence.stages.values():
        for each in evidence.measured:
            found = against_start(evidence, stage).get(each.place)
            if found is None or found.verdict != "undecided" or not found.items_needed:
                continue
            lacking = max(0, found.items_needed - found.items)
            needed, scores = str(found.items_needed), (found.control_score, found.score)
            share = share_of_range(found.difference, found.interval, *scores)
            fact = _verdict(stage, each.place, evidence, found)
            more = Fact("improve_evidence.needed", {"needed": needed}, each.place)
            yield Improvement(
                "more_items",
                each.record.name,
                ("improve_what.more_items",),
                "measure",
                (fact, more),
                Stake(share, "score", at_most=True),
                Cost("measure", None if each.seconds is None else 2 * lacking * each.seconds),
                "none",
            )


def nothing_changed(evidence: RunEvidence) -> Iterator[Improvement]:
    """Stages whose last checkpoint answers everything that was measured as their start does."""
    steps = sum(len(stage.lines) for stage in evidence.stages.values())
    for stage in evidence.stages.values():
        both = [m for m in evidence.measured if stage.start in m.arms and stage.last in m.arms]
        shares = [agreement(m.arms[stage.start], m.arms[stage.last]) for m in both]
        if not both or any(share != 1.0 for share in shares):
            continue
        held = isinstance(stage.spec, GrpoStage) and bool(stage.spec.kl.coef)
        yield stage.improvement(
            "nothing_changed",
            "signal",
            *(_unchanged(stage, each) for each in both),
            share=len(stage.lines) / steps,
            unit="steps",
            what="loosen_kl" if held else "larger_steps",
        )


def _unchanged(stage: StageEvidence, each: Measured) -> Fact:
    figures = {
        "start": stage.start,
        "last": stage.last,
        "evaluation": each.record.name,
        "answers": str(len(each.arms[stage.last].outputs)),
        "steps": str(len(stage.lines)),
    }
    return Fact("improve_evidence.unchanged", figures, each.place)


def same_picks(evidence: RunEvidence) -> Iterator[Improvement]:
    """Checkpoints that pick the same demonstrations for every query: their scores are one."""
    for each in evidence.measured:
        table = picked([*each.arms.values()]) if each.picks and len(each.arms) > 1 else None
        pairs = [pair for pair in table.pairs if pair.agreement.identical] if table else []
        if not pairs or table is None:
            continue
        share = len(pairs) / len(table.pairs)
        yield Improvement(
            "same_picks",
            each.record.name,
            ("improve_what.same_picks",),
            "correct",
            tuple(_identical(pair, table.uses[pair.control].distinct, each) for pair in pairs),
            Stake(share, "pairs", at_most=False),
            FREE,
            "none",
        )


def _identical(pair: SelectionPair, distinct: int, each: Measured) -> Fact:
    figures: Mapping[str, str] = {
        "control": pair.control,
        "other": pair.other,
        "queries": str(pair.agreement.queries),
        "distinct": str(distinct),
    }
    if pair.changed is None:
        return Fact("improve_evidence.identical", figures, each.place)
    figures = {**figures, "changed": f"{pair.changed:.2%}", "moved": f"{pair.moved:.2g}"}
    return Fact("improve_evidence.identical_weights", figures, each.place)
