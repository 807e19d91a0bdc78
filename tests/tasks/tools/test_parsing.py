"""Reading calls out of text: what each parser accepts, how it refuses, and that it never breaks."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.data.row import ToolCall
from assay.tasks.tools.parsing import (
    MAX_CHARACTERS,
    MAX_DEPTH,
    Parsed,
    call_text,
    parse_lenient,
    parse_strict,
)

GOOD = '{"name": "f", "arguments": {"a": 1}}'
CALL = ToolCall("f", {"a": 1})


def block(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (block(GOOD), 1),
        (f"<tool_call>{GOOD}</tool_call>", 1),
        (f"<tool_call>\n\n  {GOOD}\t\n</tool_call>", 1),
        (f"I will look.\n{block(GOOD)}\nDone.", 1),
        (f"<think>hm</think>\n\n{block(GOOD)}", 1),
        (f"{block(GOOD)}\n{block(GOOD)}", 2),
        (f"{block(GOOD)}{block(GOOD)}</tool_call>", 2),
        (block('{"id": "1", "name": "f", "arguments": {"a": 1}, "why": ""}'), 1),
    ],
)
def test_strict_reads_hermes_blocks(text, calls):
    assert parse_strict(text) == Parsed((CALL,) * calls)
    assert parse_lenient(text) == parse_strict(text)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "no_call"),
        ("The answer is 4.", "no_call"),
        (GOOD, "no_call"),
        ("</tool_call>", "no_call"),
        (f"<tool_call>\n{GOOD}", "unclosed_call"),
        (f"{block(GOOD)}<tool_call>", "unclosed_call"),
        (block(""), "bad_json"),
        (block(GOOD + GOOD), "bad_json"),
        (block(GOOD.replace('"', "'")), "bad_json"),
        (block('{"name": "f", "arguments": {"a": 1,}}'), "bad_json"),
        (block('f(a=__import__("os").system("id"))'), "bad_json"),
        (f"<tool_call>{block(GOOD)}</tool_call>", "bad_json"),
        (f"{block(GOOD)}{block('{')}", "bad_json"),
        (block('{"name": "f", "arguments": {"a": "</tool_call>"}}'), "bad_json"),
        (block('{"name": "f", "arguments": {"a": NaN}}'), "bad_json"),
        (block('{"name": "f", "arguments": {"a": -Infinity}}'), "bad_json"),
        (block('{"name": "f", "arguments": {"a": 1e999}}'), "bad_json"),
        (block('{"name": "f", "arguments": {"a": %s}}' % ("9" * 400)), "bad_json"),
        (block(f"[{GOOD}]"), "not_an_object"),
        (block('"f"'), "not_an_object"),
        (block("null"), "not_an_object"),
        (block('{"arguments": {}}'), "missing_name"),
        (block('{"name": "", "arguments": {}}'), "missing_name"),
        (block('{"name": ["f"], "arguments": {}}'), "missing_name"),
        (block('{"name": "f"}'), "bad_arguments"),
        (block('{"name": "f", "arguments": null}'), "bad_arguments"),
        (block('{"name": "f", "arguments": [1]}'), "bad_arguments"),
        (block('{"name": "f", "arguments": "{}"}'), "bad_arguments"),
        (block('{"name": "f", "parameters": {}}'), "bad_arguments"),
    ],
)
def test_strict_refuses_with_a_typed_error_and_no_calls(text, error):
    assert parse_strict(text) == Parsed(error=error)


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (GOOD, 1),
        (f"```json\n{GOOD}\n```", 1),
        (f"```\n{GOOD}\n```", 1),
        (f"Sure:\n```json\n{GOOD}\n```\nThat is it.", 1),
        (f"```json\n[{GOOD}, {GOOD}]\n```", 2),
        (f"I call {GOOD} and {GOOD}.", 2),
        (f"<tool_call>\n{GOOD}", 1),
        (f"<tool_call>```json\n{GOOD}\n```</tool_call>", 1),
        (f"The set {{1, 2}} and then {GOOD}", 1),
        (f'The state {{"a": 1}} gives\n```json\n{GOOD}\n```', 1),
    ],
)
def test_lenient_also_reads_fenced_and_bare_objects(text, calls):
    assert parse_strict(text).error
    assert parse_lenient(text) == Parsed((CALL,) * calls)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "no_call"),
        ("The answer is 4.", "no_call"),
        ('{"a": 1}', "no_call"),
        (f'{{"result": {GOOD}}}', "no_call"),
        (f'{{"a": 1}} {GOOD}', "no_call"),
        (f"<tool_call>{GOOD[:-1]}</tool_call>", "bad_json"),
        ("f(a=1)", "no_call"),
    ],
)
def test_lenient_still_refuses_what_is_no_call_with_the_strict_error(text, error):
    assert parse_lenient(text) == Parsed(error=error)


def nested(depth: int, opening: str, closing: str) -> str:
    value = opening * depth + "0" + closing * depth
    return block(f'{{"name": "f", "arguments": {{"a": {value}}}}}')


@pytest.mark.parametrize("parse", [parse_strict, parse_lenient])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_depth_is_bounded_far_below_the_interpreters(parse, opening, closing):
    # The block and its arguments are two levels of their own.
    assert not parse(nested(MAX_DEPTH - 3, opening, closing)).error
    for depth in (MAX_DEPTH - 2, 900, 5_000, 15_000):
        assert parse(nested(depth, opening, closing)).error == "bad_json"


@pytest.mark.parametrize("parse", [parse_strict, parse_lenient])
@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>" * 15_000,
        "{" * 150_000,
        '{"a":' * 30_000,
        "```\n" * 40_000,
        "```" + "a" * 150_000,
        "[" * 150_000,
        "\x00\ud800" * 1_000,
        block('{"name": "\\ud800", "arguments": {"\\u0000": "\\udfff"}}'),
    ],
)
def test_hostile_text_is_an_answer_like_any_other(parse, text):
    parsed = parse(text)
    assert bool(parsed.calls) != bool(parsed.error)


@pytest.mark.parametrize("parse", [parse_strict, parse_lenient])
def test_size_is_bounded(parse):
    room = MAX_CHARACTERS - len(block(GOOD))
    assert not parse(" " * room + block(GOOD)).error
    assert parse(" " * (room + 1) + block(GOOD)) == Parsed(error="too_long")


@given(st.text(alphabet='<tool_call>/{}[]":,aname rguments1\n`\\', max_size=200))
def test_any_text_gives_calls_or_an_error_and_never_both(text):
    for parse in (parse_strict, parse_lenient):
        parsed = parse(text)
        assert bool(parsed.calls) != bool(parsed.error)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8).filter(lambda text: "</tool_call>" not in text),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(
    st.lists(
        st.tuples(st.text(min_size=1, max_size=8), st.dictionaries(st.text(max_size=5), values)),
        min_size=1,
        max_size=3,
    )
)
def test_written_calls_are_read_back_as_they_were(pairs):
    calls = tuple(ToolCall(name, arguments) for name, arguments in pairs)
    for parse in (parse_strict, parse_lenient):
        read = parse(call_text(calls))
        assert [json.dumps(c.arguments) for c in read.calls] == [
            json.dumps(c.arguments) for c in calls
        ]
        assert [c.name for c in read.calls] == [c.name for c in calls]
