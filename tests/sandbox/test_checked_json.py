"""Whatever a program writes is read or refused, never raised on; what is read is harmless."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from assay.sandbox.limits import CallOutcome
from assay.sandbox.pipes import (
    MOST_DEPTH,
    checked_line,
    read_answer,
    read_call,
    read_json,
)

TEXT = some.text(some.characters(exclude_categories=["Cs"]))
PLAIN = some.recursive(
    some.none()
    | some.booleans()
    | some.integers(-(1 << 63), (1 << 63) - 1)
    | some.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


@given(PLAIN)
def test_plain_values_come_through_unchanged(value: Any) -> None:
    assert read_json(checked_line(value)) == value


@given(some.binary() | some.text('[]{}":,0123456789eE+-.truefalsnNaIity\\ud8').map(str.encode))
def test_any_bytes_are_read_or_refused_and_what_is_read_can_be_written(line: bytes) -> None:
    for read in (read_json, read_answer, lambda line: read_call(line, 1)):
        try:
            read(line)
        except ValueError as bad:
            assert str(bad)
    try:
        value = read_json(line)
    except ValueError:
        return
    json.dumps(value, allow_nan=False, ensure_ascii=False).encode("utf-8")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", "no JSON"),
        ("1 2", "no JSON"),
        ("é", "not in ASCII"),
        ("NaN", "NaN is no JSON"),
        ("1e999", "beyond all bounds"),
        (str(1 << 63), "more than 64 bits"),
        ("9" * 10_000, "no JSON"),
        ('"\\ud800"', "surrogate"),
        ('{"\\udfff": 1}', "surrogate"),
        (nested(MOST_DEPTH + 1), f"deeper than {MOST_DEPTH}"),
        ("[" * 100_000, f"deeper than {MOST_DEPTH}"),
    ],
)
def test_what_is_no_harmless_json_is_refused_and_said(line: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_json(line.encode())


def test_the_bounds_themselves_pass() -> None:
    assert read_json(nested(MOST_DEPTH).encode())
    assert read_json(b"[9223372036854775807, -9223372036854775808, 1e308]")
    assert read_json(b'"\\ud83d\\ude00"') == "\N{GRINNING FACE}"


def test_a_call_is_read_with_the_number_that_is_next() -> None:
    line = b'{"id": 3, "name": "Custom", "arguments": {"input": "x"}}'
    assert read_call(line, 3) == ("Custom", {"input": "x"})
    with pytest.raises(ValueError, match="the call's id is not 4, the next one"):
        read_call(line, 4)


@pytest.mark.parametrize(
    "message",
    [
        [],
        {"id": 1, "name": "a"},
        {"id": 1, "name": "a", "arguments": {}, "more": 1},
        {"id": True, "name": "a", "arguments": {}},
        {"id": "1", "name": "a", "arguments": {}},
        {"id": 1, "name": None, "arguments": {}},
        {"id": 1, "name": "a", "arguments": []},
    ],
)
def test_a_call_of_another_form_is_refused(message: Any) -> None:
    with pytest.raises(ValueError):
        read_call(json.dumps(message).encode(), 1)


def test_a_program_tells_its_value_or_what_it_raised_and_nothing_else() -> None:
    assert read_answer(b'{"value": [1]}') == CallOutcome([1])
    raised = b'{"failure": "exception", "why": "KeyError: 1"}'
    assert read_answer(raised) == CallOutcome(failure="exception", why="KeyError: 1")
    for message in (
        *("[]", "{}", '{"value": 1, "why": ""}', '{"failure": "exception"}'),
        *('{"failure": "deadline", "why": ""}', '{"failure": "crash", "why": ""}'),
        *('{"failure": "memory", "why": 1}', '{"failure": [], "why": ""}'),
    ):
        with pytest.raises(ValueError):
            read_answer(message.encode())


def test_a_line_that_would_be_refused_is_not_written() -> None:
    for value in (math.nan, 1 << 63, "\ud800", json.loads(nested(40))):
        with pytest.raises(ValueError):
            checked_line(value)
    with pytest.raises(TypeError):
        checked_line({1})
