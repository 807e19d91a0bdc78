"""Pairs of a dpo stage: stored groups become chosen and rejected candidates.

Candidates are judged by what they hold. Nothing is sampled, no model is asked.
"""

from collections.abc import Sequence
from dataclasses import replace

from assay.data.episode import Context, Episode
from assay.data.row import Row
from assay.data.row_order import Fixed
from assay.errors import InputError
from assay.experiment.stage_tables import DpoStage
from assay.lab.setup.stage_input import StageInput
from assay.lab.setup.stored_groups import Judge, candidate_rewards, judged_groups
from assay.rl.preference import Preference
from assay.train.dpo import Dpo
from assay.train.pair_choice import (
    Pair,
    PairRule,
    choose_pairs,
    groups_with_pairs,
    pair_count,
)
from assay.train.sampled_groups import value_of


class NoPairs(InputError):
    """No two candidates of a group that a dpo stage could tell apart."""


class ScoreOutOfRange(InputError):
    """A score that Score-DPO cannot weigh a candidate by."""


def build_dpo(stage: DpoStage, given: StageInput) -> Dpo:
    """The method of a dpo stage. Raises NoPairs, ScoreOutOfRange, NoStoredGroups, NotInFacts."""
    groups = in_order(judged_groups(stage, given), given)
    rule = rule_of(stage)
    pairs = choose_pairs(groups, rule, given.seed)
    if not pairs:
        raise no_pairs(len(groups))
    values = [[value_of(episode) for episode in group] for group in groups]
    return Dpo(
        tuple(scored(stage, pair) for pair in pairs),
        stage.batch,
        given.seed,
        Preference(stage.beta, stage.label_smoothing),
        stage.scores,
        stage.micro_tokens,
        groups=len(groups),
        telling=groups_with_pairs(values, rule),
        order=Fixed(tuple(range(len(pairs)))) if isinstance(given.order, Fixed) else None,
    )


def rule_of(stage: DpoStage) -> PairRule:
    """Which pairs the stage's table asks for."""
    table = stage.pairs.model_dump(exclude_none=True)
    return PairRule(**table)


def in_order(
    groups: Sequence[tuple[Episode, ...]], given: StageInput
) -> Sequence[tuple[Episode, ...]]:
    """The groups as the data set sorts them, where it does."""
    places = given.order.places if isinstance(given.order, Fixed) else range(len(groups))
    return [groups[place] for place in places]


def scored(stage: DpoStage, pair: Pair) -> Pair:
    """The pair with its scores between 0 and 1 where they weigh it. Raises ScoreOutOfRange."""
    if stage.scores == "plain":
        return pair
    low, high = stage.score_range or (0.0, 1.0)
    for episode, score in zip((pair.chosen, pair.rejected), pair.scores, strict=True):
        if not low <= score <= high:
            problem = f"Score-DPO weighs by scores from {low:g} to {high:g}, and {episode.id} has"
            fix = 'set score_range to what the reward gives, or scores = "plain"'
            raise ScoreOutOfRange(f"{problem} {score:g}", field="scores", fix=fix)
    better, worse = ((score - low) / (high - low) for score in pair.scores)
    return replace(pair, scores=(better, worse))


def pairs_per_epoch(stage: DpoStage, judge: Judge, rows: Sequence[Row]) -> int:
    """The pairs that rows give, without encoding them. Raises what `build_dpo` raises."""
    values = [[r.value for r in candidate_rewards(stage, judge, row)] for row in rows]
    count = pair_count(values, rule_of(stage))
    if not count:
        raise no_pairs(len(rows))
    return count


def no_pairs(groups: int) -> NoPairs:
    """None of so many groups gives a pair."""
    problem = f"no group of {groups} has two candidates whose scores differ enough to make a pair"
    return NoPairs(problem, field="data", fix="take other groups, or lower pairs.least_gap")


def described(method: Dpo) -> str:
    """The pairs in words, with the groups that give none."""
    silent = method.groups - method.telling
    told = f"{len(method.pairs):,} pairs of {method.telling:,} groups"
    return f"{told}; {silent:,} groups have no two scores that differ" if silent else told


def pair_sizes(pairs: Sequence[Pair]) -> list[tuple[Context, int]]:
    """For each pair its context and the actions of both completions, which no budget cuts."""
    return [
        (pair.chosen.turns[0].context, sum(len(t.actions) for e in sides for t in e.turns))
        for pair in pairs
        for sides in [(pair.chosen, pair.rejected)]
    ]
