"""Rows get the selections that are theirs, from the pool that these were picked from; what a looser
rule scored is left out and counted.
"""

from pathlib import Path
from typing import Any

import pytest

from assay.data.loaded import Loaded
from assay.errors import InputError
from assay.experiment.selection_tables import SelectionsSpec
from assay.labs.demos.demonstrations import POOL
from assay.labs.demos.selection_file import SelectionFile
from assay.labs.demos.stored import (
    ALL_SKIPPED,
    NOT_STORED,
    OTHER_LAYOUT,
    refuse_unhealthy,
    with_selections,
)
from assay.tasks.task import BenchmarkOptions
from tests.labs.demos.kinds_lab import read_kinds
from tests.labs.demos.test_selection_file import candidate, of_global_pointers, read

ROWS = read_kinds("train", BenchmarkOptions({})).rows
PICKS = [13, 16]


def scored(score: float, **changes: Any) -> dict[str, Any]:
    correct = int(score > 0)
    given = {"vqa_acc_score": score, "vqa_correct": correct, **changes}
    return of_global_pointers(**given) | {"pointer": PICKS}


def file_of(folder: Path, queries: dict[str, list[dict[str, Any]]], **about: Any) -> SelectionFile:
    """Queries by the number of the demonstration that each is."""
    written = {
        key: {"query": about or {"query_id": int(key)}, "pointer_candidates": candidates}
        for key, candidates in queries.items()
    }
    return read(folder, written)


def spec(**changes: Any) -> SelectionsSpec:
    return SelectionsSpec(data="train", file="path:rl_data.json", **changes)


def loaded(found: SelectionFile, **changes: Any) -> Loaded:
    return with_selections(found, spec(**changes), ROWS)


def test_a_file_of_numbers_gives_the_rows_of_those_demonstrations(tmp_path):
    found = loaded(file_of(tmp_path, {"3": [scored(0.6)], "4": [scored(0.0)]}))
    assert [row.id for row in found.rows] == ["item-3", "item-4"]
    assert len(found.dropped[NOT_STORED]) == 10
    (stored,) = found.rows[0].extra["candidates"]
    assert stored["text"] == "[13, 16]" and stored["reward"] == 1.6, "hard plus soft"
    facts = stored["facts"]
    assert (facts["accuracy"], facts["eval_mode"], facts["relevance"]) == (0.6, "official", 1.0)
    assert facts["gold_probability"] == 0.31


def test_what_a_looser_rule_scored_is_left_out_and_counted(tmp_path):
    loose = scored(1.0, vqa_eval_mode="fallback")
    found = file_of(tmp_path, {"3": [scored(0.6), loose], "4": [loose]})
    skipped = loaded(found)
    assert [len(row.extra["candidates"]) for row in skipped.rows] == [1]
    assert skipped.dropped[ALL_SKIPPED] == ("item-4",)
    assert {*skipped.remarks.values()} == {("item-3",)}
    assert {*skipped.remarks} == {"selections scored by a fallback are left out", OTHER_LAYOUT}
    kept = loaded(found, fallback="keep")
    assert [len(row.extra["candidates"]) for row in kept.rows] == [2, 1]


def test_the_reports_file_is_refused_unless_both_faults_are_allowed(tmp_path):
    """One positive among many queries, as 5 of 800; here 0 of 12."""
    found = file_of(tmp_path, {str(n): [scored(0.0), scored(0.0)] for n in range(12)})
    with pytest.raises(InputError, match="0 of 12 queries have a positive candidate"):
        refuse_unhealthy(found, spec(), ROWS)
    with pytest.raises(InputError, match="0 of 12 groups have rewards that differ"):
        refuse_unhealthy(found, spec(allow=("few_queries_with_a_positive",)), ROWS)
    both = ("few_queries_with_a_positive", "few_groups_with_signal")
    refuse_unhealthy(found, spec(allow=both), ROWS)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (scored(1.0) | {"pointer": [13, 99]}, "99 is not among 18 demonstrations"),
        (scored(1.0) | {"pointer": [13, 3]}, "3 is the query itself"),
        (scored(1.0) | {"pointer": [13]}, "are not the 2 shots of the data set"),
    ],
)
def test_picks_that_the_data_set_has_not_are_refused_by_query(tmp_path, given, said):
    with pytest.raises(InputError, match=said) as refused:
        loaded(file_of(tmp_path, {"3": [given]}))
    assert "rl_data.json: query 3" in str(refused.value)


def test_local_pointers_pick_from_the_pool_of_the_file(tmp_path):
    pool = [17, 13, 2, 16]
    entry = {"query": {"question_id": "item-3"}, "candidate_pool_ids": pool}
    entry["pointer_candidates"] = [candidate(pointer_global=PICKS)]
    (row,) = loaded(read(tmp_path, {"0": entry})).rows
    assert row.extra[POOL] == pool
    assert row.extra["candidates"][0]["text"] == "[13, 16]"
