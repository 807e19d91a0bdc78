"""What other tools read of a row is read or refused: marks of training, columns, calls, results;
HardGen's calls are parsed and never run, and each conversation left out has its reason."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.data.conversation import (
    ID_OR_NAME,
    LITERALS,
    NULLS,
    OF_ANSWERS,
    OF_MESSAGES,
    REORDERED,
    UNANSWERED,
)
from assay.data.episode import row_of, row_values
from assay.data.files import hash_contents
from assay.data.formats.call_sets import NO_RESULTS, NO_TEXT, POSITIONAL, SHORTENED, UNKNOWN_ROLE
from assay.data.formats.formats import FileLayout, expanded, iter_items, read_rows, write_rows
from assay.data.loaded import DataError, Loaded, gather
from assay.data.python_calls import (
    NO_CALLS,
    NO_JSON,
    NO_LITERAL,
    SYNTAX,
    TWICE,
    UNPACKED,
    parse_calls,
)
from assay.data.row import Message, Row, ToolCall

ASK = {"role": "user", "content": "?"}
TOOLS = [{"name": "f", "parameters": {"type": "object", "properties": {"a": {}}}}, {"name": "g"}]


def load(
    folder: Path, value: dict[str, Any] | str, format: str = "messages", **keys: Any
) -> Loaded:
    line = value if isinstance(value, str) else json.dumps(value)
    (folder / "a.jsonl").write_text(line + "\n")
    return gather(iter_items(folder / "a.jsonl", format, FileLayout(**keys)))


def read(folder: Path, value: dict[str, Any] | str, format: str = "messages") -> Row:
    return load(folder, value, format).rows[0]


def marked(**keys: Any) -> dict[str, Any]:
    """A conversation of a marked answer and a plain one."""
    bad, good = ({"role": "assistant", "content": text} for text in ("BAD", "GOOD"))
    return {"messages": [ASK, bad | keys, ASK, good]}


@pytest.mark.parametrize("key", [*OF_ANSWERS, *OF_MESSAGES])
@pytest.mark.parametrize("format", ["messages", "swift", "hermes"])
def test_marks_of_other_tools_say_what_is_trained(tmp_path: Path, key: str, format: str) -> None:
    for value, trained in ((0, False), (1, True), (0.0, False), (True, True), (None, True)):
        row = read(tmp_path, marked(**{key: value}), format)
        assert [m.loss for m in row.messages if m.role == "assistant"] == [trained, True]


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"weight": 0.5}, r"\[1\].weight: a weight of one message \(0.5\) is not supported"),
        ({"train_detail": [{"begin_offset": 0}]}, r"\[1\].train_detail: .*not known"),
        ({"lossMask": 0}, r"\[1\].lossMask: .*not known"),
        ({"weight": 0, "loss": True}, r"\[1\]: weight and loss disagree"),
    ],
)
def test_marks_that_mean_neither_yes_nor_no_are_refused(
    tmp_path: Path, keys: dict[str, Any], problem: str
) -> None:
    with pytest.raises(DataError, match=f"a.jsonl:1: messages{problem}"):
        load(tmp_path, marked(**keys))
    with pytest.raises(DataError, match="a user message cannot be trained on"):
        load(tmp_path, {"messages": [ASK | {"train": True}, {"role": "assistant", "content": "a"}]})


def test_calls_in_openais_older_words_are_calls(tmp_path: Path) -> None:
    called: dict[str, Any] = {"role": "assistant", "content": None}
    called["function_call"] = {"name": "f", "arguments": '{"a": 1}'}
    messages = [{"role": "developer", "content": "Be brief."}, ASK, called]
    messages += [{"role": "function", "name": "f", "content": "4"}]
    row = read(tmp_path, {"messages": messages, "functions": TOOLS})
    assert row.messages == (
        Message("system", "Be brief."),
        Message("user", "?"),
        Message("assistant", "", (ToolCall("f", {"a": 1}),)),
        Message("tool", "4", name="f"),
    )
    assert row.tools == tuple(TOOLS) and row.extra == {}
    with pytest.raises(DataError, match=r"messages\[2\].function_call: stands beside tool_calls"):
        load(tmp_path, {"messages": [*messages[:2], called | {"tool_calls": TWO["tool_calls"]}]})
    with pytest.raises(DataError, match="functions: stands beside tools"):
        load(tmp_path, {"messages": messages, "functions": TOOLS, "tools": TOOLS})


@pytest.mark.parametrize("format", ["messages", "swift", "hermes"])
def test_a_system_column_stands_before_the_messages(tmp_path: Path, format: str) -> None:
    talk = [ASK, {"role": "assistant", "content": "Salut"}]
    own = {"role": "system", "content": "Answer in French."}
    for messages, column in ((talk, "system"), ([own, *talk], "system"), (talk, "system_prompt")):
        row = read(tmp_path, {"messages": messages, column: own["content"]}, format)
        assert row.messages[0] == Message("system", "Answer in French.")
        assert len(row.messages) == 3 and row.extra == {}
    with pytest.raises(DataError, match="system: differs from the other system text"):
        load(tmp_path, {"messages": [own, *talk], "system": "Be brief."}, format)


@pytest.mark.parametrize("format", ["messages", "swift", "hermes", "trl", "verl"])
def test_options_of_the_template_are_the_rows_and_come_back(tmp_path: Path, format: str) -> None:
    answer = {"role": "assistant", "content": "4"}
    value = {"id": "r", "messages": [ASK, answer]}
    value["chat_template_kwargs"] = {"enable_thinking": False}
    read_as = format if format in ("swift", "hermes") else "messages"
    row = read(tmp_path, value, read_as)
    assert row.template_options == {"enable_thinking": False} and row.extra == {}
    assert row_of(row_values(row)) == row
    plain = read(tmp_path, {**value, "chat_template_kwargs": None}, read_as)
    assert "template_options" not in row_values(plain)
    assert hash_contents([row]) != hash_contents([plain])
    if format != "hermes":
        write_rows(tmp_path / "b.jsonl", [row], format)
        assert read_rows(tmp_path / "b.jsonl", format)[0].template_options == row.template_options


@pytest.mark.parametrize(
    ("column", "value"),
    [("images", ["a.png"]), ("videos", ["a"]), ("loss_mask", [0, 1]), ("sample_weight", 0.0)],
)
def test_columns_that_change_the_example_and_are_not_carried_are_refused(
    tmp_path: Path, column: str, value: Any
) -> None:
    with pytest.raises(DataError, match=f"a.jsonl:1: {column}: "):
        load(tmp_path, {"messages": [ASK], column: value})
    assert load(tmp_path, {"messages": [ASK], column: None}).rows


@pytest.mark.parametrize(
    ("format", "value"),
    [
        ("trl", {"completion": [{"role": "assistant", "content": "ANS"}]}),
        ("trl", {"completion": "ANS"}),
        ("prompt_answer", {"answer": "ANS"}),
    ],
)
def test_nothing_of_a_prompt_is_trained_on(tmp_path: Path, format: str, value: Any) -> None:
    prompt = [ASK, {"role": "assistant", "content": "HIST"}, ASK]
    row = read(tmp_path, {"prompt": prompt, **value}, format)
    assert [m.content for m in row.messages if m.role == "assistant" and m.loss] == ["ANS"]
    (turn,) = expanded(row, "each_turn")
    assert isinstance(turn, Row) and turn.messages[-1].content == "ANS"


def calling(*calls: tuple[str, str, str], **more: Any) -> dict[str, Any]:
    """An assistant's calls by name, argument and id."""
    made = [
        {"type": "function", "function": {"name": name, "arguments": {"a": a}}, "id": id_}
        for name, a, id_ in calls
    ]
    return {"role": "assistant", "content": None, "tool_calls": made, **more}


