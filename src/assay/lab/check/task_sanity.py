"""Finds rewards that say something else the second time, and dialogues that break their contract.

Pure rewards are called twice on the same answers. Dialogues are asked twice, and answered with
nothing until they end. What a reward says of right and wrong answers is tried in `gold_trials`.
"""

from collections.abc import Sequence

from assay.data.episode import Completion
from assay.data.row import Row
from assay.errors import Finding
from assay.lab.check.gold_trials import LONGEST, World
from assay.lab.check.subject import Gold, Seen, Subject, reward_uses, share_of, some
from assay.lab.setup.prepare import find_part
from assay.lab.setup.reward_parts import table_parts
from assay.tasks.judge_reward import JudgeReward
from assay.tasks.no_verdict import rewarded
from assay.tasks.task import RewardFunction, is_unsafe
from assay.tasks.user_code import line_note

TRIED = 20
"""Rows, evenly spread."""


def task_sanity(subject: Subject) -> Seen:
    """The findings on every reward and every dialogue of the experiment's data."""
    session = subject.session
    for use in reward_uses(session):
        rows = spread(find_part(session.sets, use.data))
        yield from broken_dialogues(use.place, rows, session.task.dialogue)
        golds = spread(subject.golds_of_data(use.data, use.written).answers)
        single = [gold for gold in golds if session.task.dialogue(gold.row) is None]
        for name, part in table_parts(session.task, use.reward, session.run.root).items():
            yield from unsteady(use.place, name, part.reward, single)


def spread(all_: Sequence) -> Sequence:
    """At most TRIED of them, evenly spread."""
    return all_[:: -(-len(all_) // TRIED)] if all_ else all_


def unsteady(place: str, name: str, function: RewardFunction, golds: Sequence[Gold]) -> Seen:
    """A pure reward that gives an answer another value when it is asked again."""
    if isinstance(function, JudgeReward) or is_unsafe(function):
        return
    pairs = [(g.row, said) for g in golds for said in (g.completion, Completion(""))]
    values = [[rewarded(function, *pair) for pair in pairs] for _ in range(2)]
    other = [pair[0].id for pair, *both in zip(pairs, *values, strict=True) if valued(both)]
    if other:
        where = line_note(function)
        yield Finding(
            "error",
            f"{place}: {name!r}{f' ({where})' if where else ''} does not say the same twice",
            f"{share_of(len(other), len(pairs))} answers earn another value: {some(other)}",
            "take what is random, counted or read from a clock out of the reward",
        )


def valued(both: Sequence) -> bool:
    """Whether two rewards of one answer have different values."""
    one, other = (getattr(each, "value", None) for each in both)
    return one != other


def broken_dialogues(place: str, rows: Sequence[Row], world: World) -> Seen:
    """Dialogues that cannot be begun, that asking changes, that lose an answer, or never end."""
    found: dict[str, list[str]] = {}
    for row in rows:
        try:
            problem = problem_of(world, row)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # what a user's dialogue raises is what this check looks for
            problem = f"raises {type(error).__name__}: {error}"
        if problem:
            found.setdefault(problem, []).append(row.id)
    for problem, ids in found.items():
        yield Finding(
            "error",
            f"{place}: the dialogue {problem}",
            f"{share_of(len(ids), len(rows))} rows: {some(ids)}",
            "see docs/episodes.md for what asks, hears and messages promise",
        )


def problem_of(world: World, row: Row) -> str:
    """What is wrong with the dialogue of a row whose answers are all empty; "" if nothing is."""
    dialogue = world(row)
    if dialogue is None:
        return ""
    for heard in range(LONGEST):
        asked = dialogue.asks()
        if asked != dialogue.asks():
            return "asks something else when it is asked twice"
        if asked is None:
            return "is over before anything is asked" if heard == 0 else ""
        dialogue.hears("", "stop")
        said = sum(message.role == "assistant" for message in dialogue.messages)
        if said != heard + 1:
            return f"has {said} messages of the assistant after {heard + 1} answers"
    return f"goes on after {LONGEST} empty answers"
