"""Reading calls out of text: what each parser accepts, how it refuses, and that it never breaks;
calls in Python become literal arguments, or a reason, and never behaviour; BFCL's own reader is
called beside ours."""

import ast
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import starmap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.data.episode import Completion
from assay.data.renderings import hermes
from assay.data.row import Message, Row, ToolCall
from assay.data.tools import function_names
from assay.engines.environments import ask
from assay.labs.tools.multi_turn import ADDED, MULTI_TURN, Added, MultiTurnDialogue
from assay.labs.tools.parsing import (
    MAX_DEPTH,
    MAX_PYTHON_CHARACTERS,
    MessageCalls,
    PythonCall,
    TextCalls,
    decode_bfcl,
    decode_message,
    parse_strict,
    read_call,
)
from assay.labs.tools.rewards import RELEVANCE
from assay.labs.tools.single_turn import CATEGORIES
from assay.labs.tools.task import TASK
from assay.tasks.running import RewardRunner
from assay.tasks.task import Benchmark, BenchmarkOptions, benchmark
from tests.labs.tools import bfcl_texts
from tests.labs.tools.upstream import PROGRAM, upstreams

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
    assert parse_strict(text) == TextCalls((CALL,) * calls)


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
    assert parse_strict(text) == TextCalls(error=error)


def nested(depth: int, opening: str, closing: str) -> str:
    value = opening * depth + "0" + closing * depth
    return block(f'{{"name": "f", "arguments": {{"a": {value}}}}}')


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_depth_is_bounded_far_below_the_interpreters(opening, closing):
    # The block and its arguments are two levels of their own.
    assert not parse_strict(nested(MAX_DEPTH - 3, opening, closing)).error
    for depth in (MAX_DEPTH - 2, 900, 5_000, 15_000):
        assert parse_strict(nested(depth, opening, closing)).error == "bad_json"


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
def test_hostile_text_is_an_answer_like_any_other(text):
    parsed = parse_strict(text)
    assert bool(parsed.calls) != bool(parsed.error)


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
    assert decode_message(text) == MessageCalls(error="no_call")


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
    assert decode_message(hermes_text(name, arguments)) == MessageCalls(error=reason)


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


Cases = dict[str, list[Any]]
"""By category."""
SIMULATOR = re.compile(r"\bmodel_\w+_instance\.")
FAILED = "Error during execution"
SINGLE = (*CATEGORIES, *RELEVANCE)


def made(category: str, **options: Any) -> Benchmark:
    return benchmark(TASK, f"bfcl/{category}", BenchmarkOptions(options))


def drawn(categories: Sequence[str], texts: int, seed: str) -> dict[str, list[list[Any]]]:
    """About so many texts, or dialogues, of each category, of entries evenly spread."""
    return {
        category: bfcl_texts.cases(
            items := made(category).items, -(-len(items) // texts), -(-texts // len(items)), seed
        )
        for category in categories
    }


def differences(cases: Cases, upstream: Cases) -> tuple[list, Counter]:
    """The cases that are judged otherwise here, and how often each error of upstream's is."""
    found, errors = [], Counter()
    for category, asked in cases.items():
        bench = made(category)
        pairs = [(bench.items[index], said) for index, said in asked]
        judged = dialogues(bench, pairs) if bench.dialogue else singles(bench, pairs)
        for (row, said), here, there in zip(pairs, judged, upstream[category], strict=True):
            if bench.dialogue:
                heard = [Message(m["role"], m["content"]) for m in there["tools"]["asked"][-1][0]]
                expected = results(heard)
                if here[2][: len(expected)] != expected:
                    found.append((row.id, said, here[2], expected))
                for added in ADDED.values():
                    expected = list(starmap(outline, there[added]["asked"]))
                    if (asked := questions(row, said, added)) != expected:
                        found.append((row.id, added, asked, expected))
                there = there["tools"]["error"]
            errors[there] += 1
            if here[:2] != (there == "", there):
                found.append((row.id, said, here[:2], there))
    return found, errors


def singles(bench: Benchmark, pairs: Sequence[tuple[Any, str]]) -> list[tuple[Any, ...]]:
    judged = []
    for row, text in pairs:
        try:
            value = bench.score(row, Completion(text)).value
            judged.append((value == 1, bench.classify(row, Completion(text))))
        except Exception:  # as upstream's own checker does
            judged.append((False, "upstream raises"))
    return judged


def dialogues(bench: Benchmark, pairs: Sequence[tuple[Any, list[str]]]) -> list[tuple[Any, ...]]:
    assert bench.dialogue is not None
    played = []
    for row, texts in pairs:
        said, coming = bench.dialogue(row), iter(texts)
        while said.asks() is not None:
            said.hears(next(coming, ""), "stop")
        played.append((row, Completion("", messages=said.messages)))
    with RewardRunner(bench.score, workers=1) as runner:
        rewards = runner.score(played)
    return [
        (reward.value == 1, bench.classify(*pair), results(pair[1].messages))
        for reward, pair in zip(rewards, played, strict=True)
    ]


def questions(row: Row, texts: Sequence[str], added: Added) -> list[Any]:
    """All that the model is asked where functions are added in this place."""
    said, coming = MultiTurnDialogue(row, added=added, decode=decode_bfcl), iter(texts)
    asked = []
    while (now := said.asks()) is not None:
        messages = [{"role": m.role, "content": m.content} for m in now.messages]
        asked.append(outline(messages, function_names(now.tools)))
        said.hears(next(coming, ""))
    return asked


def outline(messages: Sequence[Mapping[str, Any]], functions: Sequence[str]) -> list[Any]:
    """Who spoke, the words of the user, and what may be called."""
    said = [[m["role"], m["content"] if m["role"] == "user" else ""] for m in messages]
    return [said, list(functions)]


def results(messages: Sequence[Message]) -> list[str]:
    """What the calls gave; a call that fails may say so in other words, and upstream writes a
    simulator's name into an argument that looks like a call."""
    found = [SIMULATOR.sub("", m.content) for m in messages if m.role == "tool"]
    return [FAILED if each.startswith(FAILED) else each for each in found]


def test_answers_of_every_category_are_judged_as_upstream_judges_them(tmp_path: Path) -> None:
    cases = drawn(SINGLE, 200, "one")
    assert sum(map(len, cases.values())) >= 2000
    found, errors = differences(cases, upstreams(cases, tmp_path))
    assert found == []
    # Right and wrong answers of many kinds, or the comparison said little.
    assert errors[""] > 300 and len(errors) > 12


@pytest.mark.slow
def test_so_are_dialogues_and_their_calls_give_what_they_give_there(tmp_path: Path) -> None:
    cases = drawn(MULTI_TURN, 8, "some")
    found, errors = differences(cases, upstreams(cases, tmp_path))
    assert found == []
    assert errors[""] and len(errors) > 1, "right and wrong dialogues occur"


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", ["two", "three"])
def test_so_are_all_by_the_package_as_it_is_installed(seed: str, tmp_path: Path) -> None:
    cases = drawn(SINGLE, 400, seed) | drawn(MULTI_TURN, 60, seed)
    request = {"wheel": "", "scratch": str(tmp_path), "cases": cases}
    found, _ = differences(cases, ask("bfcl", PROGRAM, request, timeout=3000))
    assert found == []
