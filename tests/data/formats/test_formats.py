"""Rows read from every format, written and read again, and what bad rows are told;
turns, each a target once."""

import json
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.data.formats.chat_rows import EARLIER, NO_TOOLS
from assay.data.formats.formats import (
    FORMATS,
    NO_CALL,
    NO_TURN,
    FileLayout,
    expanded,
    items_of,
    iter_items,
    read_rows,
    record_reader,
    shaped,
    write_rows,
)
from assay.data.formats.plain_text import PlainText
from assay.data.loaded import UNREADABLE, DataError, gather, spread
from assay.data.row import Message, Row, ToolCall
from assay.data.row_checks import NO_TOOLS as CALLED_WITHOUT_TOOLS
from assay.data.row_checks import SAME, TEXT_AND_CALLS, UNDECLARED
from assay.errors import InputError

WEATHER = {"name": "get_weather", "parameters": {"type": "dict", "properties": {}}}
ASK = {"role": "user", "content": "Weather?"}
TOLD = {"role": "assistant", "content": "Sunny."}
OPENAI_CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}

texts = st.text(max_size=8)
json_values = st.recursive(
    st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
calls = st.builds(
    ToolCall,
    st.sampled_from(["f", "g"]),
    st.dictionaries(texts, json_values, max_size=2),
    st.sampled_from(["", "c1"]),
)
answers = st.builds(
    lambda content, made, reasoning: Message("assistant", content, tuple(made), "", reasoning),
    texts,
    st.lists(calls, max_size=2),
    st.sampled_from(["", "hm"]),
)


@st.composite
def rows(draw: st.DrawFn) -> list[Row]:
    return [draw(row(f"r{n}")) for n in range(draw(st.integers(1, 3)))]


@st.composite
def row(draw: st.DrawFn, name: str) -> Row:
    messages = [Message("system", draw(texts))] if draw(st.booleans()) else []
    for _ in range(draw(st.integers(1, 2))):
        messages += [Message("user", draw(texts)), draw(answers)]
        if messages[-1].tool_calls:
            named = any(call.id for call in messages[-1].tool_calls)
            call_id = draw(st.sampled_from(["", "c1" if named else "c2"]))
            messages.append(Message("tool", draw(texts), (), call_id))
            messages += draw(st.lists(answers, max_size=1))
    return Row(
        id=name,
        messages=tuple(messages),
        tools=draw(st.sampled_from([(), (WEATHER,)])),
        gold=draw(st.none() | json_values),
        conversation=draw(st.sampled_from(["", "k"])),
        extra=draw(st.dictionaries(st.sampled_from(["x", "data_source"]), json_values)),
    )


def write_lines(path: Path, *objects: Any) -> Path:
    path.write_text("".join(json.dumps(value) + "\n" for value in objects))
    return path


def read_one(tmp_path: Path, value: dict[str, Any], format: str = "messages") -> Row:
    return read_rows(write_lines(tmp_path / "a.jsonl", value), format)[0]


def placeless(rows: list[Row]) -> list[Row]:
    return [replace(row, origin="") for row in rows]


@pytest.mark.parametrize(
    ("format", "ending"),
    [("messages", "jsonl"), ("trl", "jsonl"), ("verl", "jsonl"), ("verl", "parquet")],
)
@given(original=rows())
def test_a_round_trip_keeps_rows_whole(
    tmp_path_factory: pytest.TempPathFactory, format: str, ending: str, original: list[Row]
) -> None:
    path = tmp_path_factory.mktemp("rows") / f"a.{ending}"
    text = PlainText("qwen3") if format == "verl" else None
    losses = write_rows(path, original, format, text=text)
    assert set(losses) <= ({EARLIER, NO_TOOLS} if format == "trl" else set())
    back = read_rows(path, format)
    assert placeless(back) == original
    assert [row.origin for row in back] == [f"{path}:{n}" for n in range(1, len(back) + 1)]


@pytest.mark.parametrize("most", [0.0, 0.01])
def test_a_column_of_another_name_is_told_with_the_mapping_to_write(tmp_path: Path, most) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"prompt": "x", "label": "y"}\n')
    with pytest.raises(DataError, match=r'missing \(write columns = \{ answer = "label" \}; the f'):
        list(items_of(None, "prompt_answer", FileLayout(), file, most))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"text": "x"}, r"messages: missing \(the fields here are: text\)"),
        ({"messages": []}, "messages: holds no messages"),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages: holds no user message"),
        ({"messages": [{"role": "usr", "content": ""}]}, "unknown role 'usr' .did you mean 'user'"),
        ({"messages": [{"role": "user"}]}, r"messages\[0\].content: missing"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "the assistant speaks first"),
        (
            {"messages": [ASK, {"role": "system", "content": ""}]},
            "a system message after the first",
        ),
        (
            {"messages": [ASK, {"role": "user", "content": [{"type": "image", "image": "x"}]}]},
            r"messages\[1\].content\[0\].type: unknown part 'image'",
        ),
        ({"messages": [ASK | {"tool_calls": [OPENAI_CALL]}]}, "a user message cannot call tools"),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, value: dict[str, Any], message: str) -> None:
    path = write_lines(tmp_path / "a.jsonl", {"messages": [ASK]}, value)
    with pytest.raises(DataError, match=f"a.jsonl:2: .*{message}") as caught:
        read_rows(path, "messages")
    assert "\n" not in str(caught.value)


