"""Makes rows of what a run recorded, and gives rows the pass rates and examples of a run.

A sampled completion becomes the answer of its row, or one candidate among those of its group. The
rows that were answered come from `prepare.asked_rows`. An example is never of the row's own
conversation or question, nor of an evaluation that reports; which ones a row gets depends on ids
alone. Nothing is sampled.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from assay.data.files import (
    atomic_write_text,
    canonical_json,
    hash_contents,
    locked,
    normalise_text,
    sha256_file,
    sha256_text,
)
from assay.data.leakage import question
from assay.data.loaded import Loaded
from assay.data.row import Message, Row
from assay.data.row_checks import field_value
from assay.data.splits import conversation_of, drawn
from assay.errors import InputError, nearest
from assay.experiment.data_tables import Examples, PassRate, Recorded
from assay.experiment.experiment import Experiment, mixed
from assay.runs.history import (
    Sample,
    files_sha256,
    read_description,
    record_file,
    sample_files,
    samples_in,
)
from assay.runs.run_directory import RunDirectory, read_manifest, read_status
from assay.runs.run_files import FIX, as_entry, read_json
from assay.runs.run_names import find_run, read_run_name

PASS_RATE = "pass_rate"
"""The field of `extra` that holds a measured pass rate."""
ABSTAINED = "the reward abstained"
EXAMPLES = "examples"
"""The field of `extra`: a list of {row, question, text, reward}."""
FEWER = "fewer examples than shots"
"""The remark on rows for which the run recorded too little."""


@dataclass(frozen=True)
class Records:
    """The answers that a table names, and where they lie."""

    run: RunDirectory
    files: tuple[Path, ...]
    answers: tuple[Sample, ...]


def records_of(root: Path, name: str, table: Recorded, *, tokens: bool = False) -> Records:
    """The answers of the run called `name` that a table names. Raises InputError."""
    run, files = files_of(root, name, table)
    answers = (answer for file in files for answer in samples_in(file, tokens=tokens))
    return Records(run, files, tuple(answers))


def files_of(root: Path, name: str, table: Recorded) -> tuple[RunDirectory, tuple[Path, ...]]:
    """The run, and the files of the answers. Raises InputError."""
    reference = read_run_name(root, name)
    if reference.checkpoint is not None:
        problem = f"run:{name} names a checkpoint"
        fix = f"write run:{name.partition('@')[0]}, and the stage or evaluation in samples"
        raise InputError(problem, fix=fix)
    run = find_run(root, reference)
    if read_status(run.path).status == "running":
        raise InputError(f"{run} is still running", fix="wait for its end")
    if table.stage is not None:
        return run, tuple(sample_files(run, table.stage, table.steps))
    return run, (record_file(run, table.evaluation or "", table.checkpoint or ""),)


def provenance(root: Path, name: str, table: Recorded) -> dict[str, str]:
    """Which run the answers are of, and the sha256 of their files."""
    run, files = files_of(root, name, table)
    return {"run": str(run), "file_sha256": files_sha256(run, files)}


def run_rows(records: Records, prompts: Mapping[str, Row], each: str) -> Loaded:
    """A row for each answer, or for `each` "group", to the rows in `prompts`. Raises
    InputError."""
    for answer in records.answers:
        if answer.row not in prompts:
            raise InputError(f"{records.run}: its data holds no row {answer.row!r} any more")
    if each == "group":
        return grouped(records, prompts)
    judged = [answer for answer in records.answers if answer.reward is not None]
    abstained = tuple(answer.id for answer in records.answers if answer.reward is None)
    rows = tuple(answered(records, prompts[answer.row], answer) for answer in judged)
    return Loaded(rows, {ABSTAINED: abstained} if abstained else {})


def check_unchanged(run: RunDirectory, experiment: Experiment, data: str, root: Path) -> None:
    """Raise InputError where a file that the run read holds something else by now."""
    noted = read_manifest(run).get("data", {})
    for name in sorted(mixed(experiment, data)):
        kind, _, file = (experiment.data[name].source or "").partition(":")
        before = noted.get(name, {}).get("file_sha256")
        if kind == "path" and before is not None and sha256_file(root / file) != before:
            problem = f"{root / file} has changed since {run} read it"
            raise InputError(problem, fix="restore it: the prompts of the run are read from it")


def answered(records: Records, row: Row, answer: Sample) -> Row:
    """A row that ends with the completion; the gold answer moves to `extra.gold`. Left as the gold,
    a task might train on it in place of what was said."""
    messages = answer.messages or (Message("assistant", answer.text),)
    extra: dict[str, Any] = {k: v for k, v in row.extra.items() if k != "candidates"}
    extra |= {"run": str(records.run), "reward": answer.reward, "parts": answer.parts}
    extra |= {"ended": answer.ended}
    if answer.step is not None:
        extra["step"] = answer.step
    if row.gold is not None:
        extra["gold"] = row.gold
    return replace(
        row,
        id=answer.id,
        messages=(*row.prompt, *messages),
        gold=None,
        conversation=conversation_of(row),
        extra=extra,
    )


def grouped(records: Records, prompts: Mapping[str, Row]) -> Loaded:
    """One row for each group, with its completions as `candidates` for RCE."""
    groups: dict[tuple[str, str], list[Sample]] = {}
    abstained = []
    for answer in records.answers:
        if answer.messages:
            fix = 'leave out each = "group"'
            raise InputError(f"{answer.id}: a candidate is one text, not several turns", fix=fix)
        if answer.reward is None:
            abstained.append(answer.id)
        else:
            visit = f"{answer.step or 0}.{answer.visit}"
            groups.setdefault((answer.row, visit), []).append(answer)
    rows = tuple(
        candidate_row(records, prompts[row], visit, answers)
        for (row, visit), answers in groups.items()
    )
    return Loaded(rows, {ABSTAINED: tuple(abstained)} if abstained else {})


def candidate_row(records: Records, row: Row, visit: str, answers: Sequence[Sample]) -> Row:
    """A row with the completions of one group; mean and spread of their rewards are in `extra`."""
    rewards = [answer.reward or 0.0 for answer in answers]
    mean = sum(rewards) / len(rewards)
    extra = {
        **row.extra,
        "run": str(records.run),
        "candidates": [candidate_of(answer) for answer in answers],
        "reward_mean": mean,
        "reward_std": (sum((r - mean) ** 2 for r in rewards) / len(rewards)) ** 0.5,
    }
    return replace(row, id=f"{row.id}@{visit}", conversation=conversation_of(row), extra=extra)


def candidate_of(answer: Sample) -> dict[str, Any]:
    """A judged completion as a stored candidate: what was judged, the tokens that were sampled, and
    the fingerprint of the prompt that they followed."""
    candidate: dict[str, Any] = {"text": answer.text, "reward": answer.reward}
    candidate |= {"parts": answer.parts} if answer.parts else {}
    candidate |= {"facts": answer.facts} if answer.facts else {}
    if answer.tokens:
        candidate |= {"tokens": list(answer.tokens), "prompt_sha256": answer.prompt}
    return candidate


def with_pass_rates(
    rows: Sequence[Row], table: PassRate, records: Records, prompts: Mapping[str, Row]
) -> tuple[Row, ...]:
    """The rows with `extra.pass_rate`, where the run has answers to them. Raises InputError
    where it has none to any, InputError where an id is another row there."""
    passed: dict[str, list[bool]] = {}
    for answer in records.answers:
        if answer.reward is not None:
            passed.setdefault(answer.row, []).append(answer.reward >= table.passes)
    if not passed.keys() & {row.id for row in rows}:
        fix = nearest(rows[0].id, passed) if rows else "it has no rows"
        raise InputError(f"{records.run} measured none of these rows", fix=fix)
    made = []
    for row in rows:
        if row.id in passed:
            if row.id not in prompts or prompts[row.id].prompt != row.prompt:
                problem = f"row {row.id!r} is another one than {records.run} measured"
                raise InputError(problem, field="pass_rate", fix="measure these rows")
            rate = sum(passed[row.id]) / len(passed[row.id])
            row = replace(row, extra={**row.extra, PASS_RATE: rate})
        made.append(row)
    return tuple(made)


@dataclass(frozen=True, slots=True)
class Example:
    """The best completion of one row."""

    row: Row
    text: str
    reward: float

    @property
    def asks(self) -> str:
        """The question in a normal form."""
        return normalise_text(question(self.row))

    @property
    def told(self) -> dict[str, Any]:
        """What a row holds of it."""
        source = {"row": self.row.id, "question": question(self.row)}
        return {**source, "text": self.text, "reward": self.reward}


def with_examples(
    rows: Sequence[Row], table: Examples, records: Records, prompts: Mapping[str, Row]
) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """The rows with `extra.examples`, and the ids of those that have fewer than `shots`.

    Raises InputError for answers of an evaluation that reports, InputError where no answer
    earned `least`.
    """
    described = records.files[0].with_name("evaluation.json")
    if table.evaluation is not None and read_description(described).role == "report":
        problem = f"{table.evaluation!r} of {records.run} reports: its items are a test"
        fix = "take the samples of a stage, or an evaluation with role select"
        raise InputError(problem, field="examples.evaluation", fix=fix)
    pool = best_answers(records.answers, prompts, table.least)
    if not pool:
        problem = f"no completion of {records.run} has a reward of at least {table.least:g}"
        raise InputError(problem, field="examples.least", fix="lower it")
    examples = [high_reward_examples(row, pool, table.shots, table.same) for row in rows]
    fewer = tuple(r.id for r, own in zip(rows, examples, strict=True) if len(own) < table.shots)
    return tuple(
        replace(row, extra={**row.extra, EXAMPLES: [each.told for each in own]})
        for row, own in zip(rows, examples, strict=True)
    ), fewer


def best_answers(
    answers: Iterable[Sample], prompts: Mapping[str, Row], least: float
) -> tuple[Example, ...]:
    """The best single answer of each row that earned `least` or more; of equal ones the first."""
    best: dict[str, Example] = {}
    for answer in answers:
        if answer.reward is None or answer.reward < least or answer.messages:
            continue
        if answer.row in prompts and (
            answer.row not in best or answer.reward > best[answer.row].reward
        ):
            best[answer.row] = Example(prompts[answer.row], answer.text, answer.reward)
    return tuple(best.values())


def high_reward_examples(
    row: Row, pool: Sequence[Example], shots: int, same: str | None = None, seed: int = 0
) -> list[Example]:
    """Up to `shots` examples for a row, drawn from those of other conversations and questions.

    With `same`, a field such as `extra.problem_type`, only from rows that have the row's value
    there. The draw depends on the seed and on ids alone.
    """
    asks, own = normalise_text(question(row)), conversation_of(row)
    value = field_value(row, same) if same is not None else None
    others = {
        each.row.id: each
        for each in pool
        if conversation_of(each.row) != own
        and each.asks != asks
        and (same is None or field_value(each.row, same) == value)
    }
    names = drawn({f"{row.id}\n{name}" for name in others}, shots, seed)
    return [others[name.removeprefix(f"{row.id}\n")] for name in names]


def refuse_leaked(rows: Sequence[Row], tested: Sequence[Row], test: str) -> None:
    """Raise InputError where an example of a row asks what an item of a test asks."""
    questions = {normalise_text(question(item)) for item in tested}
    for row in rows:
        for each in row.extra.get(EXAMPLES, ()):
            if normalise_text(each["question"]) in questions:
                problem = f"row {row.id} has an example that asks what {test} asks: {each['row']}"
                fix = "let the run of the examples train on rows that share no question with it"
                raise InputError(problem, field="examples", fix=fix)


FOLDER = "selections"
SCHEMA = 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
SHOWN = 3


@dataclass(frozen=True, slots=True)
class ScoredRow:
    """One row that was measured."""

    id: str
    sha256: str
    """Of what the row says, see `row_sha256`."""
    score: float | None
    """None where it could not be scored."""
    answers: int
    """Judged answers that the score stands on."""
    curve: Sequence[float | None]
    """Share of right answers by epoch; empty where epochs do not count."""
    dropped: str = ""
    """Why the row is not selected; "" for one that is."""


@dataclass(frozen=True)
class RowSelection:
    """Which rows were chosen, by what, from which answers of which run."""

    rule: Mapping[str, Any]
    """`by`, and the parameters of the rule."""
    run: str
    recorded: Mapping[str, Any]
    """`stage` and `steps`, or `evaluation`, `checkpoint` and `role`; `files` and `file_sha256`."""
    data: Mapping[str, Any]
    """`name` and `source` of the rows in that run, and `rows_sha256` of those that were scored."""
    made: str
    """UTC, ISO 8601."""
    counts: Mapping[str, Any]
    """`scored`, `kept`, and `dropped` by reason."""
    rows: Sequence[ScoredRow]

    @cached_property
    def kept(self) -> Mapping[str, ScoredRow]:
        """The selected rows by id."""
        return {row.id: row for row in self.rows if not row.dropped}

    @property
    def provenance(self) -> dict[str, Any]:
        """All but the rows, for manifests and displays."""
        values = asdict(replace(self, rows=()))
        del values["rows"]
        return values

    @property
    def origin(self) -> str:
        """Rule and answers in words."""
        rule = ", ".join(f"{key} {value}" for key, value in self.rule.items() if value is not None)
        keys = ("stage", "evaluation", "checkpoint")
        where = " ".join(f"{key} {self.recorded[key]}" for key in keys if key in self.recorded)
        return f"{rule.removeprefix('by ')}; {self.run}, {where}"


@dataclass(frozen=True)
class TakenSelection:
    """A selection that a data set takes."""

    file: str
    """As the experiment names it."""
    sha256: str
    """Of the file."""
    selection: RowSelection
    total: int
    """Training rows that there were to choose from."""

    @property
    def record(self) -> dict[str, Any]:
        """What a manifest notes of it."""
        return {"sha256": self.sha256, **self.selection.provenance}


def row_sha256(row: Row) -> str:
    """The sha256 of all that a row says, its id included; a pass rate is not the row's own."""
    extra = {key: value for key, value in row.extra.items() if key != PASS_RATE}
    return hash_contents((replace(row, extra=extra),))


