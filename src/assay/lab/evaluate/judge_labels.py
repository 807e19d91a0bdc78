"""Has the judge of a rubric grade answers that people labelled, before a run begins.

Labels are JSON lines, `{"item": ID, "answer": TEXT, "label": 4}`; of several criteria `label` is an
object, of pairs "answer", "reference" or "tie", beside a `reference`. The `question` may stand
there; else the item is one of the run's. What the judge was asked is journalled, so that nothing is
asked twice. The agreement is made of what is stored in `compare.judge_trust`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from assay.data.episode import Completion, Reward
from assay.data.hashing import canonical_json, sha256_text
from assay.data.json_files import read_jsonl
from assay.data.loaded import Record
from assay.data.row import Message, Row
from assay.data.splits import conversation_of
from assay.experiment.reward_tables import Reward as RewardSpec
from assay.experiment.reward_tables import RewardPart, RewardSettings, parts_of
from assay.experiment.stage_tables import SftStage
from assay.lab.evaluate.answerer import Answerer
from assay.lab.session.reward_parts import OpenedRubric, asked_helpers, open_rubric
from assay.lab.session.session import Session
from assay.runs.judgement_journal import (
    FOLDER,
    JudgedLabels,
    JudgementJournal,
    LabelledJudgement,
    write_judged,
)
from assay.tasks.rubric import PREFERENCE, RUBRIC, TIE, Rubric
from assay.tasks.task import answer_text

OPTION = "rubric"
"""The option of a benchmark that names the file of a rubric."""
LABELS = "labels"
"""What the judge is asked for, in the ledger of costs."""
PREFERRED = {"answer": 1.0, "reference": 0.0, TIE: 0.5}


@dataclass(frozen=True)
class Use:
    """A rubric as a stage or an evaluation uses it."""

    kind: str
    opened: OpenedRubric
    settings: RewardSettings


class Verdicts(JudgementJournal):
    """A journal whose abstentions are asked again: a label is worth more than a call."""

    def known(self, part: str, row: Row, completion: Completion) -> Reward | None:
        """See `JudgementJournal`."""
        verdict = super().known(part, row, completion)
        return None if verdict is None or verdict.value is None else verdict


def rubrics_in(session: Session) -> list[Use]:
    """The rubrics of an experiment, each once. Raises what opening them raises."""
    experiment = session.experiment
    specs: list[tuple[RewardSpec | None, RewardSettings]] = [
        (stage.reward, stage)
        for stage in experiment.stage.values()
        if not isinstance(stage, SftStage)
    ]
    specs += [(each.reward, each) for each in experiment.evaluate.values()]
    parts = [(part, how) for spec, how in specs for part in parts_of(spec or {}).values()]
    parts += [
        (RewardPart(kind=RUBRIC + each.options[OPTION]), each)
        for each in experiment.evaluate.values()
        if isinstance(each.options.get(OPTION), str)
    ]
    uses: dict[str, Use] = {}
    for part, settings in parts:
        if part.kind.startswith(RUBRIC):
            opened = open_rubric(part.kind, session.run.root)
            use = Use(part.kind, opened, settings)
            uses.setdefault(canonical_json(opened.reward.settings), use)
    return list(uses.values())


def measure_judges(answerer: Answerer) -> None:
    """Have the judge of every rubric that names labels grade their answers, and store what it says.
    Raises InputError for labels that cannot be used."""
    for use in rubrics_in(answerer.session):
        if use.opened.labels is not None:
            judge_labelled(answerer, use, use.opened.labels)


def judge_labelled(answerer: Answerer, use: Use, file: Path) -> JudgedLabels:
    """Judge the labelled answers and store what was said. Raises InputError for a label whose
    question or other answer nobody knows."""
    session, rubric, reward = answerer.session, use.opened.rubric, use.opened.reward
    labels = read_labels(file, rubric)
    rows = _rows(answerer, use, [record for record, _ in labels])
    fingerprint = sha256_text(
        canonical_json([reward.settings, asked_helpers(session.helpers, [reward])])
    )
    name, folder = f"{use.opened.file.stem}-{fingerprint[:8]}", session.run.path / FOLDER
    folder.mkdir(exist_ok=True)
    journal = Verdicts(folder / f"{name}.jsonl", fingerprint)
    runners = session.reward_runner(reward, use.settings, journal)
    answers = [
        Completion(r.value["answer"], id=f"{LABELS}/{row.id}#{sha256_text(r.value['answer'])[:12]}")
        for (r, _), row in zip(labels, rows, strict=True)
    ]
    with session.helpers.evaluation(LABELS, use.opened.file.stem), runners as runner:
        verdicts = runner.score(list(zip(rows, answers, strict=True)))
    judged = [
        LabelledJudgement(
            row.id,
            conversation_of(row),
            grades,
            {}
            if verdict.value is None
            else {part.rpartition("/")[2]: value for part, value in verdict.parts.items()},
        )
        for row, (_, grades), verdict in zip(rows, labels, verdicts, strict=True)
    ]
    summary = JudgedLabels(
        kind=use.kind,
        settings=use.opened.reward.settings,
        levels=rubric.levels,
        model=f"{rubric.model} ({session.experiment.helpers[rubric.model].source})",
        least_kappa=use.opened.spec.least_kappa,
        labels=file.name,
        judged=judged,
    )
    write_judged(session.run, name, summary)
    return summary


def _rows(answerer: Answerer, use: Use, records: Sequence[Record]) -> list[Row]:
    """The question of each label: that of the run's item, else its own; with the answer that it is
    compared with, or that one who grades sees, as `gold`. Raises InputError."""
    sets = answerer.session.sets.values() if answerer.in_process else ()
    known = {row.id: row for each in sets for row in each.rows}
    known |= {row.id: row for each in answerer.evaluations().values() for row in each.items}
    rows, rubric = [], use.opened.rubric
    for record in records:
        item, question = record.value["item"], record.maybe("question", str)
        if item not in known and question is None:
            fix = "write the question, or the id of a row of the run's data or evaluations"
            raise record.error("item", f"nobody knows the item {item!r}", fix)
        row = known.get(item) or Row(item, (Message("user", question or ""),))
        other = record.maybe("reference", str)
        other = answer_text(row) if other is None else other
        if other is None and (rubric.pairs or rubric.reference):
            fix = "write the answer that it is compared with"
            raise record.error("reference", "missing, and the item has no answer", fix)
        rows.append(replace(row, gold=other))
    return rows


def read_labels(file: Path, rubric: Rubric) -> list[tuple[Record, Mapping[str, float]]]:
    """The lines of a file with their grades; one whose label is null waits to be filled in. Raises
    DataError."""
    labels: dict[tuple[str, str], tuple[Record, Mapping[str, float]]] = {}
    for record in read_jsonl(file):
        place = record.need("item", str), record.need("answer", str)
        if record.value.get("label") is None:
            continue
        if place in labels:
            problem = f"the answer was labelled in line {labels[place][0].line} already"
            raise record.error("answer", problem, "keep one line for each answer")
        labels[place] = record, dict(_grades(record, rubric))
    return list(labels.values())


def _grades(record: Record, rubric: Rubric) -> Iterator[tuple[str, float]]:
    """The label by criterion. Raises DataError for one that is off its scale."""
    label = record.value["label"]
    if rubric.pairs:
        if not isinstance(label, str) or label not in PREFERRED:
            words = ", ".join(f'"{name}"' for name in PREFERRED)
            raise record.error("label", f"{label!r} is no preference", f"write {words}")
        yield PREFERENCE, PREFERRED[label]
        return
    if not isinstance(label, Mapping) and len(rubric.criteria) == 1:
        label = dict.fromkeys(rubric.criteria, label)
    if not isinstance(label, Mapping) or label.keys() != rubric.criteria.keys():
        names = ", ".join(f'"{name}": ...' for name in rubric.criteria)
        raise record.error("label", "does not grade the rubric's criteria", f"write {{{names}}}")
    for name, each in rubric.criteria.items():
        value = label[name]
        if type(value) not in (int, float) or value not in each.levels:
            field = "label" if len(rubric.criteria) == 1 else f"label.{name}"
            problem = f"{value!r} is no whole number from {each.low} to {each.high}"
            raise record.error(field, problem, "use the scale of the rubric")
        yield name, float(value)