def told(content: str, **keys: Any) -> dict[str, Any]:
    return {"role": "tool", "content": content, **keys}


TWO = calling(("f", "x", "c1"), ("f", "y", "c2"))
NAMED = calling(("f", "x", ""), ("g", "y", ""))
MIXED = calling(("f", "x", "c1"), ("g", "y", "c2"))


@pytest.mark.parametrize(
    ("call", "results", "remarks"),
    [
        (TWO, [told("y", tool_call_id="c2"), told("x", tool_call_id="c1")], [REORDERED]),
        (TWO, [told("y", tool_call_id="c2"), told("x")], [REORDERED]),
        (NAMED, [told("y", name="g"), told("x", name="f")], [REORDERED]),
        (NAMED, [told("x"), told("y")], []),
    ],
)
def test_results_stand_in_the_order_of_their_calls(
    tmp_path: Path, call: dict, results: list[dict], remarks: list[str]
) -> None:
    # The second turn gives the same ids again, as Kimi and gpt-oss do.
    again = [TWO, told("x", tool_call_id="c1"), told("y", tool_call_id="c2")]
    loaded = load(tmp_path, {"messages": [ASK, call, *results, ASK, *again]})
    (row,) = loaded.rows
    assert [m.content for m in row.messages if m.role == "tool"] == ["x", "y", "x", "y"]
    assert list(loaded.remarks) == remarks


