"""BFCL's tables: what was not run has no score, and neither has an average over it."""

from pathlib import Path

import pytest

from assay.data.loaded import DataError
from assay.data.results.bfcl_leaderboard import (
    ITEMS,
    LIVE_ITEMS,
    Reported,
    is_leaderboard,
    read_leaderboard,
)
from assay.data.results.readers import read_results
from assay.errors import InputError
from assay.labs.tools.single_turn import entries

MULTI_TURN = "Rank,Model,Multi Turn Overall Acc,Base,Miss Func,Miss Param,Long Context\n"


def read(folder: Path, text: str, name: str = "data_multi_turn.csv") -> dict[str, Reported]:
    """The scores of the one model of a table, by column."""
    file = folder / name
    file.write_text(text)
    assert is_leaderboard(file)
    return {each.column: each for each in read_leaderboard(file)}


def test_the_trap_of_report_000_is_no_score(tmp_path: Path):
    # Only the base category was run: 60 %. BFCL writes a quarter of it as the overall accuracy,
    # which the report took for the score of the model.
    found = read(tmp_path, MULTI_TURN + "1,thinking,15.00%,60.00%,N/A,N/A,N/A")
    assert (found["Base"].score, found["Base"].items) == (0.6, 200)
    overall = found["Multi Turn Overall Acc"]
    assert (overall.score, overall.over_absent) == (None, True)
    assert [found[c].score for c in ("Miss Func", "Miss Param", "Long Context")] == [None] * 3


def test_a_score_of_zero_and_a_category_that_was_not_run_are_two_things(tmp_path: Path):
    found = read(tmp_path, MULTI_TURN + "1,m,25.00%,50.00%,0.00%,25.00%,25.00%")
    assert found["Multi Turn Overall Acc"].score == 0.25
    assert (found["Miss Func"].score, found["Miss Func"].items) == (0.0, 200)
    assert found["Multi Turn Overall Acc"].items is None


def test_a_share_that_cannot_be_of_so_many_entries_has_no_items(tmp_path: Path):
    # 33.33 % is no number of 200 entries: another version, or a part of the entries.
    found = read(tmp_path, MULTI_TURN + "1,m,N/A,33.33%,N/A,N/A,N/A")
    assert (found["Base"].score, found["Base"].items) == (pytest.approx(0.3333), None)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("1,m,15.00%,0.6,N/A,N/A,N/A", r"csv:2: Base: '0.6' is neither a percentage nor N/A"),
        ("1,m,15.00%,160.00%,N/A,N/A,N/A", r"csv:2: Base: '160.00%' is neither"),
        ("1,m (a, b),15.00%,60.00%,N/A,N/A,N/A", r"csv:2: has 8 fields, and there are 7 columns"),
    ],
)
def test_a_cell_that_is_no_score_is_named(tmp_path: Path, row: str, words: str):
    with pytest.raises(DataError, match=words):
        read(tmp_path, MULTI_TURN + row)


def test_the_sizes_are_those_of_bfcls_own_entries():
    categories = {
        "Python Simple AST": "simple_python",
        "Multiple AST": "multiple",
        "Parallel AST": "parallel",
        "Parallel Multiple AST": "parallel_multiple",
        "Base": "multi_turn_base",
        "Long Context": "multi_turn_long_context",
        "Irrelevance Detection": "irrelevance",
    }
    live = {"Irrelevance Detection": "live_irrelevance", "Relevance Detection": "live_relevance"}
    assert {c: len(entries(n)) for c, n in categories.items()} == {c: ITEMS[c] for c in categories}
    assert {c: len(entries(n)) for c, n in live.items()} == {c: LIVE_ITEMS[c] for c in live}


def test_scores_without_items_are_not_compared_item_by_item(tmp_path: Path):
    file = tmp_path / "data_multi_turn.csv"
    file.write_text(MULTI_TURN + "1,m,15.00%,60.00%,N/A,N/A,N/A")
    with pytest.raises(InputError, match="scores without their items"):
        read_results(file)
