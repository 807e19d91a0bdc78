"""Estimates what the helper models that rewards ask will cost a run, and checks their judges.

A judge asks what it declares, reads the prompt and the answer and writes `max_tokens`, an upper
end; how often a program asks nobody knows. Asks no model.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from assay.errors import Finding, InputError
from assay.experiment.price_table import units
from assay.experiment.stage_tables import DistillStage, SamplingStage
from assay.lab.check.subject import Number, Seen, Subject
from assay.lab.check.work import asked_items, stage_work
from assay.lab.evaluate.run_evaluation import read_labels, rubrics_in
from assay.lab.session.reward_parts import reward_of, rewards_in
from assay.tasks.judge_reward import JudgeReward
from assay.tasks.reward_table import RewardTable
from assay.tasks.task import RewardFunction


@dataclass(frozen=True, slots=True)
class JudgedCompletions:
    """The completions of one stage or evaluation whose reward asks a helper model."""

    completions: int
    tokens: float
    """Mean tokens of a completion and its prompt."""
    questions: int | None
    """About each of them; None where a reward leaves it to the completion."""


def helper_uses(subject: Subject) -> Seen:
    """Requests and price of each declared model."""
    session = subject.session
    seeds = len(session.experiment.seeds)
    for name, spec in session.experiment.helpers.items():
        uses = judged_with(subject, name)
        completions = sum(use.completions for use in uses) * seeds
        if not completions:
            yield Number(f"model.{name}", "requests", 0)
            continue
        if any(use.questions is None for use in uses):
            what = f"helper model {name}: what it will cost is not known"
            told = f"each of {completions} completions asks as often as it likes"
            fix = "a run of a few steps shows how many requests there are for each: assay costs"
            yield Finding("note", what, told, fix)
            continue
        requests = sum(use.completions * (use.questions or 0) for use in uses) * seeds
        yield Number(f"model.{name}", "requests", requests)
        if (price := spec.token_price) is None:
            continue
        tokens = sum(use.completions * use.tokens for use in uses) * seeds / completions
        read, written = round(requests * tokens), requests * spec.sampling.max_tokens
        cost = units(price.of(read, written))
        yield Number(f"model.{name}", "cost", cost)
        what = f"helper model {name}: about {cost:.2f} for {requests} requests at its price"
        told = f"as the reward asks {completions} completions: {read} tokens read, {written} "
        told += "written at most"
        yield Finding("note", what, told, f'bound it: [budget] "helper/{name}/cost"')


def judged_with(subject: Subject, name: str) -> list[JudgedCompletions]:
    """The completions of each stage and evaluation that a helper model is asked about, by a reward
    or as a teacher."""
    session, uses = subject.session, []
    for stage in session.experiment.stage.values():
        if isinstance(stage, SamplingStage) and not stage.stored and stage.reward is not None:
            asking = rewards_asking(reward_of(session.task, stage.reward, session.run.root), name)
            if asking and (work := stage_work(subject, stage)):
                count = work.steps * work.prompts * work.group
                uses.append(
                    JudgedCompletions(count, work.prompt + work.answer_most, questions_of(asking))
                )
        if not isinstance(stage, DistillStage) or stage.teacher != name:
            continue
        if work := stage_work(subject, stage):
            each = stage.lmbda * work.group + 1 - stage.lmbda
            count = math.ceil(work.steps * work.prompts * each)
            uses.append(JudgedCompletions(count, work.prompt + work.answer_most, 1))
    for evaluation in session.evaluations.values():
        if asking := rewards_asking(evaluation.score, name):
            golds = subject.golds_of_items(evaluation).answers
            prompt = sum(gold.prompt_size for gold in golds) / max(len(golds), 1)
            items = sum(asked_items(session.experiment, evaluation, subject))
            tokens = prompt + evaluation.spec.sampling.max_tokens
            count = items * evaluation.spec.repeats
            uses.append(JudgedCompletions(count, tokens, questions_of(asking)))
    return uses


def rewards_asking(score: RewardFunction | RewardTable, name: str) -> list[JudgeReward]:
    """The rewards among those scored that ask a helper model."""
    judges = [each for each in rewards_in(score).values() if isinstance(each, JudgeReward)]
    return [each for each in judges if name in each.helpers]


def questions_of(rewards: Sequence[JudgeReward]) -> int | None:
    """What rewards ask together about a completion; None where one leaves that to it."""
    counts = [each.questions for each in rewards if each.questions is not None]
    return sum(counts) if len(counts) == len(rewards) else None


def judges(subject: Subject) -> Seen:
    """The rubrics of stages and evaluations: whether anybody holds their judges to labels."""
    for use in rubrics_in(subject.session):
        name, file = use.kind, use.opened.labels
        if file is None:
            what = f"{name}: nobody knows whether people agree with the judge"
            fix = "let people label some answers: labels = FILE in the rubric"
            yield Finding(
                "warning", what, "the rubric names no labels; its scores pass no gate", fix
            )
            continue
        try:
            labels = read_labels(file, use.opened.rubric)
        except InputError as wrong:
            yield Finding("error", f"{name}: labels cannot be read", str(wrong), "mend the file")
            continue
        yield Number(name, "labelled answers", len(labels))
        questions = 2 if use.opened.rubric.both_orders else 1
        yield Number(name, "questions about them", len(labels) * questions)
