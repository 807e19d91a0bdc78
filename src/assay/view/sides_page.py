"""Completions side by side: those of a group, and all answers to an item of an evaluation."""

from statistics import mean, pstdev

from starlette.requests import Request

from assay.errors import InputError, nearest
from assay.pages.content import checkpoint_label
from assay.pages.examples import asked as question_of
from assay.pages.examples import shortened
from assay.pages.page import (
    Answer,
    Block,
    Code,
    Facts,
    Heading,
    Mark,
    Page,
    Question,
    Text,
    joined,
)
from assay.pages.words import Words, number
from assay.runs.history import (
    History,
    Sample,
    find_record,
    measured_checkpoints,
    samples_in,
)
from assay.runs.records import EvaluationRecord, outcome, transcript
from assay.runs.run_directory import RunDirectory
from assay.view.frame import Shown, lab_address, run_address
from assay.view.runs_page import whole_number
from assay.view.sample_page import THOUGHT, ended_text, replay_command, row_behind
from assay.view.window import Window


def group_page(window: Window, request: Request, w: Words) -> Shown:
    """The completions of one visit to a row, with rewards and advantages."""
    lab, asked = request.path_params["lab"], request.query_params
    run, text = window.run(lab, asked.get("run", "")), asked.get("step", "")
    stage, row = asked.get("stage", ""), asked.get("row", "")
    step = whole_number(text) or 0
    own = group_of(run, stage, step, row, asked.get("visit", "0"))
    rewards = [each.reward for each in own if each.reward is not None]
    facts = [
        (w("view.completions"), number(len(own))),
        (w("metric.reward_mean"), number(mean(rewards) if rewards else None)),
        (w("view.spread"), number(pstdev(rewards) if rewards else None)),
    ]
    every = Mark(w("view.all_of_row"), "", lab_address(lab, "samples", run=run, row=row))
    answers = [_sample_answer(lab, run, each, w) for each in own]
    found, problem = row_behind(window, run, stage, row, False, w)
    question, gold = question_of(found)
    blocks: list[Block] = [
        Text(joined(Mark(str(run), "", run_address(lab, run)), every, by=" · ")),
        Facts(facts, chips=True),
        *problem,
        Question("", question, answers, gold, w("page.gold")),
    ]
    if command := replay_command(run, stage, step):
        blocks += [Heading(w("view.replay")), Code(command, "sh")]
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
    reward = w("program_outcome.abstained") if sample.reward is None else number(sample.reward)
    result = w("view.reward", reward=reward)
    if sample.advantage is not None:
        result += w.semicolon + w("view.has_advantage", advantage=number(sample.advantage))
    facts = [f"{name} {number(value)}" for name, value in sample.parts.items()]
    facts += [f"{w('view.why')}{w.colon}{sample.why}"] if sample.why else []
    facts += [w("view.tokens_count", count=number(len(sample.tokens)))] if sample.tokens else []
    facts += [ended_text(sample.ended, w)] if sample.ended else []
    own = lab_address(lab, "show", id=f"{run}:{sample.id}")
    note = w.semicolon.join(facts)
    thought, text = _said(sample)
    return Answer(f"#{sample.number}", result, text, (), note, own, thought)


def _said(sample: Sample) -> tuple[str, str]:
    """What was thought, and what was said; of a conversation all in order."""
    if sample.conversation:
        return "", shortened(transcript(sample.conversation))
    thought = "\n\n".join(found.strip() for found in THOUGHT.findall(sample.text))
    return shortened(thought), shortened(THOUGHT.sub("", sample.text).strip("\n"))


def item_page(window: Window, request: Request, w: Words) -> Shown:
    """All answers to an item: of the checkpoints of an evaluation, or of the records named by `of`
    (NAME/ID/FOLDER/CHECKPOINT), which may be of several runs."""
    lab, asked = request.path_params["lab"], request.query_params
    item, named = asked.get("item", ""), asked.getlist("of")
    records = [_record_of(window, lab, name) for name in named]
    if not records:
        run = window.run(lab, asked.get("run", ""))
        record = find_record(run, asked.get("evaluation", ""))
        records = [(run, record, checkpoint) for checkpoint in History(run).measured(record)]
    runs = list(dict.fromkeys(run for run, _, _ in records))
    answers = [
        _answer(lab, run, record, each, f"{run.name} · " if len(runs) > 1 else "", checkpoint, w)
        for run, record, checkpoint in records
        for each in samples_in(record.file(run.evaluations, checkpoint))
        if each.row == item
    ]
    if not answers:
        raise InputError(f"no item {item!r} here", field="item", fix="open it from an answer")
    (run, record, _), *_ = records
    every = Mark(w("view.answers"), "", lab_address(lab, "answers", run=run, evaluation=record.key))
    doors = [Mark(str(each), "", run_address(lab, each)) for each in runs]
    found, problem = row_behind(window, run, record.name, item, True, w)
    question, gold = question_of(found)
    beside = Question("", question, answers, gold, w("page.gold"))
    blocks = [Text(joined(*doors, every, by=" · ")), *problem, beside]
    return Shown(Page(w, w("view.item_of", item=item, evaluation=record.name), blocks), lab=lab)


def _record_of(window: Window, lab: str, name: str) -> tuple[RunDirectory, EvaluationRecord, str]:
    """A finished record by NAME/ID/FOLDER/CHECKPOINT. Raises InputError, RunNotFound."""
    run_name, _, rest = name.rpartition("/")
    run_name, _, folder = run_name.rpartition("/")
    run = window.run(lab, run_name)
    record = find_record(run, folder)
    if rest not in (known := measured_checkpoints(run, record)):
        raise InputError(f"{rest!r} is not measured", field="of", fix=nearest(rest, known))
    return run, record, rest


def _answer(
    lab: str,
    run: RunDirectory,
    record: EvaluationRecord,
    answer: Sample,
    before: str,
    checkpoint: str,
    w: Words,
) -> Answer:
    score = number(answer.reward)
    became = outcome(answer.reward, answer.error, answer.outcome)
    thought, text = _said(answer)
    id_ = f"{record.key}/{checkpoint}/{answer.row}#{answer.number}"
    own = lab_address(lab, "show", id=f"{run}:{id_}")
    parts = w.semicolon.join(f"{name} {number(value)}" for name, value in answer.parts.items())
    title = f"{before}{checkpoint_label(checkpoint, w)} #{answer.number}"
    result = f"{w('answer.scored', score=score)}{w.semicolon}{w.or_own('outcome', became)}"
    return Answer(title, result, text, (), parts, own, thought)
