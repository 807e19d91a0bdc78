"""`take = { selection = FILE }`: exactly those rows, unchanged, and never by what reports."""

import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from assay.data import files
from assay.errors import InputError
from assay.experiment.data_tables import DataSpec
from assay.experiment.read_file import read_experiment
from assay.lab.data.prepare import DataSet, describe, load_rows, prepare_set
from assay.lab.data.run_rows import (
    RowSelection,
    ScoredRow,
    read_row_selection,
    row_sha256,
    write_row_selection,
)
from assay.lab.models.learner import Encoder
from assay.tasks.task import task
from tests.forked import forked
from tests.tiny_labs import SUMS, write_rows

SPEC = """
name = "second"
model = "path:model"
task = "math"

[data.sums]
source = "path:sums.jsonl"
format = "messages"
take = { selection = "selections/s.json" }

[stage.sft]
method = "sft"
data = "sums"
steps = 1
batch = 1
"""
SKILL = task("math")
ORIGIN = {"name": "sums", "source": "path:sums.jsonl", "rows_sha256": "0"}
RULE = {"by": "pass-rate", "low": 0.1, "high": 0.9, "passes": 1.0}
RECORDED = {"stage": "rl", "steps": [1, 2], "files": 2, "file_sha256": "f" * 64}


def selection_of(root: Path, *kept: str, **changes: Any) -> RowSelection:
    """A selection of rows of `sums.jsonl`, all of which were scored."""
    rows = load_rows(DataSpec(source="path:sums.jsonl", format="messages"), SKILL, root).rows
    scored = tuple(
        ScoredRow(r.id, row_sha256(r), 0.5, 8, (), "" if r.id in kept else "rate above 0.9")
        for r in rows
    )
    counts = {"scored": len(rows), "kept": len(kept), "dropped": {}}
    made = RowSelection(RULE, "first/1", RECORDED, ORIGIN, "2026-11-23", counts, scored)
    return replace(made, **changes)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_rows(tmp_path / "sums.jsonl", SUMS[:12])
    (tmp_path / "model").mkdir()
    return tmp_path


def prepared(root: Path, text: str = SPEC, name: str = "sums") -> DataSet:
    experiment = read_experiment(written(root, text))
    return prepare_set(experiment, name, SKILL, lambda _: cast(Encoder, None), root)


def written(root: Path, text: str = SPEC) -> Path:
    (root / "second.toml").write_text(text)
    return root / "second.toml"


def with_keys(keys: str) -> str:
    return SPEC.replace('format = "messages"\n', f'format = "messages"\n{keys}\n')


def test_exactly_the_selected_rows_are_trained_on_in_the_order_of_the_source(root: Path):
    write_row_selection(root, "s", selection_of(root, "2+3", "1+1", "1+4"))
    made = prepared(root)
    assert [row.id for row in made.train] == ["1+1", "1+4", "2+3"] and made.dev == ()
    said = describe(made, DataSpec(source="path:sums.jsonl", format="messages"))
    assert "selections/s.json takes 3 of 12 rows (pass-rate, low 0.1, high 0.9" in said
    assert "first/1, stage rl" in said


def test_the_dev_part_is_the_one_without_the_selection(root: Path):
    dev = "split = { dev = 0.25 }"
    whole = prepared(root, with_keys(dev).replace("take =", "# take ="))
    ids = [row.id for row in (*whole.train[:3], whole.dev[0])]
    write_row_selection(root, "s", selection_of(root, *ids))
    made = prepared(root, with_keys(dev))
    assert made.dev == whole.dev and made.train == whole.train[:3]
    write_row_selection(root, "t", selection_of(root, whole.dev[0].id))
    with pytest.raises(InputError, match=r"data\.sums\.take\.selection: no row of .*t\.json is"):
        prepared(root, with_keys(dev).replace("/s.json", "/t.json"))


