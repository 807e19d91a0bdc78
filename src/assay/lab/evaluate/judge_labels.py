"""Has a rubric's judge grade the answers that people labelled.

What a record of the run holds already is not asked again. Pairs are asked in both orders, and some
answers once more with orders to the judge written into them. Figures are made of what is stored in
`judge.label_agreement`.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from assay.data.episode import Completion, Reward
from assay.data.hashing import canonical_json, sha256_text
from assay.data.row import Message, Row
from assay.data.splits import conversation_of
from assay.experiment.reward_tables import Reward as RewardSpec
from assay.experiment.reward_tables import RewardPart, RewardSettings, parts_of
from assay.experiment.stage_tables import SftStage
from assay.judge.label_agreement import Judged
from assay.lab.evaluate.run_evaluation import answerer_of
from assay.lab.setup.manifest import asked_helpers
from assay.lab.setup.rubrics import OpenedRubric, open_rubric
from assay.lab.setup.session import Session
from assay.runs.history import evaluation_records, measured_checkpoints
from assay.runs.judge_file import FOLDER, Canary, JudgedLabels, write_judged
from assay.runs.judgement_journal import JudgementJournal
from assay.runs.records import read_columns
from assay.runs.run_directory import RunDirectory
from assay.tasks.label_file import Label, Labels, read_labels
from assay.tasks.rubric import NEUTRAL, RUBRIC, Rubric, injected_texts, judged_text, rubric_reward
from assay.tasks.running import RewardRunner
from assay.tasks.task import answer_text

OPTION = "rubric"
"""The option of a benchmark that names the file of a rubric."""
LABELS = "labels"
"""What the judge is asked for, in the ledger of costs."""


@dataclass(frozen=True)
class Use:
    """A rubric as a stage or an evaluation uses it."""

    kind: str
    opened: OpenedRubric
    """With the options of the use."""
    settings: RewardSettings

    @property
    def rubric(self) -> Rubric:
        """What the judge is asked."""
        return self.opened.rubric

    @property
    def fingerprint(self) -> str:
        """The rubric, as records of evaluations have it among their options."""
        return canonical_json(self.opened.reward.settings)


@dataclass(frozen=True, slots=True)
class Labelled:
    """A labelled answer to be judged."""

    label: Label
    row: Row
    """With the answer that it is compared with, or that one who grades sees, as `gold`."""
    answer: str
    author: str = ""
    known: Reward | None = None
    """The verdict that a record holds."""

    def completion(self, more: str = "", kind: str = "") -> Completion:
        """The answer, with more written behind it."""
        name = f"{self.label.item}#{self.label.sha256[:12]}"
        return Completion(self.answer + more, id=f"{kind or LABELS}/{name}")


class Verdicts(JudgementJournal):
    """A journal whose abstentions are asked again: a label is worth more than a call."""

    def known(self, part: str, row: Row, completion: Completion) -> Reward | None:
        """See `JudgementJournal`."""
        found = super().known(part, row, completion)
        return None if found is None or found.value is None else found


def rubrics_in(session: Session) -> list[Use]:
    """The rubrics of an experiment, each once. Raises what opening them raises."""
    experiment = session.experiment
    specs: list[tuple[RewardSpec | None, RewardSettings]] = [
        (stage.reward, stage)
        for stage in experiment.stage.values()
        if not isinstance(stage, SftStage)
    ]
    specs += [(each.reward, each) for each in experiment.evaluate.values()]
    asked = [(part, how) for spec, how in specs for part in parts_of(spec or {}).values()]
    asked += [
        (RewardPart(kind=RUBRIC + each.options[OPTION]), each)
        for each in experiment.evaluate.values()
        if isinstance(each.options.get(OPTION), str)
    ]
    found: dict[str, Use] = {}
    for part, settings in asked:
        if part.kind.startswith(RUBRIC):
            opened = open_rubric(part.kind, session.run.root)
            opened = replace(opened, rubric=replace(opened.rubric, **part.options))
            use = Use(part.kind, opened, settings)
            found.setdefault(use.fingerprint, use)
    return list(found.values())


def measure_judges(session: Session) -> None:
    """Have the judge of every rubric that names labels grade their answers; what it graded before
    is not asked again. Raises InputError for labels that cannot be used."""
    for use in rubrics_in(session):
        if use.opened.labels is not None:
            judge_labelled(session, use, read_labels(use.opened.labels, use.rubric))


def judge_labelled(session: Session, use: Use, labels: Labels) -> JudgedLabels:
    """Judge the labelled answers and store what was said. Raises InputError for a label whose
    question or other answer nobody knows."""
    answers = labelled_answers(session, use, labels)
    reward = rubric_reward(replace(use.rubric, both_orders=use.rubric.pairs), answer_text)
    asked = sha256_text(canonical_json([reward.settings, asked_helpers(session, reward)]))
    name, folder = f"{use.opened.file.stem}-{asked[:8]}", session.run.path / FOLDER
    folder.mkdir(exist_ok=True)
    journal = Verdicts(folder / f"{name}.jsonl", asked)
    runners = session.reward_runner(reward, use.settings, journal)
    with session.helpers.evaluation(LABELS, use.opened.file.stem), runners as runner:
        fresh = [each for each in answers if each.known is None]
        said = iter(runner.score([(each.row, each.completion()) for each in fresh]))
        verdicts = [each.known or next(said) for each in answers]
        canaries = judged_canaries(use, answers, verdicts, runner)
    source = session.experiment.helpers[use.rubric.model].source
    own = {use.rubric.model, source, source.partition(":")[2], *use.opened.spec.own}
    judged = [
        _judged(use.rubric, one, verdict, own)
        for one, verdict in zip(answers, verdicts, strict=True)
    ]
    found = JudgedLabels(
        kind=use.kind,
        settings=use.opened.reward.settings,
        levels=use.rubric.levels,
        model=f"{use.rubric.model} ({source})",
        least_kappa=use.opened.spec.least_kappa,
        labels=labels.file.name,
        waiting=labels.waiting,
        unread=len(labels.labels) - len(answers),
        judged=judged,
        why=dict(Counter(each.why for each in verdicts if each.value is None)),
        canaries=canaries,
    )
    write_judged(session.run, name, found)
    return found


def _judged(rubric: Rubric, one: Labelled, verdict: Reward, own: set[str]) -> Judged:
    parts = {name.rpartition("/")[2]: value for name, value in verdict.parts.items()}
    return Judged(
        item=one.row.id,
        sha256=one.label.sha256,
        cluster=conversation_of(one.row),
        label=one.label.grades,
        verdict={} if verdict.value is None else parts,
        wanted=rubric.score(one.label.grades),
        score=verdict.value,
        characters=len(judged_text(one.completion())),
        author=one.author,
        own=one.author in own,
    )


def labelled_answers(session: Session, use: Use, labels: Labels) -> list[Labelled]:
    """The labels whose answer is known, each with its question. Raises InputError."""
    recorded = recorded_answers(session.run, use)
    answerer = answerer_of(session)
    sets = session.sets.values() if answerer.in_process else ()
    rows = {row.id: row for each in sets for row in each.rows}
    rows |= {row.id: row for each in answerer.evaluations().values() for row in each.items}
    found = []
    for label in labels.labels:
        place = label.item, label.sha256
        answer, verdict = recorded.get(place, (label.answer, None))
        author = label.author or (session.experiment.model if place in recorded else "")
        if answer is not None:
            row = _row(use, labels, label, rows.get(label.item))
            found.append(Labelled(label, row, answer, author, verdict))
    return found


def _row(use: Use, labels: Labels, label: Label, known: Row | None) -> Row:
    """The question of a label: that of the run's item, else its own."""
    if known is None and label.question is None:
        fix = "write the question, or the id of a row of the run's data or evaluations"
        raise labels.refuse(label, "item", f"nobody knows the item {label.item!r}", fix)
    row = known or Row(label.item, (Message("user", label.question or ""),))
    other = label.reference if label.reference is not None else use.opened.others(row)
    if other is None and (use.rubric.pairs or use.rubric.reference):
        fix = "write the answer that it is compared with"
        raise labels.refuse(label, "reference", "missing, and the item has no answer", fix)
    return replace(row, gold=other)