def test_rows_that_say_the_same_are_left_out_and_counted(tmp_path: Path) -> None:
    same = {"messages": [ASK, TOLD], "tools": [WEATHER]}
    lines = [
        same,
        {"messages": [ASK, {**TOLD, "content": "Rain."}], "tools": [WEATHER]},
        {**same, "id": "again"},
        {"tools": [WEATHER], "messages": [ASK, TOLD]},
        {**same, "id": "other source", "source": "b"},
        {**same, "gold": 1},
        {**same, "tools": []},
    ]
    path = write_lines(tmp_path / "a.jsonl", *lines)
    loaded = gather(iter_items(path, "messages"))
    assert [row.origin.rpartition(":")[2] for row in loaded.rows] == ["1", "2", "5", "6", "7"]
    assert loaded.dropped == {SAME: ("again", loaded.rows[0].id)}
    # Nothing is left out of a benchmark's items: what is measured is the file as it is.
    with pytest.raises(DataError, match=r"a.jsonl:4: id: .* is also the id of .*a.jsonl:1 "):
        read_rows(path, "messages")


PAIR = {"prompt": "Weather?", "chosen": "Sunny.", "rejected": "No."}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (PAIR, "chosen, rejected: pairs of a chosen and a rejected answer, for DPO"),
        ({"messages": [ASK], "rejected_response": "No."}, "rejected_response: pairs of"),
        ({"prompt": "x", "completion": "y", "label": False}, "completion, label: .* for KTO"),
        ({"prompt": "x", "completions": ["y"], "labels": [True]}, "process reward model"),
    ],
)
@pytest.mark.parametrize("format", ["trl", "messages", "swift", "hermes"])
def test_preference_data_is_refused_by_name_with_what_to_do(
    tmp_path: Path, value: dict[str, Any], words: str, format: str
) -> None:
    path = write_lines(tmp_path / "a.jsonl", value)
    with pytest.raises(DataError, match=rf"a.jsonl:1: .*{words}.*for sft give the good"):
        list(iter_items(path, format))


def test_verl_rows_of_others_are_read_as_they_are(tmp_path: Path) -> None:
    value = {
        "data_source": "openai/gsm8k",
        "prompt": [ASK],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "42"},
        "extra_info": {"split": "train", "index": 3, "answer": "#### 42"},
    }
    row = read_one(tmp_path, value, "verl")
    assert (row.id, row.gold, row.messages) == ("train/3", "42", (Message("user", "Weather?"),))
    table = pa.Table.from_pylist([value, value | {"extra_info": {"index": 4}}])
    pq.write_table(table, tmp_path / "a.parquet")
    same, other = read_rows(tmp_path / "a.parquet", "verl")
    assert replace(same, origin="") == replace(row, origin="") and other.id == "4"
    write_rows(tmp_path / "b.parquet", [row], "verl")
    (written,) = pq.read_table(tmp_path / "b.parquet").to_pylist()
    assert written["extra_info"]["split"] == "train" and written["extra_info"]["index"] == 3
    for key in ("data_source", "prompt", "ability", "reward_model"):
        assert written[key] == value[key]


@pytest.mark.parametrize("column", ["prompt", "reward_model.ground_truth"])
def test_a_verl_row_edited_since_it_was_written_is_refused(tmp_path: Path, column: str) -> None:
    path = tmp_path / "a.jsonl"
    write_rows(path, [Row("r", (Message("user", "Weather?"),), gold="42")], "verl")
    value = json.loads(path.read_text())
    if column == "prompt":
        value["prompt"][0]["content"] = "Edited"
    else:
        value["reward_model"]["ground_truth"] = "43"
    with pytest.raises(DataError, match=f"{column}: differs from what extra_info.assay keeps"):
        read_one(tmp_path, value, "verl")


