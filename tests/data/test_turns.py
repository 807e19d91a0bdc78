"""Turns: every assistant message is a target once, and never in two rows."""

import json
from pathlib import Path

import pytest

from assay.data.formats.chat_rows import LOSS
from assay.data.formats.formats import (
    NO_CALL,
    NO_TURN,
    expanded,
    iter_items,
    read_rows,
    shaped,
    write_rows,
)
from assay.data.formats.plain_text import PlainText
from assay.data.loaded import gather, spread
from assay.data.row import Message, Row, ToolCall
from assay.data.row_checks import NO_TOOLS, TEXT_AND_CALLS, UNDECLARED

TOOLS = ({"name": "f"},)
CALLS = Message("assistant", "", (ToolCall("f", {}),))
ASKS, TOLD, SAYS = Message("user", "Do f."), Message("tool", "ok"), Message("assistant", "Done.")
TALK = Row("talk", (ASKS, CALLS, TOLD, SAYS), TOOLS, gold="all of it")


def test_each_turn_is_a_row_of_what_came_before_it() -> None:
    first, second = expanded(TALK, "each_turn")
    assert isinstance(first, Row) and isinstance(second, Row)
    assert first.messages == (ASKS, CALLS)
    assert [m.loss for m in second.messages] == [True, False, True, True]
    assert [m.content for m in second.messages] == [m.content for m in TALK.messages]
    assert (first.id, second.id) == ("talk:1", "talk:2")
    assert {first.conversation, second.conversation} == {"talk"}
    # The gold answer judges the whole conversation.
    assert (first.gold, second.gold) == (None, "all of it")


def test_a_prompt_with_a_gold_answer_is_a_turn() -> None:
    row = Row("talk", (ASKS, SAYS, ASKS), gold="42")
    first, second = expanded(row, "each_turn")
    assert isinstance(first, Row) and isinstance(second, Row)
    assert first.gold is None and (second.gold, second.id) == ("42", "talk:2")


def test_the_last_call_ends_the_conversation() -> None:
    (cut,) = expanded(TALK, "last_call")
    assert isinstance(cut, Row) and cut.messages == (ASKS, CALLS)
    assert (cut.id, cut.gold) == ("talk", None)
    silent = Row("silent", (ASKS, SAYS))
    mute = Row("mute", (ASKS,))
    assert next(iter(expanded(silent, "last_call"))).reason == NO_CALL  # type: ignore[union-attr]
    assert next(iter(expanded(mute, "each_turn"))).reason == NO_TURN  # type: ignore[union-attr]
    assert list(expanded(mute, None)) == [mute]


def test_undeclared_calls_are_counted_and_kept_or_dropped_row_by_row() -> None:
    strange = Row(
        "strange", (ASKS, CALLS, TOLD, Message("assistant", "And g.", (ToolCall("g", {}),))), TOOLS
    )
    bare = Row("bare", (ASKS, CALLS))
    kept = gather(shaped([TALK, strange, bare], "each_turn", True))
    assert len(kept.rows) == 5 and kept.dropped == {}
    assert kept.remarks == {
        TEXT_AND_CALLS: ("strange",),
        UNDECLARED: ("strange",),
        NO_TOOLS: ("bare",),
    }
    left = gather(shaped([TALK, strange, bare], "each_turn", False))
    assert [row.id for row in left.rows] == ["talk:1", "talk:2", "strange:1"]
    assert left.dropped == {UNDECLARED: ("strange:2",), NO_TOOLS: ("bare:1",)}
    assert left.remarks == {TEXT_AND_CALLS: ("strange",)}
    assert gather(spread(left)) == left


def test_loss_flags_survive_every_format_and_say_what_ms_swift_forgets(tmp_path: Path) -> None:
    rows = [row for row in expanded(TALK, "each_turn") if isinstance(row, Row)]
    for format in ("messages", "trl", "verl", "swift"):
        text = PlainText("qwen3") if format == "verl" else None
        lost = write_rows(tmp_path / f"{format}.jsonl", rows, format, text=text)
        back = read_rows(tmp_path / f"{format}.jsonl", format)
        assert [row.messages for row in back] == [row.messages for row in rows]
        assert (LOSS in lost) == (format == "swift")


@pytest.mark.parametrize("format", ["messages", "swift"])
def test_what_follows_the_last_trained_message_is_cut(tmp_path: Path, format: str) -> None:
    ask = {"role": "user", "content": "?"}
    said = {"role": "assistant", "content": "a"}
    mute = {"role": "assistant", "content": "b", "loss": False}
    lines = [{"id": 1, "messages": [ask, said, ask, mute]}, {"id": 2, "messages": [ask, mute]}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    loaded = gather(iter_items(tmp_path / "a.jsonl", format))
    assert [m.content for m in loaded.rows[0].messages] == ["?", "a"]
    ((reason, ids),) = loaded.dropped.items()
    assert ids == ("2",) and "loss is false" in reason
