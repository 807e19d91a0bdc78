"""`assay label`: draws answers of runs for people to label, and holds the judge of the runs to the
labels that came back."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from assay.compare.arm import Arm
from assay.compare.named_arms import arm_named, own_arm
from assay.data.hashing import canonical_json, sha256_text
from assay.data.json_files import read_jsonl, write_jsonl
from assay.data.splits import drawn
from assay.errors import InputError
from assay.judge.templates import filled
from assay.lab.evaluate.judge_labels import Use, judge_labelled, rubrics_in
from assay.lab.evaluate.run_evaluation import answerer_of
from assay.lab.monitor.observer import Observer
from assay.lab.setup.session import Session
from assay.runs.judge_file import JudgedLabels
from assay.runs.registry import note_run
from assay.runs.run_names import experiment_of
from assay.runs.status import hold_run, stored_status
from assay.tasks.label_file import read_labels
from assay.tasks.rubric import asked_text

RUBRIC_OPTION = "rubric"
"""The option of a record that holds the rubric of its judge."""


@dataclass(frozen=True)
class Answers:
    """Answers of one run to an evaluation that a rubric judges."""

    arm: Arm
    session: Session
    use: Use


@dataclass(frozen=True, slots=True)
class Drawn:
    """What was written into a file of labels."""

    file: Path
    items: int
    added: int
    kept: int
    """Lines that stood there already."""


def answers_named(root: Path, name: str, on: str | None, observer: Observer) -> Answers:
    """The answers that a name means. Raises InputError where no rubric judged them."""
    arm = own_arm(arm_named(root, name), on)
    assert arm.provenance is not None
    run, record = arm.provenance.run, arm.provenance.record
    session = Session(experiment_of(run), run, stored_status(run.path).seed, observer)
    wanted = canonical_json(record.options.get(RUBRIC_OPTION, {}))
    for use in rubrics_in(session):
        if use.fingerprint == wanted:
            return Answers(arm, session, use)
    problem = f"no rubric judged {record.name} of {run}"
    if RUBRIC_OPTION in record.options:
        problem = f"the rubric that judged {record.name} of {run} has changed since"
    raise InputError(problem, field="--on", fix='name an evaluation whose reward is "rubric:FILE"')


def draw_answers(
    root: Path, names: Sequence[str], on: str | None, file: Path, items: int, observer: Observer
) -> Drawn:
    """Write the answers of runs to some items, drawn by their ids, into a file of labels: one of
    each run, without a word of who wrote it. More items hold fewer ones; what stands in the file
    stays. Raises InputError."""
    runs = [answers_named(root, name, on, observer) for name in names]
    known = [record.value for record in read_jsonl(file)] if file.exists() else []
    there = {(line.get("item"), line.get("answer")) for line in known}
    chosen = drawn(runs[0].arm.scores.item_ids, items)
    lines = {
        (line["item"], line["answer"]): line
        for each in runs
        for line in _lines(each, frozenset(chosen))
    }
    fresh = [line for place, line in lines.items() if place not in there]
    # Beside one another by chance: nobody is to read one run's answers together.
    fresh.sort(key=lambda line: sha256_text(f"{line['item']}\n{line['answer']}"))
    file.parent.mkdir(parents=True, exist_ok=True)
    write_jsonl(file, [*known, *fresh])
    return Drawn(file, len(chosen), len(fresh), len(known))


def _lines(answers: Answers, chosen: frozenset[str]) -> Iterator[dict[str, object]]:
    """One answer to each chosen item, of which repeat is drawn by the item."""
    provenance = answers.arm.provenance
    assert provenance is not None
    made = answerer_of(answers.session).evaluations()[provenance.record.name]
    rows = {row.id: row for row in made.items}
    if lacking := sorted(chosen - {item for item, _ in answers.arm.outputs}):
        problem = f"{provenance} has no answer to item {lacking[0]!r}"
        raise InputError(problem, fix="draw answers of runs that were asked the same items")
    for item in sorted(chosen):
        repeats = [repeat for named, repeat in answers.arm.outputs if named == item]
        repeat = repeats[int(sha256_text(item), 16) % len(repeats)]
        line: dict[str, object] = {"item": item, "question": asked_text(rows[item])}
        if answers.use.rubric.pairs or answers.use.rubric.reference:
            line["reference"] = answers.use.opened.others(rows[item])
        yield line | {"answer": answers.arm.outputs[item, repeat], "label": None}


def measure_labels(
    root: Path, names: Sequence[str], on: str | None, file: Path, observer: Observer
) -> list[JudgedLabels]:
    """Hold the judge of each run to the labels of a file, and store what it said in the run. Raises
    InputError."""
    found = []
    for name in names:
        answers = answers_named(root, name, on, observer)
        labels = read_labels(file, answers.use.rubric)
        if not labels.labels:
            count = {"answers": labels.waiting}
            fix = filled("{answers:answers}: write a label in the place of null", count)
            fix = fix if labels.waiting else "--items N draws answers to label"
            raise InputError("has no labels", file=file, fix=fix)
        with held(answers.session):
            found.append(judge_labelled(answers.session, answers.use, labels))
    return found


@contextmanager
def held(session: Session) -> Iterator[None]:
    """Lock the run, and bill it for what the judge is asked."""
    with hold_run(session.run.path, shared=True), session.helpers.recorded_in(session.run):
        yield
    note_run(session.run)
