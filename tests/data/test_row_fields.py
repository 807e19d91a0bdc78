"""Conditions keep exactly the rows that they name, and sorting is by value and stable."""

import pytest

from assay.data.row import Message, Row
from assay.data.row_checks import Condition, field_problem, field_value, sorted_places, where


def row(id_: str, gold: object = None, **extra: object) -> Row:
    return Row(id_, (Message("user", "?"),), gold=gold, origin=f"rows.jsonl:{id_}", extra=extra)


ROWS = (
    row("1", level=0.1, tags=["a"], on=True),
    row("2", level="0.5", tags=["a", "b"], on=False, name="easy sum"),
    row("3", level=0.9, gold={"kind": "x"}, name="hard sum"),
    row("4"),
)


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        (Condition("extra.level", at_least=0.5), "23"),
        (Condition("extra.level", above=0.1, below=0.9), "2"),
        (Condition("extra.level", equals=0.5), "2"),
        (Condition("extra.level", one_of=(0.1, 0.9)), "13"),
        (Condition("extra.level", none_of=(0.1,)), "23"),
        (Condition("extra.level", exists=False), "4"),
        (Condition("extra.tags", contains="b"), "2"),
        (Condition("extra.name", contains="sum"), "23"),
        (Condition("gold.kind", equals="x"), "3"),
    ],
)
def test_a_condition_keeps_the_rows_that_meet_it(condition: Condition, kept: str) -> None:
    rows, dropped = where(ROWS, (condition,))
    assert "".join(one.id for one in rows) == kept
    (ids,) = dropped.values()
    assert {*ids} == {"1", "2", "3", "4"} - {*kept}


def test_a_row_is_counted_by_the_first_condition_that_it_misses() -> None:
    high, low = Condition("extra.level", at_least=0.5), Condition("extra.level", at_most=0.6)
    kept, dropped = where(ROWS, (high, low))
    assert [one.id for one in kept] == ["2"]
    assert list(dropped.values()) == [("1", "4"), ("3",)]
    assert next(iter(dropped)) == "where: not extra.level at_least 0.5"


def test_paths_that_are_no_field() -> None:
    assert not any(map(field_problem, ("id", "gold", "gold.x", "extra.x", "extra.x.y")))
    assert all(map(field_problem, ("level", "extra", "extra.", "id.x", "messages")))


def test_a_path_goes_into_tables_and_over_keys_with_dots() -> None:
    nested = row("1", **{"a": {"b": 1}, "a.c": 2, "d": {"e.f": 3}})
    paths = ("extra.a.b", "extra.a.c", "extra.d.e.f", "extra.a.x", "extra.a.b.c")
    assert [field_value(nested, path) for path in paths] == [1, 2, 3, None, None]


def test_rows_are_sorted_by_value_and_equal_ones_stay_as_given() -> None:
    levels = [3, "1", 2.0, 1, 10]
    rows = [row(str(n), level=level) for n, level in enumerate(levels)]
    assert sorted_places(rows, "extra.level", False) == (1, 3, 2, 0, 4)
    assert sorted_places(rows, "extra.level", True) == (4, 0, 2, 1, 3)
    named = [row(str(n), name=name) for n, name in enumerate(["b", "a", "10"])]
    assert sorted_places(named, "extra.name", False) == (2, 1, 0)
