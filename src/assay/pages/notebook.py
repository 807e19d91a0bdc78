"""The lab's dated notebook as Markdown: an entry for each run, and for notes of runs that are gone.

Results are read from the records each time the notebook is shown, notes from `notebook.jsonl`.
Nothing is written here.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from assay.errors import AssayError
from assay.experiment.tables import NoteSpec
from assay.pages.content import checkpoint_labels, verdict_line
from assay.pages.facts import Measurement, RunFacts, gather
from assay.pages.markdown import blocks_markdown
from assay.pages.page import Block, Bullets, Heading, Line, Mark, Text, joined
from assay.pages.provenance import marks
from assay.pages.story import selection_section
from assay.pages.words import Words, number, score_text, worded, words
from assay.runs.notes import Note, read_notes
from assay.runs.registry import damage
from assay.runs.run_directory import RunDirectory, all_runs, read_status, stored_status
from assay.runs.run_files import DamagedFile


def notebook(root: Path, only: RunDirectory | None = None, lang: str = "en") -> str:
    """The notebook of a lab, or the entry of one run, oldest first. Raises InputError."""
    w, notes = words(lang), read_notes(root)
    if only is not None:
        return blocks_markdown(entry(only, notes, w), w) + "\n"
    runs = all_runs(root)
    known = {str(run) for run in runs}
    lost = [note for note in notes if note.about not in known]
    dated = [
        *((started_of(run), entry(run, notes, w)) for run in runs),
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
    """One run: its settings, its results, its notes; or why they cannot be read, since one damaged
    run must not hide the others."""
    try:
        status = read_status(run.path)
    except DamagedFile as error:
        head = Heading(f"{day(started_of(run))} · {run}", 2)
        return [head, Text(w("log.unreadable", why=error), "error")]
    state = w(f"status.{status.status}")
    pending = "" if status.status == "finished" else w("log.pending")
    head = w("log.entry", date=day(status.started), run=run, seed=status.seed, state=state)
    blocks: list[Block] = [Heading(head + pending, 2)]
    blocks += [Text(status.message, "note")] if status.message else []
    why, lines = damage(run), list[Line]()
    if not why:
        try:
            facts = gather(run)
            lines = recorded(facts, w)
            blocks += [Text(facts.experiment.about)] if facts.experiment.about else []
        except AssayError as error:
            why = str(error)
    blocks += [Text(w("log.unreadable", why=why), "error")] if why else []
    lines += [f"{moment(n.at)}: {n.text}" for n in notes if n.about == str(run)]
    return [*blocks, Bullets(lines)]


def recorded(facts: RunFacts, w: Words) -> list[Line]:
    """The model, the stages, the `[note]` and the results of a run."""
    experiment, note = facts.experiment, facts.experiment.note or NoteSpec()
    stages = " → ".join(f"{n} ({s.method})" for n, s in experiment.stage.items()) or "–"
    lines: list[Line] = [w("log.made_of", model=experiment.model, stages=stages)]
    expected = {"why": note.why, "expected": note.expected}
    lines += [w(f"log.{name}", **{name: text}) for name, text in expected.items() if text]
    lines += [w("log.fault", fault=fault) for fault in note.faults]
    lines += [Mark(mark) for mark in marks(facts, w)]
    for measurement in facts.reported:
        lines += measured(measurement, w)
    lines += selection_section(facts, w)
    for stage in facts.metrics:
        for each in facts.health(stage):
            finding = worded(each, w)
            severity, evidence = w(f"severity.{finding.severity}"), w.within(finding.evidence)
            lines.append(w.colon.join((severity, stage, finding.what + evidence)))
    return lines


def measured(measurement: Measurement, w: Words) -> list[Line]:
    """The scores of one evaluation, compared with its control."""
    if measurement.table is None:
        return [f"{measurement.name}{w.colon}{w('table.not_run')}"]
    lines: list[Line] = []
    labels = checkpoint_labels(measurement.table, w)
    for line in measurement.table.lines:
        ends = (line.score, line.interval.low, line.interval.high)
        score, low, high = (score_text(end, line.interval) for end in ends)
        figures = {"evaluation": measurement.name, "label": labels[line.name]}
        figures |= {"score": score, "low": low, "high": high, "items": number(line.items)}
        verdict = verdict_line(line.to_control, labels, w) if line.to_control else ""
        lines.append(joined(w("log.score", **figures), verdict, by=w.semicolon))
    return lines


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
