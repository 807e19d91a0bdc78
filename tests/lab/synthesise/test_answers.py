"""What a teacher wrote is read as rows or refused by name, and steers nothing else."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.data.row import Message, Row
from assay.experiment.read_file import made
from assay.experiment.selection_tables import SynthesiseSpec
from assay.lab.synthesise.answers import json_objects, reader_of, rows_in
from assay.lab.synthesise.made_set import Refused

TOOL = {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {}}}}
SEED = Row("s", (Message("user", "Seed?"),), tools=(TOOL,), conversation="c")
ONE, TWO = {"question": "1+1?", "answer": "2"}, {"question": "1+2?", "answer": "3"}


def spec(**values):
    given = {"data": "d", "prompt": "p", "rows": 1, "reward": "accuracy", **values}
    return made(SynthesiseSpec, given)


def read(text, cut=False, root=Path(), **values) -> list[Any]:
    table = spec(**{"format": "math", **values})
    return rows_in(table, reader_of(table, root), SEED, 3, text, cut)


@pytest.mark.parametrize(
    "text",
    [
        f"```json\n{json.dumps(ONE)}\n```\nthen\n```\n{json.dumps(TWO)}\n```",
        f'<think>{{"question": "no"}}</think> [1, "a", {json.dumps(ONE)}, {json.dumps(TWO)}]',
        f"{{broken {json.dumps(ONE)} {{{{ {json.dumps(TWO)}",
    ],
)
def test_objects_are_found_in_prose_fences_and_arrays_behind_the_thoughts(text):
    assert json_objects(text) == [ONE, TWO]


@given(st.text(alphabet='{}[]":,ab<>/`\n1', max_size=60))
def test_no_text_ends_the_work(text):
    with contextlib.suppress(ValueError):
        assert json_objects(text)


def test_a_row_has_its_place_from_the_seed_and_nothing_of_the_teachers_but_what_is_kept():
    wrote = {**ONE, "id": "own", "conversation": "own", "entry": {"x": 1}, "level": "Level 3"}
    wrote |= {"chat_template_kwargs": {"enable_thinking": False}}
    (row,) = read(json.dumps(wrote), keep=["level"])
    assert (row.id, row.conversation, dict(row.extra)) == ("s/3", "c", {"level": 3})
    assert not row.columns and not row.template_options and row.gold == "2"
    first, second = read(json.dumps([ONE, TWO]))
    assert (first.id, second.id) == ("s/3.0", "s/3.1")


def test_calls_get_the_seeds_tools_unless_the_teacher_describes_its_own():
    call = {"query": "Warm?", "answers": [{"name": "get_weather", "arguments": {"city": "Oslo"}}]}
    (row,) = read(json.dumps(call), format="xlam")
    assert row.tools == (TOOL,)
    own = {"name": "other", "parameters": {"type": "object"}}
    (bad,) = read(json.dumps({**call, "tools": [own]}), format="xlam")
    assert isinstance(bad, Refused) and bad.reason == "calls"


@pytest.mark.parametrize(
    ("text", "reason", "why"),
    [
        ('{"question": "1+1', "unreadable", "was cut at max_tokens"),
        (json.dumps({"question": "1+1?"}), "unreadable", "answer: missing"),
        # JSON reads \b of \boxed as a backspace.
        ('{"question": "1?", "solution": "\\boxed{1}", "answer": "1"}', "form", "U+0008"),
    ],
)
def test_what_is_no_row_is_refused_with_its_text(text, reason, why):
    (bad,) = read(text, cut=True)
    assert isinstance(bad, Refused) and bad.reason == reason and why in bad.why
    assert bad.text == text and (bad.id, bad.seed, bad.sample) == ("s/3", "s", 3)


def test_images_are_refused(tmp_path):
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    messages = [{"role": "user", "content": [picture]}, {"role": "assistant", "content": "a"}]
    (bad,) = read(json.dumps({"messages": messages}), format="messages")
    assert isinstance(bad, Refused)


def test_a_reader_of_the_users_own_that_fails_on_an_answer_refuses_that_answer(tmp_path):
    (tmp_path / "own.py").write_text(
        "def rows(seed, text):\n"
        "    q, a = text.split('=')\n"
        "    return {'question': q, 'answer': a}\n"
    )
    given = {"read": "path:own.py:rows", "root": tmp_path}
    (row,) = read("1+1=2", **given)
    assert (row.messages[0].content, row.gold) == ("1+1", "2")
    (bad,) = read("1+1", **given)
    assert isinstance(bad, Refused) and "ValueError" in bad.why and "own.py:2" in bad.why
