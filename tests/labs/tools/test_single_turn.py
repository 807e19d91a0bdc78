"""BFCL categories as rows: every entry, the right target, and every row without one counted."""

from collections.abc import Sequence

import pytest

from assay.data.leakage import EXACT, FUNCTION, NORMALISED, separate
from assay.data.loaded import Loaded
from assay.data.tools import function_names
from assay.errors import InputError
from assay.labs.tools.multi_turn import HINT
from assay.labs.tools.rewards import RELEVANCE
from assay.labs.tools.single_turn import CATEGORIES, entries, read_bfcl
from tests.labs.tools.upstream import loaded

PREFIX = "no possible answer passes the checker: simple_function_checker:"
MISSES = {
    "live_simple": {"missing_required": ("live_simple_106-63-0", "live_simple_112-68-0")},
    "live_multiple": {
        "unexpected_param": ("live_multiple_862-181-3",),
        "missing_required": ("live_multiple_964-207-0",),
    },
}
SIZES = {
    "simple_python": 400,
    "multiple": 200,
    "parallel": 200,
    "parallel_multiple": 200,
    "live_simple": 258,
    "live_multiple": 1053,
    "live_parallel": 16,
    "live_parallel_multiple": 24,
}


@pytest.mark.parametrize("category", CATEGORIES)
def test_every_entry_is_kept_or_dropped_with_its_reason(category):
    loaded = read_bfcl(category)
    expected = {PREFIX + reason: ids for reason, ids in MISSES.get(category, {}).items()}
    assert loaded.dropped == expected
    lost = sum(map(len, expected.values()))
    assert len(entries(category)) == SIZES[category] == len(loaded.rows) + lost


LOADED = (*CATEGORIES, *RELEVANCE)


@pytest.mark.parametrize("category", LOADED)
def test_rows_are_what_upstreams_loader_gives_and_name_their_line(category):
    upstream, truths = loaded(*LOADED)[category]
    rows = entries(category)
    assert [row.gold for row in rows] == (truths or [None] * len(rows))
    for number, (row, entry) in enumerate(zip(rows, upstream, strict=True), start=1):
        assert (row.id, list(row.tools)) == (entry["id"], entry["function"])
        assert row.origin == f"BFCL_v4_{category}.json:{number}"
        assert all(doc["description"].endswith(HINT) for doc in row.tools)
        asked = [{"role": m.role, "content": m.content} for m in row.prompt]
        assert asked == entry["question"][0]
    assert len({row.id for row in rows}) == len(rows)


def call(category: str, index: int) -> tuple[str, dict]:
    found = entries(category)[index].messages[-1].tool_calls[0]
    return found.name, dict(found.arguments)


def test_target_is_the_first_possible_answer_without_optional_arguments():
    assert call("simple_python", 0) == (
        "calculate_triangle_area",
        {"base": 10, "height": 5, "unit": "units"},
    )
    assert call("multiple", 0) == (
        "triangle_properties.get",
        {"side1": 5, "side2": 4, "side3": 3},
    )


def test_required_argument_whose_first_answer_is_empty_gets_the_next():
    row = entries("simple_python")[200]
    assert row.gold[0]["calculate_emissions"]["fuel_efficiency"] == ["", 25.0]
    assert call("simple_python", 200)[1]["fuel_efficiency"] == 25.0


def test_options_inside_dicts_and_lists_of_dicts_are_resolved():
    row = entries("live_parallel_multiple")[0]
    assert row.messages[-1].tool_calls[1].arguments["new_preferences"] == {
        "size": "large",
        "temperature": "hot",
        "milk_type": "almond",
    }


def test_optional_argument_that_the_function_does_not_declare_is_left_out():
    row = entries("parallel_multiple")[26]
    assert row.gold[1]["bank.calculate_balance"]["type"] == ["credit", ""]
    assert "type" not in row.messages[-1].tool_calls[1].arguments


def test_live_rows_of_one_function_doc_stay_together():
    rows = {row.id: row for row in entries("live_simple")}
    assert rows["live_simple_4-3-0"].conversation == rows["live_simple_5-3-1"].conversation
    assert rows["live_simple_0-0-0"].conversation != rows["live_simple_1-1-0"].conversation
    assert {row.conversation for row in entries("simple_python")} == {""}
    groups = {row.conversation for row in rows.values()}
    assert len(groups) == 138


def test_unknown_category_offers_the_nearest():
    with pytest.raises(InputError, match=r"unknown BFCL category 'live_simpel'.*'live_simple'"):
        entries("live_simpel")


def training_rows(category: str, against: Sequence[str]) -> Loaded:
    """The rows of `category` that share nothing with any entry of the categories `against`."""
    return separate(read_bfcl(category).rows, [row for name in against for row in entries(name)])


def test_live_simple_shares_two_function_names_with_simple_python_and_no_question():
    loaded = training_rows("live_simple", ["simple_python"])
    counts = {reason: len(ids) for reason, ids in loaded.dropped.items()}
    assert counts == {FUNCTION: 20}
    assert len(loaded.rows) == 258 - 2 - 20
    rows = {row.id: row for row in entries("live_simple")}
    names = [function_names(rows[id].tools)[0] for id in loaded.dropped[FUNCTION]]
    assert (names.count("get_current_weather"), names.count("send_email")) == (19, 1)


def test_multiple_repeats_101_questions_of_simple_python():
    loaded = training_rows("multiple", ["simple_python"])
    counts = {reason: len(ids) for reason, ids in loaded.dropped.items()}
    assert counts == {EXACT: 100, NORMALISED: 1, FUNCTION: 14}
    assert loaded.dropped[NORMALISED] == ("multiple_138",)
