"""Rules about the groups that a stage learned from, sampled or stored: ties, weights, metrics.

A group of equal rewards teaches nothing: its advantages are 0. Each rule is a generator over the
evidence of a run.
"""

import math
import statistics
from collections.abc import Iterator

from assay.experiment.stage_tables import GrpoStage, RceStage
from assay.judge.group_health import CandidateGroup
from assay.judge.identity import FALLBACK, MANY_FALLBACKS
from assay.judge.improvements import Cost, Fact, Improvement, Stake
from assay.lab.improve.result_rules import guarded
from assay.lab.improve.run_evidence import Candidate, Group, RunEvidence, StageEvidence
from assay.tasks.stored_reward import CORRECT

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
        names = {name for group in tied for each in group for name in each.numbers if _tells(name)}
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


def _tells(name: str) -> bool:
    """Whether a number says how good an answer is; what scored it does not."""
    return name.rpartition("/")[2] != FALLBACK


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
