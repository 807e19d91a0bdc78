"""Groups of stored candidates: the stream of the stages that learn from them.

Candidates are judged by what they hold. Nothing is sampled, no model is asked.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from assay.data.episode import Episode, Reward
from assay.data.row import Row
from assay.errors import InputError
from assay.experiment.stage_tables import RceStage, SamplingStage, StoredStage
from assay.lab.setup.learner import stored_turns
from assay.lab.setup.reward_parts import rewards_in
from assay.lab.setup.stage_input import StageInput
from assay.tasks.reward_table import RewardTable
from assay.tasks.stored_reward import is_right, not_in_facts, stored_reward
from assay.tasks.task import RewardFunction
from assay.train.group_choice import with_signal
from assay.train.likelihood import judged_members
from assay.train.sampled_groups import StoredGroups

CANDIDATES = "candidates"
"""The field of a row's `extra`: a list of {text, reward, facts}."""
Judge = RewardFunction | RewardTable | None
"""What judges stored candidates; None: the reward that they carry."""


class NoStoredGroups(InputError):
    """A stage wants stored candidates and its rows hold none, or none that teach."""


def stored_groups(stage: SamplingStage, given: StageInput) -> StoredGroups:
    """The stream of a stage's stored candidates, one group for each row.

    Raises NoStoredGroups for a row without any and where no group is left, NotInFacts.
    """
    groups = judged_groups(stage, given)
    # RCE takes the best itself, after it has looked at the whole group.
    best = stage.curriculum.best if stage.curriculum and not isinstance(stage, RceStage) else ()
    return StoredGroups(groups, stage.prompts, given.seed, given.order, best)


def judged_groups(stage: StoredStage, given: StageInput) -> tuple[tuple[Episode, ...], ...]:
    """The judged candidates of each row, none where the stage leaves the group out.

    Raises NoStoredGroups for a row without any and where no group is left, NotInFacts.
    """
    groups = tuple(group_of(stage, given, row) for row in given.rows)
    if not any(judged_members(groups)):
        why = [e.reward.why for group in groups for e in group if e.reward]
        problem = "no stored candidate is left to learn from"
        problem += f"; most often: {max(set(why), key=why.count)}" if why else ""
        fix = "generate others, or loosen require_positive or the reward's options"
        raise NoStoredGroups(problem, field="data", fix=fix)
    return groups


def group_of(stage: StoredStage, given: StageInput, row: Row) -> tuple[Episode, ...]:
    """The judged candidates of a row; none where the stage leaves the group out."""
    judge = given.runner.reward if given.runner is not None else None
    if (
        not stage.stored
        and judge is not None
        and any(map(not_in_facts, rewards_in(judge).values()))
    ):
        judge = None  # What is sampled is judged by a model; held-out candidates carry a reward.
    rewards = candidate_rewards(stage, judge, row)
    if not rewards:
        return ()
    turns = stored_turns(given.encoder, given.task, row, candidates_of(row))
    return tuple(
        Episode(f"{row.id}#{n}", row.id, own, reward)
        for n, (own, reward) in enumerate(zip(turns, rewards, strict=True))
    )


def candidate_rewards(stage: StoredStage, judge: Judge, row: Row) -> list[Reward]:
    """The reward of each candidate of a row, or nothing where the stage leaves the group out."""
    rewards = [stored_reward(judge, row, candidate) for candidate in candidates_of(row)]
    return [] if stage.require_positive and not any(map(is_right, rewards)) else rewards


def candidates_of(row: Row) -> Sequence[Mapping[str, Any]]:
    """The candidates that a row holds. Raises NoStoredGroups where there is none."""
    candidates = row.extra.get(CANDIDATES)
    if not candidates:
        fix = "give each row a list of {text, reward}, or sample them"
        raise NoStoredGroups("no candidates", file=row.origin, field=CANDIDATES, fix=fix)
    return candidates


def held_out_groups(
    stage: StoredStage, given: StageInput, rows: Sequence[Row]
) -> list[list[Episode]]:
    """The groups of held-out rows that a validation can tell good from bad by: those whose rewards
    differ. Raises NoStoredGroups where there is none."""
    groups = judged_members([group_of(stage, given, row) for row in rows])
    kept = [groups[g] for g in sorted(with_signal(groups))]
    if not kept:
        problem = "no held-out group has rewards that differ"
        raise NoStoredGroups(problem, field="validation", fix="hold other rows out")
    return kept
