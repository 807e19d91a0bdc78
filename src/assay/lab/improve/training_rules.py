"""Rules about how stages were trained: health findings, KL, frozen weights, tensors that were lost.

Each rule is a generator over the evidence of a run. What is unhealthy is decided in
`judge.health_checks`; here it becomes a change with its value, cost and risk.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors import safe_open

from assay.errors import Finding
from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.experiment.stage_tables import GrpoStage
from assay.judge.health_rules import RULES, WINDOW
from assay.judge.improvements import Aim, Cost, Fact, Improvement, Stake, Unit, loss_at_stake
from assay.judge.trends import trend
from assay.lab.improve.result_rules import against_start, guarded
from assay.lab.improve.run_evidence import RunEvidence, StageEvidence
from assay.runs.run_directory import RunDirectory

STILL = 0.01
"""Mean KL to the stage's start before any update, above which the two were not computed alike."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a health rule is about."""

    aim: Aim
    unit: Unit = "steps"
    share: bool = False
    """Whether the first metric of the rule is the share at stake; else it is the stage's steps."""


HEALTH: Mapping[str, Meaning] = {
    "truncated": Meaning("signal", "answers", share=True),
    "abstentions": Meaning("correct", "answers", share=True),
    "zero_gradient": Meaning("correct"),
    "non_finite_gradient": Meaning("correct"),
    "rollout_gap": Meaning("correct"),
    "entropy_collapse": Meaning("signal"),
    "length_explosion": Meaning("signal"),
    "kl_blow_up": Meaning("protect"),
    "stale_reference": Meaning("signal"),
    "repeated_samples": Meaning("signal", "answers", share=True),
    "alike_programs": Meaning("signal"),
    "reward_without_gain": Meaning("protect"),
    "format_falling": Meaning("signal"),
    "stagnant_reward": Meaning("explore"),
    "fallbacks": Meaning("correct", "answers", share=True),
    "rising_fallbacks": Meaning("correct", "answers", share=True),
    "loss_parts": Meaning("correct"),
    "fallback_contradiction": Meaning("correct"),
    "impossible_share": Meaning("correct"),
    "signal_without_spread": Meaning("correct"),
}
"""Health rules that ask for a change of the training; `no_signal` is what tied groups say."""


def health(evidence: RunEvidence) -> Iterator[Improvement]:
    """What the health rules find in the stages."""
    steps = sum(len(stage.lines) for stage in evidence.stages.values())
    for stage in evidence.stages.values():
        for found in stage.health:
            if found.code in HEALTH:
                yield _unhealthy(evidence, stage, found, len(stage.lines) / steps)


def _unhealthy(
    evidence: RunEvidence, stage: StageEvidence, found: Finding, steps: float
) -> Improvement:
    meaning = HEALTH[found.code]
    share = _recent(stage, RULES[found.code].metrics[0]) if meaning.share else steps
    figures = {k: v for k, v in found.values.items() if k not in ("template", "advice")}
    facts = (
        Fact(f"finding.{found.code}", {}, "metrics.jsonl"),
        Fact(f"evidence.{found.values['template']}", figures, "metrics.jsonl"),
    )
    return Improvement(
        found.code,
        stage.name,
        tuple(f"fix.{key}" for key in found.values["advice"]),
        meaning.aim,
        facts,
        Stake(min(1.0, share), meaning.unit, at_most=True),
        Cost("train", stage.seconds),
        guarded(evidence, stage.name),
    )


def _recent(stage: StageEvidence, metric: str) -> float:
    values = [line[metric] for line in stage.lines if line.get(metric) is not None][-WINDOW:]
    return sum(values) / len(values) if values else 0.0


def kl_returns(evidence: RunEvidence) -> Iterator[Improvement]:
    """GRPO stages whose KL falls: the policy goes back to its reference, updates are undone."""
    for stage in evidence.stages.values():
        lines = [line for line in stage.lines if line.get("kl") is not None]
        found = trend([line["step"] for line in lines], [line["kl"] for line in lines])
        if not isinstance(stage.spec, GrpoStage) or found is None or not found.falls:
            continue
        if found.start <= 0:
            continue
        figures = {
            "first": f"{found.start:.4g}",
            "last": f"{max(found.end, 0.0):.4g}",
            "slope": f"{found.slope:+.3g}",
            "low": f"{found.interval.low:+.3g}",
            "high": f"{found.interval.high:+.3g}",
            "reference": stage.spec.kl.reference,
            "estimator": stage.spec.kl.estimator,
        }
        undone = min(1.0, (found.start - max(found.end, 0.0)) / found.start)
        yield stage.improvement(
            "kl_returns",
            "signal",
            Fact("improve_evidence.kl_returns", figures, "metrics.jsonl"),
            share=undone,
            unit="movement",
        )


