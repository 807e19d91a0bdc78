"""Makes rows of what a run recorded, and gives rows the pass rate that a run measured on them.

A sampled completion becomes the answer of its row, or one candidate among those of its group. The
prompts are read from the data of that run, which must not have changed. Nothing is sampled.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.data.files import sha256_file
from assay.data.loaded import Loaded
from assay.data.row import Message, Row
from assay.data.splits import conversation_of
from assay.errors import InputError, nearest
from assay.experiment.data_tables import DataSpec, PassRate, Recorded
from assay.experiment.experiment import Experiment, mixed
from assay.runs.history import (
    NothingRecorded,
    Sample,
    files_sha256,
    finished_run,
    record_file,
    sample_files,
    samples_in,
)
from assay.runs.manifest_file import read_manifest
from assay.runs.run_directory import RunDirectory
from assay.runs.run_files import read_json
from assay.runs.run_names import experiment_of
from assay.tasks.task import BenchmarkOptions, benchmark, task

RowsOf = Callable[[Experiment, str, Path], Mapping[str, Row]]
"""All rows of a data set of an experiment, by id; relative files lie in the folder."""

PASS_RATE = "pass_rate"
"""The field of `extra` that holds a measured pass rate."""
ABSTAINED = "the reward abstained"


class DataChanged(InputError):
    """Rows that a run read are not there any more, or not as they were."""


@dataclass(frozen=True)
class Records:
    """The answers that a table names, and where they lie."""

    run: RunDirectory
    files: tuple[Path, ...]
    answers: tuple[Sample, ...]


def records_of(root: Path, name: str, table: Recorded, *, tokens: bool = False) -> Records:
    """The answers of the run called `name` that a table names. Raises InputError."""
    run, files = files_of(root, name, table)
    found = (answer for file in files for answer in samples_in(file, tokens=tokens))
    return Records(run, files, tuple(found))


def files_of(root: Path, name: str, table: Recorded) -> tuple[RunDirectory, tuple[Path, ...]]:
    """The run, and the files of the answers. Raises InputError."""
    run = finished_run(root, name)
    if table.stage is not None:
        return run, tuple(sample_files(run, table.stage, table.steps))
    return run, (record_file(run, table.evaluation or "", table.checkpoint or ""),)


def provenance(root: Path, name: str, table: Recorded) -> dict[str, str]:
    """Which run the answers are of, and the sha256 of their files."""
    run, files = files_of(root, name, table)
    return {"run": str(run), "file_sha256": files_sha256(run, files)}


def run_rows(spec: DataSpec, root: Path, rows_of: RowsOf) -> Loaded:
    """The rows of a `run:` source.

    Raises NothingRecorded, DataChanged and what reading the run and its data raises.
    """
    assert spec.source is not None and spec.samples is not None
    as_groups = spec.samples.each == "group"
    found = records_of(root, spec.source.removeprefix("run:"), spec.samples, tokens=as_groups)
    asked = asked_rows(found, spec.samples, root, rows_of)
    for answer in found.answers:
        if answer.row not in asked:
            raise DataChanged(f"{found.run}: its data holds no row {answer.row!r} any more")
    if as_groups:
        return grouped(found, asked)
    judged = [answer for answer in found.answers if answer.reward is not None]
    abstained = tuple(answer.id for answer in found.answers if answer.reward is None)
    rows = tuple(answered(found, asked[answer.row], answer) for answer in judged)
    return Loaded(rows, {ABSTAINED: abstained} if abstained else {})


def asked_rows(found: Records, table: Recorded, root: Path, rows_of: RowsOf) -> Mapping[str, Row]:
    """The rows or items that were answered, by id. Raises DataChanged."""
    experiment = experiment_of(found.run)
    if table.stage is not None:
        data = experiment.stage[table.stage].data.partition(".")[0]
    else:
        stored = read_json(found.files[0].parent / "evaluation.json", dict)
        data = stored["benchmark"].partition(".")[0]
        if data not in experiment.data:
            options = BenchmarkOptions(stored["options"], root)
            made = benchmark(task(experiment.task, root), stored["benchmark"], options)
            return {item.id: item for item in made.items}
    check_unchanged(found.run, experiment, data, root)
    return rows_of(experiment, data, root)


def check_unchanged(run: RunDirectory, experiment: Experiment, data: str, root: Path) -> None:
    """Raise DataChanged where a file that the run read holds something else by now."""
    noted = read_manifest(run).get("data", {})
    for name in sorted(mixed(experiment, data)):
        kind, _, file = (experiment.data[name].source or "").partition(":")
        before = noted.get(name, {}).get("file_sha256")
        if kind == "path" and before is not None and sha256_file(root / file) != before:
            problem = f"{root / file} has changed since {run} read it"
            raise DataChanged(problem, fix="restore it: the prompts of the run are read from it")


def answered(found: Records, row: Row, answer: Sample) -> Row:
    """A row that ends with the completion; the gold answer moves to `extra.gold`.

    Left as the gold, a task might train on it in place of what was said.
    """
    said = answer.messages or (Message("assistant", answer.text),)
    extra: dict[str, Any] = {k: v for k, v in row.extra.items() if k != "candidates"}
    extra |= {"run": str(found.run), "reward": answer.reward, "parts": answer.parts}
    extra |= {"ended": answer.ended}
    if answer.step is not None:
        extra["step"] = answer.step
    if row.gold is not None:
        extra["gold"] = row.gold
    return replace(
        row,
        id=answer.id,
        messages=(*row.prompt, *said),
        gold=None,
        conversation=conversation_of(row),
        extra=extra,
    )


def grouped(found: Records, asked: Mapping[str, Row]) -> Loaded:
    """One row for each group, with its completions as `candidates` for RCE."""
    groups: dict[tuple[str, str], list[Sample]] = {}
    abstained = []
    for answer in found.answers:
        if answer.messages:
            fix = 'leave out each = "group"'
            raise NothingRecorded(
                f"{answer.id}: a candidate is one text, not several turns", fix=fix
            )
        if answer.reward is None:
            abstained.append(answer.id)
        else:
            visit = f"{answer.step or 0}.{answer.visit}"
            groups.setdefault((answer.row, visit), []).append(answer)
    rows = tuple(
        candidate_row(found, asked[row], visit, answers) for (row, visit), answers in groups.items()
    )
    return Loaded(rows, {ABSTAINED: tuple(abstained)} if abstained else {})


def candidate_row(found: Records, row: Row, visit: str, answers: Sequence[Sample]) -> Row:
    """A row with the completions of one group; mean and spread of their rewards are in `extra`."""
    rewards = [answer.reward or 0.0 for answer in answers]
    mean = sum(rewards) / len(rewards)
    extra = {
        **row.extra,
        "run": str(found.run),
        "candidates": [candidate_of(answer) for answer in answers],
        "reward_mean": mean,
        "reward_std": (sum((r - mean) ** 2 for r in rewards) / len(rewards)) ** 0.5,
    }
    return replace(row, id=f"{row.id}@{visit}", conversation=conversation_of(row), extra=extra)


def candidate_of(answer: Sample) -> dict[str, Any]:
    """A judged completion as a stored candidate: what was judged, the tokens that were sampled, and
    the fingerprint of the prompt that they followed."""
    found: dict[str, Any] = {"text": answer.text, "reward": answer.reward}
    found |= {"parts": answer.parts} if answer.parts else {}
    found |= {"facts": answer.facts} if answer.facts else {}
    if answer.tokens:
        found |= {"tokens": list(answer.tokens), "prompt_sha256": answer.prompt}
    return found


def with_pass_rates(
    rows: Sequence[Row], table: PassRate, root: Path, rows_of: RowsOf
) -> tuple[Row, ...]:
    """The rows with `extra.pass_rate`, where the run has answers to them.

    Raises NothingRecorded where it has none to any, DataChanged where an id is another row there.
    """
    found = records_of(root, table.run, table)
    asked = asked_rows(found, table, root, rows_of)
    passed: dict[str, list[bool]] = {}
    for answer in found.answers:
        if answer.reward is not None:
            passed.setdefault(answer.row, []).append(answer.reward >= table.passes)
    if not passed.keys() & {row.id for row in rows}:
        fix = nearest(rows[0].id, passed) if rows else "it has no rows"
        raise NothingRecorded(f"{found.run} measured none of these rows", fix=fix)
    return tuple(_with_rate(row, passed, asked, found.run) for row in rows)


def _with_rate(
    row: Row, passed: Mapping[str, list[bool]], asked: Mapping[str, Row], run: RunDirectory
) -> Row:
    if row.id not in passed:
        return row
    if row.id not in asked or asked[row.id].prompt != row.prompt:
        problem = f"row {row.id!r} is another one than {run} measured"
        raise DataChanged(problem, field="pass_rate", fix="measure these rows")
    rate = sum(passed[row.id]) / len(passed[row.id])
    return replace(row, extra={**row.extra, PASS_RATE: rate})
