"""Training rows never meet the test: how many BFCL rows go, and for which reason."""

from collections.abc import Sequence
from dataclasses import replace

from assay.data.leakage import EXACT, FUNCTION, NORMALISED, separate
from assay.data.loaded import Loaded
from assay.data.row import Message, Row
from assay.data.tools import function_names
from assay.tasks.tools.single_turn import entries, read_bfcl


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


def test_what_is_left_shares_no_function_name_with_any_test_category():
    against = ["simple_python", "multiple"]
    tested = {name for c in against for row in entries(c) for name in function_names(row.tools)}
    left = training_rows("live_multiple", against)
    assert len(left.rows) > 900
    assert all(tested.isdisjoint(function_names(row.tools)) for row in left.rows)
    assert len(left.rows) + sum(map(len, left.dropped.values())) == len(
        read_bfcl("live_multiple").rows
    )


def test_a_category_has_no_row_left_against_itself():
    loaded = training_rows("parallel", ["parallel"])
    assert (loaded.rows, len(loaded.dropped[EXACT])) == ((), 200)


def asks(id: str, text: str, *names: str) -> Row:
    tools = tuple({"name": name, "parameters": {}} for name in names)
    return Row(id, (Message("user", text), Message("assistant", "x")), tools)


def test_each_row_goes_once_for_its_strongest_reason_and_the_others_stay_in_order():
    item = asks("t", "What is 2 + 2?", "add")
    rows = [
        asks("a", "What is 2 - 2?", "subtract"),
        asks("b", "What is 2 + 2?", "add"),
        asks("c", "what is  2 + 2", "other"),
        asks("d", "What is 3 + 3?", "other", "add"),
        asks("e", "Hello", "greet"),
    ]
    loaded = separate(rows, [item, replace(item, id="u")])
    assert [row.id for row in loaded.rows] == ["e"]
    assert loaded.dropped == {EXACT: ("b",), NORMALISED: ("a", "c"), FUNCTION: ("d",)}