def test_a_pass_rate_makes_no_row_another_one_and_conditions_act_before(root: Path):
    write_row_selection(root, "s", selection_of(root, "1+1", "2+3"))
    row = prepared(root).train[0]
    assert row_sha256(replace(row, extra={"pass_rate": 0.5})) == row_sha256(row)
    keys = 'where = [{ field = "id", none_of = ["1+1"] }]'
    assert [row.id for row in prepared(root, with_keys(keys)).train] == ["2+3"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"2+3"', '"2and3"', r"was made on other rows: 1 of its 2 are not here: '2\+3'"),
        ("2 + 3 = ?", "3 + 2 = ?", r"other rows: 1 of its 2 say something else here: '2\+3'"),
        (r"boxed{2}", r"boxed{9}", r"1 of its 2 say something else here: '1\+1'"),
    ],
)
def test_other_rows_than_were_scored_are_refused(root: Path, old: str, new: str, said: str):
    write_row_selection(root, "s", selection_of(root, "1+1", "2+3"))
    text = (root / "sums.jsonl").read_text()
    assert text.count(old) == 1
    (root / "sums.jsonl").write_text(text.replace(old, new))
    with pytest.raises(InputError, match=rf"^data\.sums\.take\.selection: .*{said}") as found:
        prepared(root)
    assert "data.sums of first/1, path:sums.jsonl" in str(found.value)
    # A row that was scored and dropped may change: nothing stands on it.
    (root / "sums.jsonl").write_text(text.replace("3 + 1 = ?", "4 + 0 = ?"))
    assert len(prepared(root).train) == 2


def test_items_that_report_never_choose_training_rows(root: Path):
    evaluation = {"evaluation": "dev", "checkpoint": "base", "files": 1, "file_sha256": "f"}
    for role, name in (("report", "s"), ("select", "t")):
        recorded = {**evaluation, "role": role}
        write_row_selection(root, name, selection_of(root, "1+1", recorded=recorded))
    with pytest.raises(InputError, match=r"stage\.sft would train on rows that 'dev' chose"):
        prepared(root)
    mixed = SPEC.replace('data = "sums"', 'data = "mix"') + (
        '[data.more]\nsource = "path:sums.jsonl"\nformat = "messages"\n'
        "[data.mix]\nmix = { sums = 0.5, more = 0.5 }\n"
    )
    with pytest.raises(InputError, match=r"stage\.sft would train on rows"):
        prepared(root, mixed, "mix")
    assert len(prepared(root, SPEC.replace("/s.json", "/t.json")).train) == 1
    untrained = SPEC.replace('data = "sums"', 'data = "more"') + (
        '[data.more]\nsource = "path:sums.jsonl"\nformat = "messages"\n'
    )
    assert len(prepared(root, untrained).train) == 1


def without_hash(text: str) -> str:
    return json.dumps({k: v for k, v in json.loads(text).items() if k != "sha256"})


DAMAGE: dict[str, Callable[[str], str]] = {
    "byte": lambda text: text.replace('"score": 0.5', '"score": 0.6', 1),
    "half": lambda text: text[: len(text) // 2],
    "no hash": without_hash,
    "version": lambda text: text.replace('"schema": 1', '"schema": 2'),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_file_is_refused_in_one_line(root: Path, kind: str):
    file = write_row_selection(root, "s", selection_of(root, "1+1"))
    text = file.read_text()
    file.write_text(DAMAGE[kind](text))
    with pytest.raises(InputError) as found:
        prepared(root)
    assert str(found.value).startswith(str(file)) and "\n" not in str(found.value)
    file.write_text(text)
    assert prepared(root).chosen is not None


def write_and_die(root: str, at: int) -> None:
    """Write a selection, and be killed at one of the moments that the disk is waited for."""
    seen, real = [], files.sync

    def sync(path: Path) -> None:
        seen.append(path)
        if len(seen) == at:
            os.kill(os.getpid(), signal.SIGKILL)
        real(path)

    files.sync = sync
    write_row_selection(Path(root), "s", selection_of(Path(root), "1+1"))


@pytest.mark.parametrize("at", [1, 2])
def test_a_kill_leaves_a_whole_selection_or_none(root: Path, at: int):
    process = forked(write_and_die, str(root), at, log=root / "log")
    process.join()
    assert process.exitcode == -signal.SIGKILL
    again = partial(write_row_selection, root, "s", selection_of(root, "1+1"))
    file = root / "selections" / "s.json"
    assert file.exists() == (at == 2)
    if at == 2:
        with pytest.raises(InputError, match="exists"):
            again()
    else:
        again()
    assert set(read_row_selection(file).kept) == {"1+1"}
    assert [path.name for path in file.parent.iterdir()] == ["s.json"]
