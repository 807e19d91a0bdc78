"""Rules about how stages were trained: health, KL, frozen weights, lost tensors, and their groups.

A group of equal rewards teaches nothing: its advantages are 0. Each rule is a generator over the
evidence of a run. What is unhealthy is decided in `judge.health_checks`; here it becomes a change
with its value, cost and risk.
"""

import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors import safe_open

from assay.errors import Finding
from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.experiment.stage_tables import GrpoStage, RceStage
from assay.judge.group_health import CandidateGroup
from assay.judge.health_rules import RULES, WINDOW
from assay.judge.identity import FALLBACK, MANY_FALLBACKS
from assay.judge.improvements import Aim, Cost, Fact, Improvement, Stake, Unit, loss_at_stake
from assay.judge.trends import trend
from assay.lab.improve.result_rules import against_start, guarded
from assay.lab.improve.run_evidence import Candidate, Group, RunEvidence, StageEvidence
from assay.runs.run_directory import RunDirectory
from assay.tasks.reward_table import CORRECT

MOST_TIED = 0.5
"""Share of groups of equal rewards from which on they are the first thing to change."""
APART = 0.01
"""How far two values of a number are apart in a group to tell candidates apart."""
FLAT = 0.95
"""Effective number of candidates of a group, as a share of all, above which none leads."""


def is_tied(group: Group) -> bool:
    """Whether all known rewards of a group are equal."""
    return not CandidateGroup(tuple(known_rewards(group)), positive=0).has_signal


def tied_groups(evidence: RunEvidence) -> Iterator[Improvement]:
    """Stages of which at least half of the groups have equal rewards."""
    for stage in evidence.stages.values():
        groups = stage.groups.found
        tied = [group for group in groups if is_tied(group)]
        if not groups or len(tied) < MOST_TIED * len(groups):
            continue
        low = sum(not any(map(positive, group)) for group in tied)
        figures = {
            "tied": str(len(tied)),
            "groups": str(len(groups)),
            "share": f"{len(tied) / len(groups):.1%}",
            "low": str(low),
            "high": str(len(tied) - low),
        }
        yield stage.improvement(
            "tied_groups",
            "signal",
            Fact("improve_evidence.tied", figures, stage.groups.place),
            _positives(stage),
            _distinct(stage),
            share=len(tied) / len(groups),
            unit="groups",
            at_most=True,
            work="data",
            what="tied_low" if 2 * low >= len(tied) else "tied_high",
        )


def positive(candidate: Candidate) -> bool:
    """Whether a candidate is right where its reward says so in a part `correct`; else whether it
    earned anything."""
    said = [v for name, v in candidate.numbers.items() if name.rpartition("/")[2] == CORRECT]
    return max(said) > 0 if said else (candidate.reward or 0.0) > 0


def _positives(stage: StageEvidence) -> Fact:
    """Positive shares at both levels, which a report once mixed up."""
    groups = stage.groups.found
    marks = [positive(candidate) for group in groups for candidate in group]
    queries = sum(any(map(positive, group)) for group in groups)
    figures = {
        "positive": str(sum(marks)),
        "candidates": str(len(marks)),
        "candidate_share": f"{sum(marks) / len(marks):.1%}",
        "queries": str(queries),
        "groups": str(len(groups)),
        "query_share": f"{queries / len(groups):.1%}",
    }
    return Fact("improve_evidence.positives", figures, stage.groups.place)


def _distinct(stage: StageEvidence) -> Fact:
    groups = stage.groups.found
    rewards = sorted({c.reward for group in groups for c in group if c.reward is not None})
    shown = ", ".join(f"{reward:.3g}" for reward in rewards[:5])
    more = " ..." if len(rewards) > 5 else ""
    figures = {"distinct": str(len(rewards)), "rewards": (shown or "–") + more}
    return Fact("improve_evidence.distinct_rewards", figures, stage.groups.place)


def kl_on_ties(evidence: RunEvidence) -> Iterator[Improvement]:
    """GRPO stages in which most groups carry nothing but the pull of the KL to the reference."""
    for stage in evidence.stages.values():
        groups, spec = stage.groups.found, stage.spec
        if not groups or not isinstance(spec, GrpoStage) or not spec.kl.coef:
            continue
        tied = sum(map(is_tied, groups))
        if spec.kl.where != "loss" or tied < MOST_TIED * len(groups):
            continue
        coefficients = [line["kl_coef"] for line in stage.lines if line.get("kl_coef") is not None]
        figures = {
            "tied": str(tied),
            "groups": str(len(groups)),
            "coef": f"{sum(coefficients) / len(coefficients):.3g}" if coefficients else "–",
        }
        yield stage.improvement(
            "kl_on_ties",
            "signal",
            Fact("improve_evidence.kl_on_ties", figures, stage.groups.place),
            share=tied / len(groups),
            unit="groups",
        )