def rows_sha256(rows: Iterable[ScoredRow]) -> str:
    """One hash of ids and contents, in their order."""
    return sha256_text(canonical_json([[row.id, row.sha256] for row in rows]))


def free_selection_file(root: Path, name: str) -> Path:
    """Where the selection `name` is to be written. Raises InputError where it exists, and for a
    name that is none of a file."""
    if not _NAME.fullmatch(name):
        fix = "write letters, digits, '.', '_' and '-', such as limr-06"
        raise InputError(f"{name!r} is not the name of a selection", fix=fix)
    file = root / FOLDER / f"{name.removesuffix('.json')}.json"
    if file.exists():
        fix = "a selection is never overwritten: choose another name"
        raise InputError("exists", file=file, fix=fix)
    return file


def write_row_selection(root: Path, name: str, selection: RowSelection) -> Path:
    """Write a selection, whole or not at all. Raises InputError for a name that exists."""
    values: dict[str, Any] = {"schema": SCHEMA, **asdict(selection)}
    values["sha256"] = _own(values)
    lines = (json.dumps(row, ensure_ascii=False) for row in values.pop("rows"))
    head = json.dumps(values, indent=1, ensure_ascii=False).removesuffix("\n}")
    text = head + ',\n "rows": [\n  ' + ",\n  ".join(lines) + "\n ]\n}\n"
    (root / FOLDER).mkdir(parents=True, exist_ok=True)
    with locked(root / FOLDER):
        file = free_selection_file(root, name)
        atomic_write_text(file, text)
    return file