@pytest.mark.parametrize(
    ("call", "results", "remark"),
    [
        (TWO, [told("y", tool_call_id="c2")], UNANSWERED),
        (TWO, [told("x", tool_call_id="c1")], None),
        (MIXED, [told("y", tool_call_id="c1", name="g"), told("x", tool_call_id="c2")], ID_OR_NAME),
    ],
)
def test_results_that_places_or_names_would_give_to_another_call_are_said(
    tmp_path: Path, call: dict, results: list[dict], remark: str | None
) -> None:
    loaded = load(tmp_path, {"messages": [ASK, call, *results]})
    assert list(loaded.remarks) == ([remark] if remark else [])


def test_nulls_of_arguments_are_said_and_can_be_left_out(tmp_path: Path) -> None:
    call = calling(("f", "x", ""))
    call["tool_calls"][0]["function"]["arguments"] = {"a": "x", "b": {"c": None}}
    loaded = load(tmp_path, {"messages": [ASK, call]})
    assert loaded.rows[0].messages[1].tool_calls[0].arguments == {"a": "x", "b": {"c": None}}
    assert list(loaded.remarks) == [NULLS]
    dropped = load(tmp_path, {"messages": [ASK, call]}, nulls="drop")
    assert dropped.rows[0].messages[1].tool_calls[0].arguments == {"a": "x", "b": {}}
    assert dropped.remarks == {}
    # Arrow fills keys; a null in a list was written.
    call["tool_calls"][0]["function"]["arguments"] = {"a": [1, None]}
    assert load(tmp_path, {"messages": [ASK, call]}).remarks == {}
    # Text was written by hand: Arrow fills nothing in there.
    call["tool_calls"][0]["function"]["arguments"] = '{"a": null}'
    loaded = load(tmp_path, {"messages": [ASK, call]}, nulls="drop")
    assert loaded.rows[0].messages[1].tool_calls[0].arguments == {"a": None}
    assert loaded.remarks == {}


def sharegpt(*said: tuple[str, str], **columns: Any) -> dict[str, Any]:
    return {"conversations": [{"from": who, "value": text} for who, text in said], **columns}


CALL = '{"name": "f", "arguments": {"a": 1}}'


