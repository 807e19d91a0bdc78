"""Rows are chosen by what was recorded of them, epoch by epoch, and the file says how."""

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from assay.errors import InputError
from assay.lab.data.prepare import rows_by_id
from assay.lab.data.run_rows import read_row_selection, row_sha256
from assay.runs.history import files_sha256
from assay.runs.run_names import experiment_of
from tests.lab.select.measured_lab import ROWS, group, measured_lab, select, shuffled_steps

A, B, C, D = ROWS
SHARES = {A: [0, 2], B: [2, 4], C: [1, 3], D: [1, 3]}
"""Right answers of four by epoch: the mean is (.25, .75)."""
SCORES = {A: 0.8, B: 0.8, C: 1.0, D: 1.0}


def scores(found: Any) -> dict[str, float | None]:
    return {row.id: row.score for row in found.selection.rows}


def test_curves_are_the_shares_of_full_rewards_by_epoch_of_the_runs_own_order(tmp_path: Path):
    run = measured_lab(tmp_path, shuffled_steps(SHARES))
    found = select(tmp_path, threshold=0.9)
    assert scores(found) == pytest.approx(SCORES)
    curves = {row.id: list(row.curve) for row in found.selection.rows}
    assert curves == {row: [n / 4 for n in shares] for row, shares in SHARES.items()}
    assert set(found.selection.kept) == {C, D}
    assert found.selection.counts["dropped"] == {"score below 0.9": 2}
    assert found.selection.recorded["steps"] == [1, 4] and found.selection.recorded["epochs"] == 2
    assert {row.answers for row in found.selection.rows} == {8} and not found.warnings
    assert found.selection.rule["passes"] == 100 and str(run) == found.selection.run


def test_the_file_holds_where_its_numbers_come_from(tmp_path: Path):
    run = measured_lab(tmp_path, shuffled_steps(SHARES))
    found = select(tmp_path, to="easy")
    assert found.file == tmp_path / "selections" / "easy.json"
    assert read_row_selection(found.file).provenance == json.loads(
        json.dumps(found.selection.provenance)
    )
    stored = json.loads(found.file.read_text())
    files = sorted((run.path / "samples" / "rl").iterdir())
    assert stored["recorded"]["files"] == 4
    assert stored["recorded"]["file_sha256"] == files_sha256(run, files)
    assert stored["data"]["name"] == "sums" and stored["data"]["source"] == "path:sums.jsonl"
    assert stored["rule"] == {
        "by": "limr",
        "threshold": 0.6,
        "passes": 100.0,
    }
    known = rows_by_id(experiment_of(run), "sums", tmp_path)
    assert {row["id"]: row["sha256"] for row in stored["rows"]} == {
        id_: row_sha256(row) for id_, row in known.items()
    }
    assert datetime.fromisoformat(stored["made"]).utcoffset() is not None


def test_a_stage_that_ends_within_an_epoch_is_scored_by_the_whole_ones(tmp_path: Path):
    steps = [*shuffled_steps(SHARES), [group(A, 4), group(B, 4)]]
    measured_lab(tmp_path, steps)
    found = select(tmp_path)
    assert scores(found) == pytest.approx(SCORES)
    assert found.selection.recorded["steps"] == [1, 4]


def test_an_abstention_counts_neither_as_right_nor_as_wrong(tmp_path: Path):
    steps = shuffled_steps(SHARES)
    place = next(i for i, (row, _) in enumerate(steps[0]) if row in ROWS)
    row, rewards = steps[0][place]
    steps[0][place] = (row, [*rewards, None, None])
    measured_lab(tmp_path, steps)
    assert scores(select(tmp_path)) == pytest.approx(SCORES)
    steps[0][place] = (row, [None] * 4)
    other = tmp_path / "other"
    other.mkdir()
    measured_lab(other, steps)
    (found,) = (r for r in select(other, threshold=-9.0).selection.rows if r.id == row)
    assert found.curve[0] is None and found.answers == 4


def test_a_mixture_is_refused(tmp_path: Path):
    measured_lab(tmp_path, shuffled_steps(SHARES), data="mix")
    with pytest.raises(InputError, match=r"data\.mix is a mixture, and a selection is of one set"):
        select(tmp_path)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"stage": "lr"}, "no samples of 'lr' .*'rl'|known: rl"),
        ({"threshold": 1.5}, r"no row is left \(score below 1.5: 4\)"),
        ({"to": "../up"}, "'../up' is not the name of a selection"),
    ],
)
def test_what_cannot_be_selected_is_said_in_one_line_and_writes_nothing(
    tmp_path: Path, options: dict[str, Any], said: str
):
    measured_lab(tmp_path, shuffled_steps(SHARES))
    with pytest.raises(InputError, match=said) as found:
        select(tmp_path, **options)
    assert "\n" not in str(found.value) and not list(tmp_path.glob("selections/*"))


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([[group(A, 1), group(B, 2)]], "visited 2 of the 4 rows of one epoch"),
        ([[group(A, 1), group("9+9", 2)]] * 2, r"holds no row '9\+9' any more"),
        ([[group(row, 4) for row in ROWS]] * 2, "every answer of every epoch is right"),
    ],
)
def test_answers_that_give_no_scores_are_refused(tmp_path: Path, steps: Sequence, said: str):
    measured_lab(tmp_path, steps)
    with pytest.raises(InputError, match=said):
        select(tmp_path)
