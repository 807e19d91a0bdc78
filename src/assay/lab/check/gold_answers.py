"""Do rewards and checkers tell right from wrong? Each is tried on the gold answers of its rows, and
on their gold conversations where they are dialogues (`gold`, `dialogues`).
"""

from assay.lab.check.dialogues import World, scripted, try_dialogues
from assay.lab.check.gold_trials import Trial, full_score, judge_trials, try_reward
from assay.lab.check.subject import Gold, Seen, Subject, reward_uses
from assay.lab.setup.prepare import find_part
from assay.lab.setup.session import Session
from assay.tasks.task import maximum, reward


def gold_answers(subject: Subject) -> Seen:
    """Every reward on its rows, every benchmark's checker on its items."""
    session = subject.session
    for use in reward_uses(session):
        names = [use.reward] if isinstance(use.reward, str) else list(use.reward)
        golds = subject.golds_of_data(use.data, use.rendering).answers
        world = session.task.dialogue
        rewards = {name: reward(session.task, name) for name in names}
        full = {name: maximum(session.task, name) for name in names}
        rows = find_part(session.sets, use.data)
        single = [gold for gold in golds if world(gold.row) is None]
        if single:
            yield from judge_trials(
                use.place,
                [try_reward(n, rewards[n], full[n], single, session.reward_runner) for n in names],
            )
        if len(single) < len(golds):
            talks = scripted(session, rows, use.rendering, world)
            yield from judge_trials(
                use.place,
                [
                    try_dialogues(n, rewards[n], full[n], talks, world, session.reward_runner)
                    for n in names
                ],
            )
    for name, evaluation in session.evaluations.items():
        if evaluation.spec.benchmark is None:
            continue
        golds = subject.golds_of_items(evaluation).answers
        if golds:
            trial = checker_trial(session, name, golds)
            yield from judge_trials(f"evaluate.{name}", [trial])


def checker_trial(session: Session, name: str, golds: tuple[Gold, ...]) -> Trial:
    """A benchmark's checker on its items that have a gold answer."""
    evaluation = session.evaluations[name]
    score, most = evaluation.score, full_score(session.task, evaluation.spec, session.run.root)
    called, runner_of = evaluation.spec.benchmark or "", session.reward_runner
    if evaluation.dialogue is None:
        return try_reward(called, score, most, golds, runner_of)
    world: World = evaluation.dialogue
    rows = [gold.row for gold in golds]
    talks = scripted(session, rows, evaluation.spec.rendering, world)
    return try_dialogues(called, score, most, talks, world, runner_of)