@pytest.mark.parametrize(
    ("said", "answers"),
    [
        ([("function_call", CALL)], [("", "", 1)]),
        ([("function_call", f"[{CALL}, {CALL}]")], [("", "", 2)]),
        ([("gpt", "I look."), ("function_call", CALL)], [("I look.", "", 1)]),
        ([("function_call", f"<think>\nhm\n</think>\n\n{CALL}")], [("", "hm", 1)]),
        ([("gpt", "No."), ("human", "?"), ("function_call", CALL)], [("No.", "", 0), ("", "", 1)]),
    ],
)
def test_llama_factorys_roles_are_calls_and_results(
    tmp_path: Path, said: list[tuple[str, str]], answers: list[tuple[str, str, int]]
) -> None:
    talk = [("human", "?"), *said, ("observation", "4"), ("gpt", "It is 4")]
    value = sharegpt(*talk, system="policy", tools=json.dumps(TOOLS))
    loaded = load(tmp_path, value, "swift")
    (row,) = loaded.rows
    assert loaded.remarks == {}
    assert row.messages[0] == Message("system", "policy") and row.tools == tuple(TOOLS)
    found = [m for m in row.messages if m.role == "assistant"][:-1]
    assert [(m.content, m.reasoning, len(m.tool_calls)) for m in found] == answers
    assert row.messages[-2:] == (Message("tool", "4"), Message("assistant", "It is 4"))


def test_keys_of_another_layout_beside_a_message_do_not_become_its_text(tmp_path: Path) -> None:
    asked = {"role": "user", "content": "?", "from": "gpt", "value": "4"}
    (row,) = load(
        tmp_path, {"messages": [asked, {"role": "assistant", "content": "4"}]}, "swift"
    ).rows
    assert row.messages[0] == Message("user", "?")


def test_tools_and_calls_that_python_wrote_are_read(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}, "strict": True}}]
    said = [
        ("system", f"Call.\n<tools> {tools!r} </tools>"),
        ("human", "?"),
        (
            "gpt",
            "<tool_call>\n{'name': 'f', 'arguments': {'a': \"it's\", 'b': None}}\n</tool_call>",
        ),
    ]
    loaded = load(tmp_path, sharegpt(*said), "hermes")
    (row,) = loaded.rows
    assert row.tools == tuple(tools) and list(loaded.remarks) == [LITERALS]
    assert row.messages[-1].tool_calls == (ToolCall("f", {"a": "it's", "b": None}),)
    with pytest.raises(DataError, match=r"tool_call\[0\]: is not JSON"):
        load(tmp_path, sharegpt(*said[1:2], ("gpt", "<tool_call>{'a': f()}</tool_call>")), "hermes")


def test_xlam_rows_give_a_question_its_tools_and_calls(tmp_path: Path) -> None:
    # One of its parameters is called `type`, and parameters are the properties themselves.
    tool: dict[str, Any] = {"name": "giveaways", "description": "d"}
    tool["parameters"] = {"type": {"description": "d", "type": "str", "default": "game"}}
    calls = [{"name": "giveaways", "arguments": {"type": kind}} for kind in ("beta", "game")]
    value = {"id": 0, "query": "Which?", "tools": json.dumps([tool]), "answers": json.dumps(calls)}
    row = read(tmp_path, value, "xlam")
    made = tuple(ToolCall("giveaways", {"type": kind}) for kind in ("beta", "game"))
    assert row.messages == (Message("user", "Which?"), Message("assistant", "", made))
    assert (row.id, row.tools, row.extra) == ("0", (tool,), {})
    with pytest.raises(DataError, match="answers: holds no call"):
        load(tmp_path, value | {"answers": "[]"}, "xlam")


SYSTEM = {"role": "system", "tools": json.dumps([{"name": "f"}, {"name": "g"}])}
names = st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True).filter(
    lambda name: name.isidentifier() and name not in __import__("keyword").kwlist
)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(st.lists(st.tuples(names, st.dictionaries(names, values, max_size=3)), min_size=1))
def test_calls_that_python_writes_are_read_as_they_were_meant(
    made: list[tuple[str, dict[str, Any]]],
) -> None:
    calls = [
        f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
        for name, arguments in made
    ]
    found, positional = parse_calls(f"[{', '.join(calls)}]")
    assert [(call.name, call.arguments) for call in found] == made and positional == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[f(a=]", SYNTAX),
        ("[f(a='" + "x" * 300_000 + "')]", SYNTAX),
        ("[" + "f(a=" * 5000 + "1" + ")" * 5000 + "]", SYNTAX),
        ("[1, 2]", NO_CALLS),
        ("f(a=1)", NO_CALLS),
        ("[f(a=open('secret'))]", NO_LITERAL),
        ("[f(a={1, 2})]", NO_JSON),
        ("[f(a=1e999)]", NO_JSON),
        ("[f(**{'a': 1})]", UNPACKED),
        ("[f(a=1, a=2)]", TWICE),
    ],
)
def test_what_is_no_list_of_literal_calls_has_its_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_calls(text)
    assert str(caught.value) == reason


