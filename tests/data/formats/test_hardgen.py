"""HardGen rows: calls are parsed and never run, and every conversation left out has its reason."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.data.formats.call_sets import NO_RESULTS, NO_TEXT, POSITIONAL, SHORTENED, UNKNOWN_ROLE
from assay.data.formats.formats import iter_items, read_rows
from assay.data.loaded import Loaded, gather
from assay.data.python_calls import (
    NO_CALLS,
    NO_JSON,
    NO_LITERAL,
    SYNTAX,
    TWICE,
    UNPACKED,
    parse_calls,
)
from assay.data.row import Message, ToolCall

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


def load(folder: Path, *conversations: list[tuple[str, Any]], system: Any = SYSTEM) -> Loaded:
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
    loaded = load(tmp_path, [ASKED, CALLED, TOLD, ("assistant", "Done.")])
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
    loaded = load(
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
    loaded = load(tmp_path, [ASKED, ("assistant", "[f(1)]"), told], [ASKED, CALLED])
    assert loaded.remarks == {POSITIONAL: ("c0",), SHORTENED: ("c0",)}
    assert loaded.rows[0].messages[-1].content == '{"error": "no such file"}'