def kl_at_start(evidence: RunEvidence) -> Iterator[Improvement]:
    """GRPO stages with a KL to their own start before any update: old and new log-probs were not
    computed alike, by dropout in one of them for example."""
    for stage in evidence.stages.values():
        spec, known = stage.spec, [line for line in stage.lines if line.get("kl") is not None]
        if not isinstance(spec, GrpoStage) or not known or known[0]["step"] != 1:
            continue
        once = spec.updates.minibatches * spec.updates.epochs == 1
        first, mean = known[0]["kl"], sum(line["kl"] for line in known) / len(known)
        if not once or spec.kl.reference != "stage_start" or first <= STILL:
            continue
        figures = {"first": f"{first:.4g}", "mean": f"{mean:.4g}"}
        yield stage.improvement(
            "kl_at_start",
            "correct",
            Fact("improve_evidence.kl_at_start", figures, "metrics.jsonl"),
            share=min(1.0, first / mean),
            unit="movement",
        )


def freeze(evidence: RunEvidence) -> Iterator[Improvement]:
    """GRPO stages that train every weight and are shown worse than their start."""
    for stage in evidence.stages.values():
        found = against_start(evidence, stage)
        worse = {place: each for place, each in found.items() if each.verdict == "worse"}
        if not isinstance(stage.spec, GrpoStage) or stage.spec.adapt.kind != "full" or not worse:
            continue
        place, lost = min(worse.items(), key=lambda pair: pair[1].difference)
        scale = 100.0 if lost.interval.share else 1.0
        figures = {"difference": f"{scale * lost.difference:+.1f}", "items": str(lost.items)}
        yield stage.improvement(
            "freeze",
            "explore",
            Fact("improve_evidence.freeze", figures, place),
            share=loss_at_stake(lost).share,
            unit="score",
            at_most=True,
        )


def load_strictly(evidence: RunEvidence) -> Iterator[Improvement]:
    """Stages whose checkpoints lack tensors of the checkpoint that they started from."""
    for stage in evidence.stages.values():
        if not stage.last or not stage.start:
            continue
        found = lost_tensors(evidence.run, stage.start, stage.last)
        if found is None or not (found.missing or found.unexpected):
            continue
        names = [*found.missing, *found.unexpected]
        figures = {
            "start": stage.start,
            "last": stage.last,
            "missing": str(len(found.missing)),
            "unexpected": str(len(found.unexpected)),
            "first": names[0],
        }
        yield stage.improvement(
            "load_strictly",
            "protect",
            Fact("improve_evidence.lost_tensors", figures, f"checkpoints/{stage.name}"),
            share=found.share,
            unit="weights",
        )


Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class LostTensors:
    """In what two checkpoints differ that should hold the same tensors."""

    missing: tuple[str, ...]
    """Of the start, and not in the later one, or there in another shape."""
    unexpected: tuple[str, ...]
    """In the later one alone."""
    share: float
    """Share of the start's values that the missing ones hold; of the later one's where none is."""


def lost_tensors(run: RunDirectory, start: str, last: str) -> LostTensors | None:
    """The tensors that two checkpoints do not share; None where one is not there, or where they are
    stored differently: an adapter beside a whole model."""
    before, after = _shapes(run, start), _shapes(run, last)
    if before is None or after is None or before.keys() != after.keys():
        return None
    return differing(
        {k: v for each in before.values() for k, v in each.items()},
        {k: v for each in after.values() for k, v in each.items()},
    )


def differing(before: Shapes, after: Shapes) -> LostTensors:
    """In what two sets of shapes differ."""
    missing = tuple(name for name in before if before[name] != after.get(name))
    unexpected = tuple(name for name in after if name not in before)
    names, of = (missing, before) if missing else (unexpected, after)
    total = sum(map(math.prod, of.values()))
    lost = sum(math.prod(of[name]) for name in names)
    return LostTensors(missing, unexpected, lost / total if total else 0.0)


def _shapes(run: RunDirectory, checkpoint: str) -> dict[str, Shapes] | None:
    """The shapes of a trained checkpoint's tensors by the kind of file."""
    reference = parse_checkpoint(checkpoint)
    if reference is None or reference.stage is None or not reference.step:
        return None
    folder = run.checkpoint(reference.stage, reference.step)
    files = sorted(folder.glob("*.safetensors"))
    # By the name of a file without the number of its part.
    names = [file.name.partition("-")[0].removesuffix(".safetensors") for file in files]
    return {name: _read(file) for name, file in zip(names, files, strict=True)} or None


def _read(file: Path) -> Shapes:
    with safe_open(file, framework="np") as tensors:
        return {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
