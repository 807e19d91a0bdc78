"""Scores of two metrics are never compared: not between runs, whatever is allowed, nor in one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.compare.arm import Provenance, load_arm, one_metric
from assay.compare.judged_table import MIXED, compare_checkpoints
from assay.errors import InputError
from assay.runs.run_directory import RunDirectory
from tests.compare.tables import runs_table
from tests.compare.test_fairness import CLEAN, EVERYTHING
from tests.compare.test_judged_table import RL, control_of
from tests.pages.synthetic import add_scores, empty_run

LAST = "rl.step-000030"


def measured(root: Path, name: str, loosely: int) -> RunDirectory:
    """A run of which the first so many answers of each record were scored by a fallback metric."""
    run = empty_run(root, name)
    for checkpoint, scores in (("base", [0.0] * len(RL)), (LAST, RL)):
        add_scores(run, checkpoint, scores, CLEAN, marking(loosely))
    return run


def marking(loosely: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def change(line: dict[str, Any]) -> dict[str, Any]:
        number = int(line["item_id"].rpartition("_")[2])
        return line | {"parts": f'{{"fallback": {float(number < loosely)}}}'}

    return change


@pytest.mark.parametrize(
    ("one", "other"), [(0, len(RL)), (0, 1), (1, 1), (1, len(RL)), (len(RL), 0)]
)
def test_runs_whose_metrics_differ_or_mix_are_refused_whatever_is_allowed(
    tmp_path: Path, one: int, other: int
) -> None:
    runs = measured(tmp_path, "one", one), measured(tmp_path, "other", other)
    for allow in ((), EVERYTHING, ("evaluation.metric",)):
        with pytest.raises(
            InputError, match=rf"mixed metrics: a fallback scored {one} of 20 answers"
        ):
            runs_table(*runs, allow=allow)


@pytest.mark.parametrize("loosely", [0, len(RL)])
def test_runs_of_one_metric_are_compared(tmp_path: Path, loosely: int) -> None:
    runs = measured(tmp_path, "one", loosely), measured(tmp_path, "other", loosely)
    table = runs_table(*runs)
    assert control_of(table.lines[1]).comparison.verdict != "not comparable"
    assert len([f for f in table.findings if f.code == "fallback_scores"]) == (2 if loosely else 0)


@pytest.mark.parametrize(("loosely", "mixed"), [(0, False), (1, True), (len(RL), False)])
def test_checkpoints_of_a_run_with_both_metrics_get_no_verdict(
    tmp_path: Path, loosely: int, mixed: bool
) -> None:
    run = measured(tmp_path, "one", loosely)
    comparison = control_of(compare_checkpoints(run, "held_out").lines[1]).comparison
    assert (comparison.verdict == "not comparable") == mixed
    assert comparison.confounds == ((MIXED.path,) if mixed else ())


def test_records_that_name_no_metric_have_one(tmp_path: Path) -> None:
    run = empty_run(tmp_path, "one")
    record = add_scores(run, LAST, RL, CLEAN)
    assert one_metric([load_arm(Provenance(run, LAST, record))]) and one_metric([])