def recorded_answers(
    run: RunDirectory, use: Use
) -> dict[tuple[str, str], tuple[str, Reward | None]]:
    """The answers that the run has recorded, by item and sha256, with the judge's verdict where an
    evaluation by this rubric has asked all that is wanted to know."""
    found: dict[tuple[str, str], tuple[str, Reward | None]] = {}
    whole = use.rubric.both_orders or not use.rubric.pairs
    for record in evaluation_records(run):
        same = canonical_json(record.options.get("rubric", {})) == use.fingerprint
        for checkpoint in measured_checkpoints(run, record):
            file = record.file(run.evaluations, checkpoint)
            columns = read_columns(file, ["item_id", "output", "score", "parts", "why"])
            for item, output, score, parts, why in zip(*columns.values(), strict=True):
                judged = same and whole and score is not None
                verdict = Reward(score, json.loads(parts), why) if judged else None
                place = item, sha256_text(output)
                if verdict is not None or place not in found:
                    found[place] = output, verdict
    return found


def judged_canaries(
    use: Use, answers: Sequence[Labelled], verdicts: Sequence[Reward], runner: RewardRunner
) -> list[Canary]:
    """The answers that people think least of, judged again with each text written behind them."""
    scored = [
        (use.rubric.score(each.label.grades), each.label.sha256, each, verdict.value)
        for each, verdict in zip(answers, verdicts, strict=True)
        if verdict.value is not None
    ]
    lowest = sorted(scored, key=lambda each: each[:2])[: use.opened.spec.canaries]
    texts = injected_texts(use.rubric)
    tried = [(kind, each, before) for kind, (_, _, each, before) in product(texts, lowest)]
    said = runner.score(
        [(each.row, each.completion("\n\n" + texts[kind], kind)) for kind, each, _ in tried]
    )
    pairs = [(*one, after.value) for one, after in zip(tried, said, strict=True)]
    # Beside the answer with neutral words, so that a text's length or any change is not its order.
    neutral = {each.completion().id: after for kind, each, _, after in pairs if kind == NEUTRAL}
    return [
        Canary(kind, conversation_of(each.row), first, after)
        for kind, each, before, after in pairs
        for first in (before if kind == NEUTRAL else neutral[each.completion().id],)
    ]
