"""Estimates what the helper models that rewards ask will cost a run.

A price counts one request per judged completion that reads its prompt and answer and writes
`max_tokens`, so that it is an upper end for judges of one question. Asks no model.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

from assay.data.episode import tokens_of
from assay.experiment.experiment import Experiment
from assay.experiment.helper_tables import URL, choice
from assay.experiment.price_table import units
from assay.experiment.stage_tables import SamplingStage
from assay.judge.findings import Finding
from assay.lab.check.subject import Number, Seen, Subject, reward_uses
from assay.lab.check.work import asked_items, stage_work
from assay.lab.setup.helper_models import price_of
from assay.lab.setup.reward_parts import reward_of, rewards_in
from assay.tasks.judge_reward import JudgeReward


def helper_uses(subject: Subject) -> Seen:
    """Requests and price of each declared model."""
    session = subject.session
    declared, requests, tokens = session.experiment.helpers, Counter[str](), Counter[str]()
    for use in reward_uses(session):
        score = reward_of(session.task, use.reward, session.run.root)
        each = rewards_in(score).values()
        asked = {n for one in each if isinstance(one, JudgeReward) for n in one.helpers}
        count, size = judged(subject, use.place) if asked else (0, 0.0)
        for name in asked & declared.keys():
            requests[name] += count
            tokens[name] += round(count * size)
    seeds = len(session.experiment.seeds)
    for name, spec in declared.items():
        yield Number(f"model.{name}", "requests", requests[name] * seeds)
        price = price_of(name, spec, session.run.root)(datetime.now(UTC).date())
        if price is None or not requests[name]:
            continue
        written = requests[name] * spec.sampling.max_tokens
        cost = units(price.of(tokens[name], written) * seeds)
        yield Number(f"model.{name}", "cost", cost)
        yield Finding(
            "note",
            f"helper model {name}: about {cost:.2f} for {requests[name] * seeds} "
            "requests at its price",
            f"{tokens[name] * seeds} tokens read, {written * seeds} written at most",
            f'bound it: [budget] "helper/{name}/cost"',
        )


def answering(experiment: Experiment) -> Iterator[Finding]:
    """Which models answer for the helper tables that name two, and why."""
    for name, spec in experiment.helpers.items():
        said, _, why = choice(name, spec).rpartition(", because ")
        if said:
            yield Finding(
                "note", said, why, f"a run goes on with it; to change it, set or unset {URL}"
            )


def judged(subject: Subject, place: str) -> tuple[int, float]:
    """The completions that a stage or an evaluation judges, and the mean tokens of each with its
    prompt; those of gold answers."""
    session = subject.session
    kind, _, name = place.partition(".")
    if kind == "stage":
        stage = session.experiment.stage[name]
        work = stage_work(subject, stage) if isinstance(stage, SamplingStage) else None
        if work is None:
            return 0, 0.0
        return work.steps * work.prompts * work.group, work.prompt + work.answer_most
    evaluation = session.evaluations[name]
    golds = subject.golds_of_items(evaluation).answers
    prompt = sum(len(tokens_of(gold.prompt)) for gold in golds) / max(len(golds), 1)
    count = sum(asked_items(session.experiment, evaluation, subject)) * evaluation.spec.repeats
    return count, prompt + evaluation.spec.sampling.max_tokens
