"""What an experiment file says of itself, as lines of the notebook: why, what to expect, faults.

The figures that others reported come from the record that the note names, whenever the notebook is
read; a record that is not there is said to be missing.
"""

from pathlib import Path

from assay.errors import InputError
from assay.experiment.experiment import Experiment
from assay.experiment.note_table import ReportedRun
from assay.report.reported_score import ReportedScore, reported_scores
from assay.report.templating import cell
from assay.report.words import Words, number, percent
from assay.runs.run_directory import runs_of


def note_lines(experiment: Experiment, root: Path, w: Words) -> list[str]:
    """The `[note]` of an experiment as items of a list; nothing where it has none."""
    note = experiment.note
    if note is None:
        return []
    lines = [f"- {cell(w('log.why', why=note.why))}"] if note.why else []
    lines += [f"- {cell(w('log.expected', expected=note.expected))}"] if note.expected else []
    lines += [f"- {cell(w('log.fault', fault=fault))}" for fault in note.faults]
    if note.reported is not None:
        lines += [f"- {cell(said)}" for said in reported_lines(root, note.reported, w)]
    return lines


def reported_lines(root: Path, reference: ReportedRun, w: Words) -> list[str]:
    """What others reported, a line for each benchmark, or why it cannot be said."""
    place = {"run": reference.run, "file": reference.file}
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
    stages = " → ".join(f"{n} ({s.method})" for n, s in experiment.stage.items()) or "–"
    head = [f"## {cell(experiment.name)}", cell(experiment.about)]
    made_of = f"- {cell(w('log.made_of', model=experiment.model, stages=stages))}"
    ran = f"- {cell(w('log.runs', runs=runs) if runs else w('log.no_runs'))}"
    items = "\n".join([made_of, *note_lines(experiment, root, w), ran])
    return "\n\n".join([*filter(None, head), items]) + "\n"
