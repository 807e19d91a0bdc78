"""Reasoning that is left out is left out everywhere, and the rows that had some are counted."""

from dataclasses import replace

from assay.data.loaded import LeftOut, Remark, gather
from assay.data.renderings.hermes import LEFT_OUT, without_reasoning
from assay.data.row import Message, Row, ToolCall

ASKED = Message("user", "<think>\nmine\n</think>\n\nWhy?")
CALLED = Message("assistant", "", (ToolCall("f", {"a": 1}),), reasoning="So f.")
WRITTEN = Message("assistant", "<think>\nSo.\n</think>\n\nBecause.")


def test_both_ways_of_writing_reasoning_are_left_out_and_nothing_else():
    row = Row("r", (ASKED, CALLED, Message("tool", "1"), WRITTEN), gold="1", conversation="c")
    found = gather(without_reasoning([row]))
    plain = (
        ASKED,
        replace(CALLED, reasoning=""),
        row.messages[2],
        Message("assistant", "Because."),
    )
    assert found.rows == (replace(row, messages=plain),)
    assert found.remarks == {LEFT_OUT: ("r",)}


def test_rows_without_any_stay_and_are_not_counted():
    items = [Row("r", (ASKED, Message("assistant", "x"))), LeftOut("l", "why"), Remark("r", "w")]
    assert list(without_reasoning(items)) == items
