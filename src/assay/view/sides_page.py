"""Completions side by side: those of a group, and all answers to an item of an evaluation."""

from collections.abc import Mapping
from statistics import mean, pstdev

from starlette.requests import Request

from assay.data.row import Row
from assay.errors import AssayError, InputError
from assay.lab.setup.prepare import rows_by_id
from assay.pages.examples import asked as question_of
from assay.pages.examples import item_rows, shortened
from assay.pages.page import (
    Answer,
    Block,
    Code,
    Facts,
    Heading,
    Line,
    Mark,
    Page,
    Question,
    Text,
    joined,
)
from assay.pages.result_tables import checkpoint_label
from assay.pages.words import Words, flat, number
from assay.runs.history import History, Sample, find_record, samples_in
from assay.runs.records import outcome, transcript
from assay.runs.run_directory import RunDirectory
from assay.view.frame import Shown, lab_address, run_address
from assay.view.window import Window


def group_page(window: Window, request: Request, w: Words) -> Shown:
    """The completions of one visit to a row, with rewards and advantages."""
    lab, asked = request.path_params["lab"], request.query_params
    run, text = window.run(lab, asked.get("run", "")), asked.get("step", "")
    stage, row = asked.get("stage", ""), asked.get("row", "")
    step = int(text) if text.isdecimal() and len(text) < 10 else 0
    own = group_of(run, stage, step, row, asked.get("visit", "0"))
    rewards = [each.reward for each in own if each.reward is not None]
    facts = [
        (w("view.completions"), number(len(own))),
        (w("view.mean"), number(mean(rewards) if rewards else None)),
        (w("view.spread"), number(pstdev(rewards) if rewards else None)),
    ]
    every = Mark(w("view.all_of_row"), "", lab_address(lab, "samples", run=run, row=row))
    answers = [_sample_answer(lab, run, each, w) for each in own]
    blocks: list[Block] = [
        Text(joined(Mark(str(run), "", run_address(lab, run)), every, by=" · ")),
        Facts(facts, chips=True),
        *_beside(window, run, stage, row, "", answers, w),
        Heading(w("view.replay")),
        Code(f"assay replay {run} --stage {stage} --step {step}", "sh"),
    ]
    return Shown(Page(w, w("view.group_of", row=row, stage=stage, step=step), blocks), lab=lab)


def group_of(run: RunDirectory, stage: str, step: int, row: str, visit: str) -> list[Sample]:
    """The completions of a group. Raises InputError where there is none."""
    history, own = History(run), []
    if stage in history.experiment.stage and step in history.sampled(stage):
        samples = samples_in(run.samples(stage, step), tokens=True)
        own = [each for each in samples if each.row == row and str(each.visit) == visit]
    if not own:
        problem = f"{run} has no group {row!r} at step {step} of {stage!r}"
        raise InputError(problem, fix="open it from a sample")
    return own


def _sample_answer(lab: str, run: RunDirectory, sample: Sample, w: Words) -> Answer:
    reward = w("view.unscored") if sample.reward is None else number(sample.reward)
    result = w("view.reward", reward=reward)
    if sample.advantage is not None:
        result += w.semicolon + w("view.has_advantage", advantage=number(sample.advantage))
    text = transcript(sample.conversation) if sample.conversation else sample.text
    facts = [f"{name} {number(value)}" for name, value in sample.parts.items()]
    facts += [f"{w('view.why')}{w.colon}{sample.why}"] if sample.why else []
    facts += [w("view.tokens_count", count=len(sample.tokens)), w(f"view.ended_{sample.ended}")]
    own = lab_address(lab, "show", id=f"{run}:{sample.id}")
    note = w.semicolon.join(facts)
    return Answer(f"#{sample.number}", result, shortened(text), note=note, link=own)


def item_page(window: Window, request: Request, w: Words) -> Shown:
    """All answers to an item of an evaluation, checkpoint by checkpoint."""
    lab, asked = request.path_params["lab"], request.query_params
    run, item = window.run(lab, asked.get("run", "")), asked.get("item", "")
    record = find_record(run, asked.get("evaluation", ""))
    answers = [
        _answer(lab, run, each, checkpoint, w)
        for checkpoint in History(run).measured(record)
        for each in samples_in(record.file(run.evaluations, checkpoint))
        if each.row == item
    ]
    if not answers:
        problem = f"{record.name} has no item {item!r}"
        raise InputError(problem, field="item", fix="open it from an answer")
    every = lab_address(lab, "answers", run=run, evaluation=record.key)
    links: Line = joined(
        Mark(str(run), "", run_address(lab, run)), Mark(w("view.answers"), "", every), by=" · "
    )
    blocks = [Text(links), *_beside(window, run, "", item, record.name, answers, w)]
    return Shown(Page(w, w("view.item_of", item=item, evaluation=record.name), blocks), lab=lab)


def _answer(lab: str, run: RunDirectory, answer: Sample, checkpoint: str, w: Words) -> Answer:
    score = w("view.unscored") if answer.reward is None else number(answer.reward)
    became = outcome(answer.reward, answer.error, answer.outcome)
    text = transcript(answer.conversation) if answer.conversation else answer.text
    own = lab_address(lab, "show", id=f"{run}:{answer.id}")
    parts = w.semicolon.join(f"{name} {number(value)}" for name, value in answer.parts.items())
    title = f"{checkpoint_label(checkpoint, w)} #{answer.number}"
    result = f"{score}{w.semicolon}{w.or_own('outcome', became)}"
    return Answer(title, result, shortened(text), note=parts, link=own)


def _beside(
    window: Window,
    run: RunDirectory,
    stage: str,
    row: str,
    evaluation: str,
    answers: list[Answer],
    w: Words,
) -> list[Block]:
    """Answers below the question, which is read again from its source, or why it cannot be."""

    def read() -> Mapping[str, Row]:
        if evaluation:
            return item_rows(run, evaluation)
        experiment = History(run).experiment
        return rows_by_id(experiment, experiment.stage[stage].data.partition(".")[0], run.root)

    question, gold, problem = "", "", []
    try:
        rows = window.rows.get((run, stage, evaluation), None, read)
        question, gold = question_of(rows.get(row))
    except (AssayError, OSError) as error:
        problem = [Text(w("page.no_questions", why=flat(str(error))), "warning")]
    return [*problem, Question("", question, answers, gold, w("page.gold"))]
