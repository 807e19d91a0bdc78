"""Multi-turn entries as rows: what upstream's loader gives, and the ground truth as calls."""

import pytest

from assay.data.tools import function_names
from assay.errors import InputError
from assay.labs.tools.multi_turn import HINT, MULTI_TURN, is_multi_turn
from assay.labs.tools.parsing import PythonCall
from assay.labs.tools.single_turn import entries, read_bfcl
from assay.labs.tools.task import TASK
from tests.labs.tools.scripted import in_batch, truth_calls, world
from tests.labs.tools.upstream import loaded


@pytest.mark.parametrize("category", MULTI_TURN)
def test_rows_are_what_upstreams_loader_gives(category):
    upstream, truths = loaded(*MULTI_TURN)[category]
    rows = entries(category)
    assert len(rows) == len(upstream) == 200
    for row, entry, truth in zip(rows, upstream, truths, strict=True):
        entry = dict(entry)
        assert list(row.tools) == entry.pop("function")
        assert row.extra == {"category": category, "entry": entry}
        assert row.id == entry["id"]
        assert [{"role": m.role, "content": m.content} for m in row.messages] == entry["question"][
            0
        ]
        assert row.gold == truth
        assert len(row.gold) == len(entry["question"])


def test_withheld_functions_are_not_offered_and_carry_no_hint():
    row = entries("multi_turn_miss_func")[3]
    (docs,) = row.extra["entry"]["missed_function"].values()
    assert [doc["name"] for doc in docs] == ["find", "ls"]
    assert not {"find", "ls"} & set(function_names(row.tools))
    assert all(doc["description"].endswith(HINT) for doc in row.tools)
    assert not any(doc["description"].endswith(HINT) for doc in docs)


def test_entries_of_one_scene_stay_together_across_categories():
    groups = [{row.conversation for row in entries(category)} for category in MULTI_TURN]
    assert groups[0] == groups[1] == groups[2] == groups[3]
    assert len(groups[0]) == 200


@pytest.mark.parametrize("category", MULTI_TURN)
def test_truth_with_its_positional_arguments_named_does_the_same(category):
    rows = entries(category)
    written = [[call for turn in row.gold for call in turn] for row in rows]
    named = [
        [
            PythonCall(call.name, (), call.arguments).source
            for turn in truth_calls(row)
            for call in turn
        ]
        for row in rows
    ]
    assert any(
        "(" in a and a != b
        for x, y in zip(written, named, strict=True)
        for a, b in zip(x, y, strict=True)
    )
    worlds = [world(row) for row in rows]
    first = in_batch("both_executors", worlds=worlds, calls=written)
    second = in_batch("both_executors", worlds=worlds, calls=named)
    assert first == second


def test_rows_can_be_trained_on_with_rewards_but_have_no_target():
    loaded = read_bfcl("multi_turn_base")
    assert (len(loaded.rows), loaded.dropped) == (200, {})
    assert all(map(is_multi_turn, loaded.rows))
    with pytest.raises(InputError, match="row multi_turn_base_0 has no target"):
        TASK.target(loaded.rows[0])