def break_ties(evidence: RunEvidence) -> Iterator[Improvement]:
    """Stages whose tied groups differ in a number that was recorded beside the reward."""
    for stage in evidence.stages.values():
        tied = [group for group in stage.groups.found if is_tied(group)]
        names = {name for group in tied for each in group for name in each.numbers}
        # What scored an answer does not say how good it is.
        names = {name for name in names if name.rpartition("/")[2] != FALLBACK}
        counts = {name: sum(_differs(group, name) for group in tied) for name in sorted(names)}
        best = max(counts, key=lambda name: counts[name], default="")
        if not best or not counts[best] or len(tied) < MOST_TIED * len(stage.groups.found):
            continue
        figures = {"number": best, "broken": str(counts[best]), "tied": str(len(tied))}
        yield stage.improvement(
            "break_ties",
            "explore",
            Fact("improve_evidence.break_ties", figures, stage.groups.place),
            share=counts[best] / len(stage.groups.found),
            unit="groups",
            at_most=True,
        )


def _differs(group: Group, name: str) -> bool:
    """Whether the number tells candidates of the group apart."""
    values = [candidate.numbers[name] for candidate in group if name in candidate.numbers]
    return bool(values) and max(values) - min(values) > APART


def standardised_twice(evidence: RunEvidence) -> Iterator[Improvement]:
    """GRPO stages whose rewards are standardised before the advantages are, as the reports' were:
    a group of nearly equal rewards weighs as much as one that tells right from wrong."""
    for stage in evidence.stages.values():
        apart = [group for group in stage.groups.found if not is_tied(group)]
        if not isinstance(stage.spec, GrpoStage) or stage.spec.rewards != "normalised" or not apart:
            continue
        spreads = [statistics.pstdev(known_rewards(group)) for group in apart]
        figures = {
            "groups": str(len(apart)),
            "least": f"{min(spreads):.3g}",
            "most": f"{max(spreads):.3g}",
        }
        yield stage.improvement(
            "standardised_twice",
            "correct",
            Fact("improve_evidence.standardised_twice", figures, stage.groups.place),
            share=len(apart) / len(stage.groups.found),
            unit="groups",
        )


def known_rewards(group: Group) -> list[float]:
    """The rewards of a group without abstentions."""
    return [candidate.reward for candidate in group if candidate.reward is not None]


def flat_weights(evidence: RunEvidence) -> Iterator[Improvement]:
    """RCE stages that weigh the candidates of most groups alike although their rewards differ."""
    for stage in evidence.stages.values():
        taus = [line["tau"] for line in stage.lines if line.get("tau") is not None]
        apart = [group for group in stage.groups.found if not is_tied(group)]
        if not isinstance(stage.spec, RceStage) or not taus or not apart:
            continue
        normalised = stage.spec.rewards == "normalised"
        shares = [effective_share(group, taus[-1], normalised) for group in apart]
        flat = sum(share > FLAT for share in shares)
        if flat < MOST_TIED * len(apart):
            continue
        figures = {
            "flat": str(flat),
            "groups": str(len(apart)),
            "tau": f"{taus[-1]:.3g}",
            "first": f"{taus[0]:.3g}",
            "share": f"{sum(shares) / len(shares):.1%}",
        }
        yield stage.improvement(
            "flat_weights",
            "signal",
            Fact("improve_evidence.flat_weights", figures, stage.groups.place),
            share=flat / len(stage.groups.found),
            unit="groups",
            at_most=True,
            what="lower_tau" if normalised else "normalise",
        )


def effective_share(group: Group, tau: float, normalised: bool = False) -> float:
    """The effective number of candidates under softmax(reward / tau), exp of its entropy, as a
    share of all: 1 where all weigh alike, 1 / K where one has all the weight."""
    rewards = known_rewards(group)
    if normalised:
        mean, deviation = statistics.fmean(rewards), statistics.pstdev(rewards)
        rewards = [max(-3.0, min(3.0, (r - mean) / deviation)) for r in rewards]
    powers = [math.exp((reward - max(rewards)) / tau) for reward in rewards]
    weights = [power / math.fsum(powers) for power in powers]
    entropy = -math.fsum(weight * math.log(weight) for weight in weights if weight)
    return math.exp(entropy) / len(rewards)


def fallback_scores(evidence: RunEvidence) -> Iterator[Improvement]:
    """Stages and evaluations of which a fallback metric scored more than a tenth of the answers."""
    for stage in evidence.stages.values():
        marks = [candidate.fallback for group in stage.groups.found for candidate in group]
        yield from _fallback(
            evidence, stage.name, stage.groups.place, sum(marks), len(marks), stage.seconds
        )
    for each in evidence.measured:
        counts = [(arm.fallbacks, len(arm.judged)) for arm in each.arms.values()]
        marked, total = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0)
        taken = None if each.seconds is None else total * each.seconds
        yield from _fallback(evidence, each.record.name, each.place, marked, total, taken)


def _fallback(
    evidence: RunEvidence, about: str, place: str, marked: int, total: int, seconds: float | None
) -> Iterator[Improvement]:
    if not total or marked <= MANY_FALLBACKS * total:
        return
    trained = about in evidence.stages
    figures = {"marked": str(marked), "total": str(total), "share": f"{marked / total:.1%}"}
    yield Improvement(
        "fallback_scores",
        about,
        ("improve_what.fallback_stage" if trained else "improve_what.fallback_scores",),
        "correct",
        (Fact("improve_evidence.fallback", figures, place),),
        Stake(marked / total, "answers", at_most=False),
        Cost("data" if trained else "measure", seconds),
        guarded(evidence, about) if trained else "none",
    )


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
    **{
        name: Meaning("correct")
        for name, rule in RULES.items()
        if rule.kind in ("idle", "never") and rule.advice
    },
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