def test_formats_are_looked_up_by_name_and_can_be_added(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", {"q": "hi"})
    with pytest.raises(InputError, match="did you mean 'messages'"):
        read_rows(path, "mesages")
    with pytest.raises(InputError, match="cannot write format 'gsm8k'"):
        write_rows(tmp_path / "b.jsonl", [], "gsm8k")
    with pytest.raises(InputError, match="not written as parquet"):
        write_rows(tmp_path / "b.parquet", [], "messages")
    FORMATS["own"] = record_reader(
        lambda record: Row("1", (Message("user", record.need("q", str)),), origin=record.origin)
    )
    try:
        assert read_rows(path, "own")[0].messages == (Message("user", "hi"),)
    finally:
        del FORMATS["own"]
    (tmp_path / "c.jsonl").write_text("\n")
    with pytest.raises(DataError, match=r"c.jsonl: holds no rows"):
        read_rows(tmp_path / "c.jsonl", "messages")


def test_an_extra_field_named_like_a_column_is_refused_on_writing(tmp_path: Path) -> None:
    row = Row("r", (Message("user", "x"),), extra={"prompt": "mine"})
    assert write_rows(tmp_path / "a.jsonl", [row], "messages") == {}
    with pytest.raises(DataError, match="prompt: row r has an extra field of this name"):
        write_rows(tmp_path / "b.jsonl", [row], "trl")
    assert not (tmp_path / "b.jsonl").exists()


BAD = ['{"prompt": "x", "answer": ', '["x"]', '{"prompt": 1, "answer": "x"}', '{"answer": "x"}']


def rows_with(folder: Path, bad: list[str], good: int, ending: str = "jsonl") -> Path:
    """A file of good rows, with the bad ones from line 3 on."""
    lines = [json.dumps({"prompt": f"{n}?", "answer": "x"}) for n in range(good)]
    lines[2:2] = bad
    file = folder / f"a.{ending}"
    file.write_text("\n".join(lines) if ending == "jsonl" else "[" + ",\n".join(lines) + "]")
    return file


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("ending", ["jsonl", "json"])
def test_one_bad_row_of_a_hundred_is_left_out_and_named(
    tmp_path: Path, bad: str, ending: str
) -> None:
    if ending == "json" and bad == BAD[0]:
        return  # Nobody can say where the next member of a broken array begins.
    loaded = gather(iter_items(rows_with(tmp_path, [bad], 99, ending), "prompt_answer"))
    ((reason, ids),) = loaded.dropped.items()
    assert len(loaded.rows) == 99 and len(ids) == 1
    assert reason == f"{UNREADABLE} ({ids[0]})" and ids[0].startswith("line 3: ")


def test_more_than_one_in_a_hundred_refuse_the_file_and_say_how_many(tmp_path: Path) -> None:
    file = rows_with(tmp_path, BAD[2:3], 98)
    with pytest.raises(DataError, match=r"a.jsonl:3: prompt: is an integer, not .*array$"):
        gather(iter_items(file, "prompt_answer"))
    file = rows_with(tmp_path, BAD, 298)
    with pytest.raises(
        DataError, match=r"a.jsonl:3: .*4 of 302 rows cannot be read, and at most 1%"
    ):
        gather(iter_items(file, "prompt_answer"))


NANOSECONDS = pa.scalar(1, pa.timestamp("ns"))
YEAR_20000 = pa.scalar(18262 * 365, pa.date32())
BESIDE: list[Any] = [
    *(datetime(2026, 1, 1), date(2026, 1, 1), time(1), timedelta(1), Decimal("1.5"), b"\x00\xff"),
    *(float("nan"), float("-inf"), [float("nan")], {"at": date(2026, 1, 1)}),
    *(NANOSECONDS, YEAR_20000, pa.scalar([("a", 1)], pa.map_(pa.string(), pa.int64()))),
]


def parquet_with(folder: Path, name: str, value: Any, first: Any = None) -> Path:
    """Three rows, of which the last two hold a value in a column of this name."""
    columns = {"prompt": ["a?", "b?", "c?"], "answer": ["x", "y", "z"]}
    kind = value.type if isinstance(value, pa.Scalar) else None
    value = value.as_py() if kind and pa.types.is_map(kind) else value
    columns[name] = pa.array([first, value, value], kind)  # type: ignore[assignment]
    pq.write_table(pa.table(columns), folder / "a.parquet")
    return folder / "a.parquet"


@pytest.mark.parametrize("value", BESIDE)
def test_a_column_that_json_has_no_form_of_leaves_itself_out(tmp_path: Path, value: Any) -> None:
    loaded = gather(iter_items(parquet_with(tmp_path, "made", value), "prompt_answer"))
    assert [row.gold for row in loaded.rows] == ["x", "y", "z"] and not loaded.dropped
    assert all("made" not in {*row.extra, *row.columns} for row in loaded.rows)
    ((words, ids),) = loaded.remarks.items()
    assert words.startswith("column 'made' holds ") and words.endswith(": it is left out")
    assert ids == tuple(row.id for row in loaded.rows[1:])


@pytest.mark.parametrize("name", ["answer", "gold", "id", "tools", "loss_mask", "images", "image"])
def test_a_column_that_means_something_is_refused_by_name(tmp_path: Path, name: str) -> None:
    file = parquet_with(tmp_path, name, b"x", b"x")
    with pytest.raises(DataError, match=rf"a.parquet:1: {name}: holds bytes, which JSON does not"):
        gather(iter_items(file, "prompt_answer"))


@pytest.mark.parametrize("at", BESIDE[:4])
def test_the_time_of_a_message_leaves_itself_out(tmp_path: Path, at: Any) -> None:
    asked, said = ({"role": r, "content": r, "at": at} for r in ("user", "assistant"))
    pq.write_table(pa.table({"messages": [[asked, said]]}), file := tmp_path / "a.parquet")
    loaded = gather(iter_items(file, "messages"))
    assert [m.content for m in loaded.rows[0].messages] == ["user", "assistant"]
    assert [*loaded.remarks] == ["messages hold 'at', a time, which is not read"]
    timed = {"role": "user", "content": at}
    pq.write_table(pa.table({"messages": [[timed, {**said, "content": at}]]}), file)
    with pytest.raises(DataError, match=r"messages\[0\]\.content: missing"):
        gather(iter_items(file, "messages"))


@pytest.mark.parametrize("ending", ["jsonl", "json"])
def test_nan_in_a_json_file_leaves_its_column_out(tmp_path: Path, ending: str) -> None:
    lines = ['{"prompt": "a?", "answer": "x", "score": NaN}', '{"prompt": "b?", "answer": "NaN"}']
    file = tmp_path / f"a.{ending}"
    file.write_text("\n".join(lines) if ending == "jsonl" else f"[{lines[0]},\n{lines[1]}]")
    loaded = gather(iter_items(file, "prompt_answer"))
    assert [row.gold for row in loaded.rows] == ["x", "NaN"]
    assert list(loaded.remarks) == [
        "column 'score' holds NaN or Infinity, which JSON does not have: it is left out"
    ]
    file.write_text(file.read_text().replace('"x"', "-Infinity"))
    with pytest.raises(DataError, match=rf"a.{ending}:1: answer: holds NaN or Infinity"):
        gather(iter_items(file, "prompt_answer"))


TOOLS = ({"name": "f"},)
CALLS = Message("assistant", "", (ToolCall("f", {}),))
ASKS, RESULT, SAYS = Message("user", "Do f."), Message("tool", "ok"), Message("assistant", "Done.")
TALK = Row("talk", (ASKS, CALLS, RESULT, SAYS), TOOLS, gold="all of it")


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
        "strange",
        (ASKS, CALLS, RESULT, Message("assistant", "And g.", (ToolCall("g", {}),))),
        TOOLS,
    )
    bare = Row("bare", (ASKS, CALLS))
    kept = gather(shaped([TALK, strange, bare], "each_turn", True))
    assert len(kept.rows) == 5 and kept.dropped == {}
    assert kept.remarks == {
        TEXT_AND_CALLS: ("strange",),
        UNDECLARED: ("strange",),
        CALLED_WITHOUT_TOOLS: ("bare",),
    }
    left = gather(shaped([TALK, strange, bare], "each_turn", False))
    assert [row.id for row in left.rows] == ["talk:1", "talk:2", "strange:1"]
    assert left.dropped == {UNDECLARED: ("strange:2",), CALLED_WITHOUT_TOOLS: ("bare:1",)}
    assert left.remarks == {TEXT_AND_CALLS: ("strange",)}
    assert gather(spread(left)) == left


def test_loss_flags_survive_every_format(tmp_path: Path) -> None:
    rows = [row for row in expanded(TALK, "each_turn") if isinstance(row, Row)]
    for format in ("messages", "trl", "verl", "swift"):
        text = PlainText("qwen3") if format in ("verl", "swift") else None
        write_rows(tmp_path / f"{format}.jsonl", rows, format, text=text)
        back = read_rows(tmp_path / f"{format}.jsonl", format)
        assert [row.messages for row in back] == [row.messages for row in rows]


@pytest.mark.parametrize("format", ["messages", "swift"])
def test_what_follows_the_last_trained_message_is_cut(tmp_path: Path, format: str) -> None:
    ask = {"role": "user", "content": "?"}
    said = {"role": "assistant", "content": "a"}
    mute = {"role": "assistant", "content": "b", "loss": False}
    lines = [{"id": 1, "messages": [ask, said, ask, mute]}, {"id": 2, "messages": [ask, mute]}]
    loaded = gather(iter_items(write_lines(tmp_path / "a.jsonl", *lines), format))
    assert [m.content for m in loaded.rows[0].messages] == ["?", "a"]
    ((reason, ids),) = loaded.dropped.items()
    assert ids == ("2",) and "loss is false" in reason
