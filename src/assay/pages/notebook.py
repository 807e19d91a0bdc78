"""The lab's dated notebook as Markdown: an entry for each run and for each plan without a run.

Results are read from the records each time the notebook is shown, notes from `notebook.jsonl`. A
score that others reported has no items, so its interval is that of one binomial proportion.
Nothing is written here.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.compare.compare_names import ArmRequest, compare_requests
from assay.data.reported.read_reported import read_reported
from assay.errors import AssayError, InputError, nearest
from assay.experiment.experiment import Experiment
from assay.experiment.tables import ReportedRun
from assay.judge.audit.cells import cells
from assay.judge.intervals import Interval, wilson
from assay.pages.content import change_text, checkpoint_label
from assay.pages.facts import Measurement, RunFacts, gather
from assay.pages.markdown import blocks_markdown
from assay.pages.page import Block, Bullets, Heading, Line, Mark, Text
from assay.pages.provenance import marks
from assay.pages.story import selection_section
from assay.pages.words import Words, number, percent, score_text, worded, words
from assay.runs.notes import Note, pending_plans, read_notes
from assay.runs.run_directory import RunDirectory, all_runs, runs_of
from assay.runs.run_files import DamagedFile
from assay.runs.run_names import find_run, parse_run_name
from assay.runs.same_experiment import damage
from assay.runs.status import read_status, stored_status


@dataclass(frozen=True, slots=True)
class ReportedScore:
    """The mean score of a reported run on one benchmark or subset."""

    cell: str
    """The benchmark or subset as the record names it; "" if it has only one."""
    score: float
    """A share, over all passes."""
    passes: int
    items: int | None
    interval: Interval | None
    """None if the record does not give the number of items."""


def reported_scores(root: Path, reference: ReportedRun) -> list[ReportedScore]:
    """Scores of the run in the record; empty if it has none.

    Raises InputError if the record cannot be read or has no such run.
    """
    records = read_reported(root / reference.file).records
    found = [(report, run) for report in records if (run := report.run(reference.run))]
    if not found:
        names = [each.name for report in records for each in report.runs]
        problem = f"has no run {reference.run!r}"
        raise InputError(problem, file=reference.file, fix=nearest(reference.run, names))
    report, run = found[0]
    return [
        ReportedScore(
            name,
            cell.mean,
            len(cell.values),
            cell.items,
            wilson(cell.successes, cell.items) if cell.items else None,
        )
        for name, cell in cells(report, run).items()
    ]


def note_lines(experiment: Experiment, root: Path, w: Words) -> list[str]:
    """The `[note]` of an experiment as items of a list; nothing where it has none."""
    note = experiment.note
    if note is None:
        return []
    lines = [w("log.why", why=note.why)] if note.why else []
    lines += [w("log.expected", expected=note.expected)] if note.expected else []
    lines += [w("log.fault", fault=fault) for fault in note.faults]
    return lines + (reported_lines(root, note.reported, w) if note.reported else [])


def reported_lines(root: Path, reference: ReportedRun, w: Words) -> list[str]:
    """Reported scores, one line for each benchmark, or why there are none."""
    file = Path(reference.file)
    inside = file.is_relative_to(root.absolute())
    place = {"run": reference.run, "file": file.relative_to(root.absolute()) if inside else file}
    try:
        scores = reported_scores(root, reference)
    except (
        InputError
    ) as error:  # a lab elsewhere has no such record; its runs are there all the same
        return [w("log.reported_unreadable", why=error, **place)]
    if not scores:
        return [w("log.reported_nothing", **place)]
    return [w("log.reported", said=score_said(score, w), **place) for score in scores]


def score_said(score: ReportedScore, w: Words) -> str:
    """A reported score with its passes and, where the items are known, its interval."""
    figures = {"score": percent(score.score), "passes": score.passes}
    name = f"{score.cell} " if score.cell else ""
    if score.interval is None:
        return name + w("log.reported_score", **figures)
    return name + w(
        "log.reported_interval",
        items=number(score.items),
        low=percent(score.interval.low),
        high=percent(score.interval.high),
        **figures,
    )


def file_entry(experiment: Experiment, root: Path, w: Words) -> str:
    """The entry of an experiment file, whether it has runs or not."""
    runs = ", ".join(str(run) for run in runs_of(root, experiment.name))
    ran = w("log.runs", runs=runs) if runs else w("log.no_runs")
    lines = [made_of(experiment, w), *note_lines(experiment, root, w), ran]
    head = Heading(experiment.name, 2)
    about = [Text(experiment.about)] if experiment.about else []
    return blocks_markdown([head, *about, Bullets(lines)], w) + "\n"


def made_of(experiment: Experiment, w: Words) -> str:
    """The model and the stages of an experiment."""
    stages = " → ".join(f"{n} ({s.method})" for n, s in experiment.stage.items()) or "–"
    return w("log.made_of", model=experiment.model, stages=stages)


def notebook(root: Path, only: RunDirectory | None = None, lang: str = "en") -> str:
    """The notebook of a lab, or the entry of one run, oldest first. Raises InputError."""
    w, notes = words(lang), read_notes(root)
    if only is not None:
        return blocks_markdown(entry(only, notes, w), w) + "\n"
    runs = all_runs(root)
    started = [(run.name, started_of(run)) for run in runs]
    known = {str(run) for run in runs}
    lost = [note for note in notes if note.kind == "note" and note.about not in known]
    dated = [
        *((at, entry(run, notes, w)) for run, (_, at) in zip(runs, started, strict=True)),
        *((note.at, plan_entry(note, w)) for note in pending_plans(notes, started)),
        *((note.at, lost_entry(note, w)) for note in lost),
    ]
    every = [block for _, blocks in sorted(dated, key=lambda each: each[0]) for block in blocks]
    return blocks_markdown([Heading(w("log.title", lab=root.name), 1), *every], w) + "\n"


def started_of(run: RunDirectory) -> str:
    """The start of a run, taken from its id if its status cannot be read."""
    try:
        return stored_status(run.path).started
    except DamagedFile:
        stamp = re.match(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z", run.id)
        return "{}-{}-{}T{}:{}:{}+00:00".format(*stamp.groups()) if stamp else ""


def entry(run: RunDirectory, notes: Sequence[Note], w: Words) -> list[Block]:
    """One run: its settings, its results, its notes."""
    try:
        status = read_status(run.path)
    except DamagedFile as error:  # one damaged run must not hide the others
        head = Heading(f"{day(started_of(run))} · {run}", 2)
        return [head, Text(w("log.unreadable", why=error), "error")]
    state = w(f"status.{status.status}")
    pending = "" if status.status == "finished" else w("log.pending")
    head = w("log.entry", date=day(status.started), run=run, seed=status.seed, state=state)
    message = [Text(status.message, "note")] if status.message else []
    own = [note for note in notes if note.kind == "note" and note.about == str(run)]
    more = [*plan_lines(run, notes, w), *(f"{moment(n.at)}: {n.text}" for n in own)]
    return [Heading(head + pending, 2), *message, *shown_or_why(run, more, w)]


def shown_or_why(run: RunDirectory, more: Sequence[Line], w: Words) -> list[Block]:
    """The results of a run with `more` lines behind them, or why they cannot be read."""
    why = damage(run)
    try:
        if not why:
            facts = gather(run)
            about = facts.experiment.about
            lines = [*recorded(facts, w), *more]
            return [*([Text(about)] if about else []), Bullets(lines)]
    except AssayError as error:  # one damaged run must not hide the others
        why = str(error)
    return [Text(w("log.unreadable", why=why), "error"), Bullets(more)]


def recorded(facts: RunFacts, w: Words) -> list[Line]:
    """The results of a run."""
    experiment = facts.experiment
    lines: list[Line] = [made_of(experiment, w), *note_lines(experiment, facts.run.root, w)]
    lines += [Mark(said) for said in marks(facts, w)]
    for measurement in facts.reported:
        lines += measured(measurement, w)
    lines += selection_section(facts, w)
    if experiment.control:
        lines.append(against_control(facts, experiment.control, w))
    for stage in facts.metrics:
        for each in facts.health(stage):
            found = worded(each, w)
            severity, evidence = w(f"severity.{found.severity}"), w.within(found.evidence)
            lines.append(w.colon.join((severity, stage, found.what + evidence)))
    return lines


def measured(measurement: Measurement, w: Words) -> list[Line]:
    """The scores of one evaluation, compared with its control."""
    if measurement.table is None:
        return [f"{measurement.name}{w.colon}{w('table.not_run')}"]
    lines: list[Line] = []
    for line in measurement.table.lines:
        figures = {
            "evaluation": measurement.name,
            "label": checkpoint_label(line.name, w),
            "score": score_text(line.score, line.interval),
            "low": score_text(line.interval.low, line.interval),
            "high": score_text(line.interval.high, line.interval),
            "items": number(line.items),
        }
        said = ""
        if line.to_control is not None:
            found = line.to_control.comparison
            control = checkpoint_label(measurement.table.control.name, w)
            shown = {
                "verdict": w(f"verdict_name.{found.verdict}"),
                "difference": change_text(found, w, units=True),
            }
            said = w("log.verdict", control=control, **shown)
        lines.append(w("log.score", **figures) + said)
    return lines


def against_control(facts: RunFacts, control: str, w: Words) -> str:
    """The comparison with the control that the experiment names, or why there is none."""
    try:
        other = find_run(facts.run.root, parse_run_name(control))
        table = compare_requests([ArmRequest(other), ArmRequest(facts.run)])
    except InputError as refusal:
        return w("log.no_comparison", control=control, why=refusal)
    pairing = table.lines[-1].to_control
    assert pairing is not None, "the second line has the first as its control"
    said = pairing.explanation(w.verdicts)
    return w("log.against", control=control, evaluation=table.evaluation.name, said=said)


def plan_lines(run: RunDirectory, notes: Sequence[Note], w: Words) -> list[str]:
    """The plans whose first run this is."""
    started = started_of(run)
    times = [started_of(other) for other in runs_of(run.root, run.name)]
    earlier = [time for time in times if time < started]
    since = max(earlier, default="")
    plans = [n for n in notes if n.kind == "plan" and n.name == run.name]
    kept = [n for n in plans if since < n.at <= started]
    return [f"{w('log.planned', at=moment(n.at))}: {n.text}" for n in kept]


def plan_entry(note: Note, w: Words) -> list[Block]:
    """A plan without a run."""
    head = w("log.plan", date=day(note.at), name=note.name)
    return [Heading(head + w("log.pending"), 2), Text(note.text)]


def lost_entry(note: Note, w: Words) -> list[Block]:
    """A note about a deleted run."""
    head = w("log.lost", date=day(note.at), run=note.about)
    return [Heading(head, 2), Bullets([f"{moment(note.at)}: {note.text}"])]


def day(at: str) -> str:
    """The date of a time."""
    return at.partition("T")[0]


def moment(at: str) -> str:
    """Date and time as people write them."""
    return at.replace("T", " ").removesuffix("+00:00") + " UTC"