def load_hardgen(
    folder: Path, *conversations: list[tuple[str, Any]], system: Any = SYSTEM
) -> Loaded:
    file = folder / "hardgen.jsonl"
    lines = [
        {
            "id": f"c{n}",
            "0": system,
            **{str(i): {"role": r, "content": c} for i, (r, c) in enumerate(turns, 1)},
        }
        for n, turns in enumerate(conversations)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return gather(iter_items(file, "hardgen"))


ASKED = ("user", "Do f.")
CALLED = ("assistant", "<think>\nI call.\n</think>\n\n[f(a=1), g()]")
TOLD = ("tool", "[{'f(a=1)': {'ok': True}}, {'g()': 'done'}]")


def test_a_conversation_becomes_messages_with_calls_reasoning_and_results(tmp_path: Path) -> None:
    loaded = load_hardgen(tmp_path, [ASKED, CALLED, TOLD, ("assistant", "Done.")])
    (row,) = loaded.rows
    assert row.messages == (
        Message("user", "Do f."),
        Message("assistant", "", (ToolCall("f", {"a": 1}), ToolCall("g", {})), "", "I call."),
        Message("tool", '{"ok": true}'),
        Message("tool", "done"),
        Message("assistant", "Done."),
    )
    assert row.tools == ({"name": "f"}, {"name": "g"}) and row.id == "c0" and row.extra == {}
    assert loaded.dropped == loaded.remarks == {}


def test_turns_go_by_their_number_and_null_turns_are_none(tmp_path: Path) -> None:
    turns = {str(n): {"role": "user" if n % 2 else "assistant", "content": f"{n}"} for n in (10, 9)}
    (tmp_path / "a.jsonl").write_text(json.dumps({"0": SYSTEM, **turns, "11": None}) + "\n")
    (row,) = read_rows(tmp_path / "a.jsonl", "hardgen")
    assert [message.content for message in row.messages] == ["9", "10"]


def test_every_conversation_left_out_is_counted_by_its_reason(tmp_path: Path) -> None:
    loaded = load_hardgen(
        tmp_path,
        [ASKED, CALLED, TOLD],
        [ASKED, ("assistant", "[f(a=b)]")],
        [ASKED, ("assistant", "[f(a=c)]")],
        [ASKED, ("assistant", "[see above]")],
        [ASKED, CALLED, ("tool", "no list")],
        [ASKED, CALLED, ("tool", "['done']")],
        [ASKED, TOLD],
        [CALLED],
        [ASKED, ("oracle", "x")],
        [ASKED, ("assistant", None)],
    )
    assert [row.id for row in loaded.rows] == ["c0"]
    assert loaded.dropped == {
        NO_LITERAL: ("c1", "c2"),
        SYNTAX: ("c3",),
        NO_RESULTS: ("c4", "c5"),
        "a tool result without a call": ("c6",),
        "the assistant speaks first": ("c7",),
        UNKNOWN_ROLE: ("c8",),
        NO_TEXT: ("c9",),
    }


def test_positions_and_stack_traces_are_remarked_on(tmp_path: Path) -> None:
    trace = "Function call f(1) failed. KeyError Error: no such file Stack trace: line 1"
    told = ("tool", repr([{"f(1)": trace}]))
    loaded = load_hardgen(tmp_path, [ASKED, ("assistant", "[f(1)]"), told], [ASKED, CALLED])
    assert loaded.remarks == {POSITIONAL: ("c0",), SHORTENED: ("c0",)}
    assert loaded.rows[0].messages[-1].content == '{"error": "no such file"}'