def read_row_selection(file: Path) -> RowSelection:
    """A selection as it was written. Raises InputError."""
    values = read_json(file, dict)
    if values.pop("sha256", None) != _own(values):
        raise InputError("is damaged: it does not hold what was written", file=file, fix=FIX)
    if values.pop("schema") != SCHEMA:
        raise InputError("was written by another version", file=file, fix="select again")
    return as_entry(RowSelection, values, file)


def chosen_rows(
    root: Path, name: str, source: Sequence[Row], rows: Sequence[Row]
) -> tuple[TakenSelection, tuple[Row, ...]]:
    """The selection in the file `name`, and those of the `rows` that it selects, in their order.

    Relative files lie in `root`; `source` holds all rows that the data set reads. Raises
    InputError where the selection was made on other rows.
    """
    file = root / name
    selection = read_row_selection(file)
    known = {row.id: row for row in source}
    kept = selection.kept
    origin = f"{selection.data['name']} of {selection.run}, {selection.data['source']}"
    _refuse(name, [id_ for id_ in kept if id_ not in known], "are not here", kept, origin)
    changed = [id_ for id_, row in kept.items() if row_sha256(known[id_]) != row.sha256]
    _refuse(name, changed, "say something else here", kept, origin)
    chosen = TakenSelection(name, sha256_file(file), selection, len(rows))
    return chosen, tuple(row for row in rows if row.id in kept)


def _refuse(
    name: str, ids: Sequence[str], what: str, kept: Mapping[str, ScoredRow], origin: str
) -> None:
    if ids:
        some = ", ".join(repr(id_) for id_ in ids[:SHOWN]) + (", ..." if ids[SHOWN:] else "")
        problem = f"{name} was made on other rows: {len(ids)} of its {len(kept)} {what}: {some}"
        fix = f"read the rows as data.{origin} does, or select again"
        raise InputError(problem, field="take.selection", fix=fix)


def _own(values: Mapping[str, Any]) -> str:
    """The hash of the file's other entries, which the file holds too."""
    return sha256_text(canonical_json(values))
