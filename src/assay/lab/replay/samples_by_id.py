"""Finds samples of training steps and answers of evaluations by their ids.

Ids, after `RUN:`, are `STAGE/STEP/ROW#SAMPLE` and `EVALUATION/CHECKPOINT/ITEM#REPEAT`. Without `#N`
they mean all samples of the row or item; a bare row or item id means all of them in the run. If a
row is named `a#1`, the id `a#1` is still sample 1 of row `a`, where there is one. Reads records
only, except `prompt_of`, which renders the prompt again.
"""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from assay.errors import InputError, nearest
from assay.runs.records import FACTS, check_types, reading, whole_table
from assay.runs.run_directory import RunDirectory
from assay.runs.run_files import read_json

if TYPE_CHECKING:  # a session loads torch, which finding a record can do without
    from assay.data.episode import Context
    from assay.experiment.rendering_settings import RenderingSettings
    from assay.lab.setup.evaluation import Evaluation
    from assay.lab.setup.session import Session

Line = dict[str, Any]


class SampleNotFound(InputError):
    """No sample, row or item of the run has this id."""


def find_samples(run: RunDirectory, id_: str) -> list[Line]:
    """The lines of the records that `id_` means, each with `file` (where it is), `parts` and
    `facts` as objects, and its text under `text`.

    Raises SampleNotFound with the nearest names at the first part of the id that is unknown.
    """
    head, _, rest = id_.partition("/")
    folders = record_folders(run)
    if head in folders and "/" in rest:
        place, _, item = rest.partition("/")
        return _in_file(run, _member(folders[head], place, f"{run} {head}"), item)
    files = _all_files(folders)
    found = _one_meaning([line for file in files for line in _lines(run, file, id_)], id_)
    if not found:
        places = "an evaluation or stage is one of " + ", ".join(folders) if folders else ""
        raise SampleNotFound(f"{run} has no sample, row or item {id_!r}", fix=places)
    return found


def record_folders(run: RunDirectory) -> dict[str, list[Path]]:
    """Folders of records by what ids call them: stages, evaluations, evaluations with their hash.

    An evaluation's bare name may stand for several records, made with different settings.
    """
    found: dict[str, list[Path]] = {}
    for folder in _folders(run.path / "samples"):
        found[folder.name] = [folder]
    for folder in _folders(run.evaluations):
        for name in (folder.name.rpartition("-")[0], folder.name):
            found.setdefault(name, []).append(folder)
    return found


def prompt_of(session: "Session", line: Line) -> str:
    """The prompt that a line of `find_samples` answers, rendered again, control tokens included.

    Raises SampleNotFound where the data holds the row no longer.
    """
    file = session.run.path / line["file"]
    if file.is_relative_to(session.run.evaluations):
        rendering, context = _evaluation_prompt(session, file, line["item_id"])
    else:
        rendering, context = _training_prompt(session, file.parent.name, line["row_id"])
    return session.learner.encoder(rendering).text(context)


def evaluation_of(session: "Session", folder: Path) -> "Evaluation":
    """The evaluation whose records lie in `folder`, from what they say about themselves."""
    from assay.experiment.tables import EvaluateSpec
    from assay.lab.setup.evaluation import encoded_evaluation

    stored = read_json(folder / "evaluation.json", dict)
    if stored["name"] in session.experiment.evaluate:
        return session.evaluations[stored["name"]]
    spec = EvaluateSpec(
        benchmark=stored["benchmark"],
        role=stored["role"],
        checkpoints=("base",),
        options=stored["options"],
    )
    given = (stored["name"], spec, session.task, {}, session.learner, session.seed)
    return encoded_evaluation(*given, root=session.run.root)


def _evaluation_prompt(
    session: "Session", file: Path, item_id: str
) -> "tuple[RenderingSettings, Context]":
    evaluation = evaluation_of(session, file.parent)
    ids = [item.id for item in evaluation.items]
    if item_id not in ids:
        raise SampleNotFound(f"{evaluation.spec.benchmark} has no item {item_id!r} any more")
    return evaluation.spec, evaluation.contexts[ids.index(item_id)]


def _training_prompt(
    session: "Session", stage_name: str, row_id: str
) -> "tuple[RenderingSettings, Context]":
    from assay.lab.setup.learner import first_context
    from assay.lab.setup.prepare import find_part
    from assay.tasks.rendered_dialogue import dialogue_of

    stage = session.experiment.stage[stage_name]
    for row in find_part(session.sets, stage.data):
        if row.id == row_id:
            encoder, task = session.learner.encoder(stage), session.task
            return stage, first_context(encoder, task, row, partial(dialogue_of, task))
    raise SampleNotFound(f"{stage.data} has no row {row_id!r} any more")


def _member(folders: list[Path], place: str, whose: str) -> Path:
    """The file of a checkpoint or step in one of the folders. Raises SampleNotFound."""
    name = f"step-{int(place):06d}" if place.isdecimal() else place
    files = [folder / f"{name}.parquet" for folder in folders]
    there = [file for file in files if file.exists()]
    if len(there) > 1:
        fix = "write " + " or ".join(file.parent.name for file in there) + " for its name"
        raise SampleNotFound(f"{whose} stands for several records of {place}", fix=fix)
    if not there:
        known = [_place(file) for folder in folders for file in sorted(folder.glob("*.parquet"))]
        raise SampleNotFound(f"{whose} has no {place!r}", fix=nearest(place, known))
    return there[0]


def _place(file: Path) -> str:
    step = file.stem.removeprefix("step-")
    return str(int(step)) if step.isdigit() else file.stem


def _in_file(run: RunDirectory, file: Path, item: str) -> list[Line]:
    found = _one_meaning(list(_lines(run, file, item)), item)
    if not found:
        key = _key(file)
        known = set(whole_table(file, columns=[key])[key].to_pylist())
        raise SampleNotFound(f"no {item!r} in {file}", fix=nearest(item, known))
    return found


def _lines(run: RunDirectory, file: Path, item: str) -> Iterator[Line]:
    """Lines of a file whose row or item is `item`, or whose sample id ends in it."""
    key = _key(file)
    bare = item.rpartition("#")[0] or item
    with reading(file):
        table = whole_table(file, filters=[(key, "in", [item, bare])])
        check_types(table.schema)
    for line in table.to_pylist():
        if item in (line[key], _own_id(line)):
            text = {"text": line.pop("output")} if "output" in line else {}
            place = {"file": str(file.relative_to(run.path))}
            read = {"parts": json.loads(line["parts"])}
            if line.get(FACTS):
                read[FACTS] = json.loads(line[FACTS])
            yield {**line, **text, **place, **read}


def _one_meaning(lines: list[Line], item: str) -> list[Line]:
    """The samples of this id where there are any, else those of the row or item of this id."""
    return [line for line in lines if _own_id(line) == item] or lines


def _own_id(line: Line) -> str:
    """`ROW#SAMPLE` or `ITEM#REPEAT`."""
    return line["sample_id"].split("/", 2)[2]


def _key(file: Path) -> str:
    with reading(file):
        names = pq.read_schema(file).names
    return "item_id" if "item_id" in names else "row_id"


def _all_files(folders: dict[str, list[Path]]) -> list[Path]:
    different = dict.fromkeys(folder for group in folders.values() for folder in group)
    return [file for folder in different for file in sorted(folder.glob("*.parquet"))]


def _folders(parent: Path) -> list[Path]:
    return sorted(p for p in parent.iterdir() if p.is_dir()) if parent.is_dir() else []
