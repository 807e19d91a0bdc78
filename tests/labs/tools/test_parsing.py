"""Reading calls out of text: what each parser accepts, how it refuses, and that it never breaks;
calls in Python become literal arguments, or a reason, and never behaviour."""

import ast
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.data.renderings import hermes
from assay.data.row import ToolCall
from assay.labs.tools.parsing import (
    MAX_DEPTH,
    MAX_PYTHON_CHARACTERS,
    Decoded,
    Parsed,
    PythonCall,
    call_text,
    decode_message,
    parse_lenient,
    parse_strict,
    read_call,
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
        (f"<think>hm</think>\n\n{block(GOOD)}", 1),
        (f"{block(GOOD)}\n{block(GOOD)}", 2),
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
        (GOOD, "no_call"),
        (f"<tool_call>\n{GOOD}", "unclosed_call"),
        (block(""), "bad_json"),
        (f"<tool_call>{block(GOOD)}</tool_call>", "bad_json"),
        (block('{"name": "f", "arguments": {"a": "</tool_call>"}}'), "bad_json"),
        (block('{"name": "f", "arguments": {"a": NaN}}'), "bad_json"),
        (block('{"name": "f", "arguments": {"a": 1e999}}'), "bad_json"),
        (block('{"name": "f", "arguments": {"a": %s}}' % ("9" * 400)), "bad_json"),
        (block(f"[{GOOD}]"), "not_an_object"),
        (block('{"arguments": {}}'), "missing_name"),
        (block('{"name": "f"}'), "bad_arguments"),
        (block('{"name": "f", "arguments": "{}"}'), "bad_arguments"),
    ],
)
def test_strict_refuses_with_a_typed_error_and_no_calls(text, error):
    assert parse_strict(text) == Parsed(error=error)


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (GOOD, 1),
        (f"```json\n{GOOD}\n```", 1),
        (f"```json\n[{GOOD}, {GOOD}]\n```", 2),
        (f"<tool_call>\n{GOOD}", 1),
        (f"<tool_call>```json\n{GOOD}\n```</tool_call>", 1),
        (f'The state {{"a": 1}} gives\n```json\n{GOOD}\n```', 1),
    ],
)
def test_lenient_also_reads_fenced_and_bare_objects(text, calls):
    assert parse_strict(text).error
    assert parse_lenient(text) == Parsed((CALL,) * calls)


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
        "```" + "a" * 150_000,
        "\x00\ud800" * 1_000,
        block('{"name": "\\ud800", "arguments": {"\\u0000": "\\udfff"}}'),
    ],
)
def test_hostile_text_is_an_answer_like_any_other(parse, text):
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


NAMES = st.from_regex(r"[a-z][a-zA-Z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: name not in {"and", "as", "if", "in", "is", "or", "not", "def", "del", "for"}
)
SCALARS = st.none() | st.booleans() | st.integers() | st.text()
SCALARS |= st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(), inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
    ),
    max_leaves=8,
)


def hermes_text(name: str, arguments: dict) -> str:
    return hermes.call_text(ToolCall(name, arguments))


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("ls()", ["ls()"]),
        ("[ls(a=True), cd('x')]", ["ls(a=True)", "cd('x')"]),
        ("\n```[mean(numbers=[1, -2.5, 3])]```\n", ["mean(numbers=[1,-2.5,3])"]),
        ("<think>ls()</think>pwd()", ["pwd()"]),
        ('f(d={"a": (1, None), 2: []}, t=())', ["f(d={'a':(1,None),2:[]},t=())"]),
        ('I look. <tool_call>\n{"name": "ls", "arguments": {}}\n</tool_call>', ["ls()"]),
        (hermes_text("cd", {"folder": "a\nb"}), ["cd(folder='a\\nb')"]),
    ],
)
def test_both_spellings_are_read(text, calls):
    assert [c.source.replace(", ", ",").replace(": ", ":") for c in decode_message(text).calls] == [
        c.replace(": ", ":") for c in calls
    ]
    assert decode_message(text).error == ""


PROSE = ["", "Done.", "Done", "[]", "()", "I moved (copied) it: see above", "x = 1", "a.b", "ls"]
PROSE += ["```\n```", "Sure: done", "ﬁ", "\x00", "\ud800", "[1, 2]", "'ls()'", "see ls() there"]


@pytest.mark.parametrize("text", PROSE)
def test_a_message_that_calls_nothing_is_no_refusal(text):
    assert decode_message(text) == Decoded(error="no_call")


HOSTILE = {
    "__import__('os').system('echo x > f')": "not_a_name",
    "(lambda: 1)()": "not_a_name",
    "[ls][0]()": "not_only_calls",
    "ﬁnd()": "",  # Python itself reads the ligature as "find"
    "_load_scenario(scenario={})": "private_name",
    "ls(__class__=1)": "bad_keyword",
    "ls(**{'a': 1})": "unpacked",
    "f(x=g(1))": "not_literal",
    "f(x='a' * 10 ** 9)": "not_literal",
    "f(x={(1,): 2})": "not_literal",
    "f(x=-True)": "not_literal",
    "f(x=(y := 1))": "not_literal",
    "import os; os.system('x')": "statements",
    f"f(x={'9' * 301})": "",
    f"f(x={'9' * 5000})": "too_large",
    f"f(x={'[' * 150}{']' * 150})": "",
    f"f(x={'[' * 5000}{']' * 5000})": "too_deep",
    f"f(x={'-' * 20000}1)": "too_deep",
    f"a{'.b' * 20000}()": "too_deep",
    f"f(x='{'a' * MAX_PYTHON_CHARACTERS}')": "too_long",
}


@pytest.mark.parametrize(("text", "reason"), HOSTILE.items(), ids=range(len(HOSTILE)))
def test_hostile_text_is_refused_with_its_reason(text, reason):
    assert decode_message(text).error == reason
    assert bool(decode_message(text).calls) == (reason == "")


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("os.system", {"command": "x"}, "not_a_name"),
        ("__import__", {"name": "os"}, "private_name"),
        ("ls", {"a b": 1}, "bad_keyword"),
        ("ls", {"__class__": 1}, "bad_keyword"),
    ],
)
def test_hostile_json_is_refused_with_its_reason(name, arguments, reason):
    assert decode_message(hermes_text(name, arguments)) == Decoded(error=reason)


@given(NAMES, st.lists(VALUES, max_size=3), st.dictionaries(NAMES, VALUES, max_size=3))
def test_a_call_is_read_back_from_its_own_source(name, positional, named):
    made = PythonCall(name, tuple(positional), named)
    back = read_call(made.source)
    assert repr(back) == repr(made)
    # An independent reader: Python's own literals.
    node = ast.parse(made.source, mode="eval").body
    assert isinstance(node, ast.Call)
    assert [ast.literal_eval(value) for value in node.args] == positional
    assert {k.arg: ast.literal_eval(k.value) for k in node.keywords} == named


@given(st.text() | st.text("[](){}*.,='\"_-:abf1 \n"))
def test_no_text_raises_or_is_both_calls_and_an_error(text):
    decoded = decode_message(text)
    assert bool(decoded.calls) != bool(decoded.error)


def test_reading_runs_and_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')")
    before = set(sys.modules)
    for text in [*HOSTILE, "import trap", "__import__('trap')", "open('f', 'w')"]:
        decode_message(text)
    assert [file.name for file in tmp_path.iterdir()] == ["trap.py"]
    assert "trap" not in set(sys.modules) - before
