"""Text of a model becomes calls with literal arguments, or a reason; it never becomes behaviour."""

import ast
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.data.renderings import hermes
from assay.data.row import ToolCall
from assay.tasks.tools.parsing import (
    MAX_PYTHON_CHARACTERS,
    Decoded,
    PythonCall,
    RefusedCallError,
    decode_message,
    read_call,
    read_calls,
)

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


def call(text: str) -> PythonCall:
    (only,) = decode_message(text).calls
    assert isinstance(only, PythonCall)
    return only


def hermes_text(name: str, arguments: dict) -> str:
    return hermes.call_text(ToolCall(name, arguments))


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("ls()", ["ls()"]),
        ("[ls(a=True), cd('x')]", ["ls(a=True)", "cd('x')"]),
        ("ls(), pwd()", ["ls()", "pwd()"]),
        ("\n```[mean(numbers=[1, -2.5, 3])]```\n", ["mean(numbers=[1,-2.5,3])"]),
        ("I look.</think>\n\n[pwd()]", ["pwd()"]),
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
    "__import__('os')": "private_name",
    "open('/etc/hostname').read()": "not_a_name",
    "globals().update(re=None)": "not_a_name",
    "fs._load_scenario({})": "not_a_name",
    "fs.ls()": "not_a_name",
    "a.b.c.d.e.f.g()": "not_a_name",
    "(lambda: 1)()": "not_a_name",
    "ls()()": "not_a_name",
    "[ls][0]()": "not_only_calls",
    "ﬁnd()": "",  # Python itself reads the ligature as "find"
    "_load_scenario(scenario={})": "private_name",
    "__init__()": "private_name",
    "ls(__class__=1)": "bad_keyword",
    "ls(_a=1)": "bad_keyword",
    "ls(a=1, a=2)": "bad_keyword",
    "ls(**{'a': 1})": "unpacked",
    "ls(*[1])": "unpacked",
    "f(d={**{}})": "unpacked",
    "f(x=g(1))": "not_literal",
    "f(x=y)": "not_literal",
    "f(x=[y for y in 'ab'])": "not_literal",
    "f(x='a' * 10 ** 9)": "not_literal",
    "f(x=9 ** 9 ** 9)": "not_literal",
    "f(x=f'{1}')": "not_literal",
    "f(x=1j)": "not_literal",
    "f(x=b'')": "not_literal",
    "f(x=...)": "not_literal",
    "f(x={1})": "not_literal",
    "f(x={(1,): 2})": "not_literal",
    "f(x=-True)": "not_literal",
    "f(x=a if b else c)": "not_literal",
    "f(x=(y := 1))": "not_literal",
    "[f(), 5]": "not_only_calls",
    "[f() for _ in 'ab']": "not_only_calls",
    "f() or g()": "not_only_calls",
    "import os; os.system('x')": "statements",
    "import os": "statements",
    "from os import system": "statements",
    "x = ls()": "statements",
    "exec('1')\nls()": "statements",
    "while True: ls()": "statements",
    f"f(x={'9' * 301})": "",
    f"f(x={'9' * 5000})": "too_large",
    "f(x=1e999)": "too_large",
    "f(x=-1e999)": "too_large",
    f"f(x={'[' * 150}{']' * 150})": "",
    f"f(x={'[' * 5000}{']' * 5000})": "too_deep",
    f"f(x={'(' * 150}1{')' * 150})": "",
    f"f(x={'-' * 20000}1)": "too_deep",
    f"f({'.a' * 10 + 'x'})": "no_call",
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
        ("ls()", {}, "not_a_name"),
        ("__import__", {"name": "os"}, "private_name"),
        ("lambda", {}, "not_a_name"),
        ("ﬁnd", {}, "not_a_name"),
        ("ls\n", {}, "not_a_name"),
        ("ls", {"a b": 1}, "bad_keyword"),
        ("ls", {"**a": 1}, "bad_keyword"),
        ("ls", {"a=1, b": 1}, "bad_keyword"),
        ("ls", {"__class__": 1}, "bad_keyword"),
        ("ls", {"import": 1}, "bad_keyword"),
    ],
)
def test_hostile_json_is_refused_with_its_reason(name, arguments, reason):
    assert decode_message(hermes_text(name, arguments)) == Decoded(error=reason)


def test_errors_of_hermes_blocks_keep_their_names():
    assert decode_message("<tool_call>").error == "unclosed_call"
    assert decode_message("<tool_call>ls()</tool_call>").error == "bad_json"
    assert decode_message('<tool_call>{"name": "f"}</tool_call>').error == "bad_arguments"
    deep = hermes_text("f", {"x": 1}).replace("1", "[" * 40 + "]" * 40)
    assert decode_message(deep).error == "bad_json"


def test_one_refused_call_refuses_its_message():
    assert decode_message("[ls(), __import__('os')]") == Decoded(error="private_name")
    good, bad = hermes_text("ls", {}), hermes_text("os.system", {})
    assert decode_message(good + bad) == Decoded(error="not_a_name")


def test_code_in_a_string_stays_a_string():
    assert call("echo(content='__import__(\"os\")')").named == {"content": '__import__("os")'}


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


def test_one_call_is_one_call():
    for text in ("", "ls(), ls()", "[]"):
        with pytest.raises(RefusedCallError, match="not_only_calls"):
            read_call(text)
    assert read_calls("") == ()


def test_reading_runs_and_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')")
    before = set(sys.modules)
    for text in [*HOSTILE, "import trap", "__import__('trap')", "open('f', 'w')"]:
        decode_message(text)
    assert [file.name for file in tmp_path.iterdir()] == ["trap.py"]
    assert "trap" not in set(sys.modules) - before
