"""What a judge said of answers that people labelled, stored in a run: `agreement/NAME-HASH.json`.

`lab.evaluate.judge_labels` writes it. Beside it lies the journal of what the judge was asked, so
that labels that are added later cost no verdict twice.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from assay.runs.run_directory import RunDirectory
from assay.runs.run_files import FIX, DamagedFile, as_entry, read_json, write_listed

FOLDER = "agreement"
SCHEMA = 2


@dataclass(frozen=True, slots=True)
class Judged:
    """One labelled answer, and what the judge said of it."""

    item: str
    cluster: str
    """The source of the item; intervals are over these."""
    label: Mapping[str, float]
    """Of people, by criterion; of a pair under `preference`."""
    verdict: Mapping[str, float]
    """Of the judge, by the same names; empty where it abstained."""


@dataclass(frozen=True)
class JudgedLabels:
    """The labelled answers of a rubric and what its judge said of them."""

    kind: str
    """The name of the reward."""
    settings: Mapping[str, Any]
    """The rubric, as records of evaluations have it among their options."""
    levels: Mapping[str, Sequence[float]]
    """The grades of each criterion."""
    model: str
    least_kappa: float
    labels: str
    """The name of the file of labels."""
    judged: Sequence[Judged]


def write_judged(run: RunDirectory, name: str, found: JudgedLabels) -> Path:
    """Write what was found, in the place of what was there; returns the file."""
    file = run.path / FOLDER / f"{name}.json"
    file.parent.mkdir(exist_ok=True)
    write_listed(
        run.path, file, json.dumps({"schema": SCHEMA, "name": name, **asdict(found)}) + "\n"
    )
    return file


def read_judged(run: RunDirectory) -> list[JudgedLabels]:
    """All that the run holds. Raises DamagedFile."""
    return [read_file(file) for file in sorted((run.path / FOLDER).glob("*.json"))]


def read_file(file: Path) -> JudgedLabels:
    """What one file holds, without what older ones held besides. Raises DamagedFile."""
    values = read_json(file, dict)
    if (name := values.get("name", file.stem)) != file.stem:
        raise DamagedFile(f"holds {name}", file=file, fix=FIX)
    kept = {each.name: values[each.name] for each in fields(JudgedLabels) if each.name in values}
    known = [each.name for each in fields(Judged)]
    kept["judged"] = [
        {name: each[name] for name in known if name in each} for each in kept.get("judged", ())
    ]
    return as_entry(JudgedLabels, kept, file)
