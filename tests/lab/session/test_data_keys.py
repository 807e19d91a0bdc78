"""The keys of [data.NAME] that choose rows: what they keep and count, and what the check says."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.data.renderings.rendering import Renderer
from assay.data.row import Message, Row
from assay.data.row_checks import UNDECLARED
from assay.errors import InputError
from assay.experiment.data_tables import DataSpec, Split
from assay.lab.data.prepare import LONGER, SHORTER, DataSet, conversation_tokens, describe, prepare
from assay.lab.models.language_encoder import LanguageEncoder
from assay.tasks.task import task
from tests.data.chat import tokenizer
from tests.lab.sound_lab import make_sound_lab

TOOL = {"name": "f", "parameters": {"type": "object", "properties": {}}}
SKILL = task("tools")
RENDERER = Renderer(tokenizer("chatml"), "hermes")
ENCODER = LanguageEncoder(RENDERER, frozenset())

Prepared = Callable[..., DataSet]


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    return make_sound_lab(tmp_path)


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    """A data set of HardGen conversations of growing length, made with the keys that are given."""
    lines = []
    for n in range(8):
        turns: list[dict[str, Any]] = [{"role": "system", "tools": json.dumps([TOOL])}]
        turns.append({"role": "user", "content": f"Do {n}." + " please" * 20 * n})
        turns.append({"role": "assistant", "content": f"[{'g' if n == 1 else 'f'}(a={n})]"})
        turns.append({"role": "tool", "content": "[{'f': 'ok'}]"})
        turns.append({"role": "assistant", "content": "Done." if n != 2 else "[f(a=b)]"})
        lines.append({"id": f"c{n}", **{str(i): turn for i, turn in enumerate(turns)}})
    (tmp_path / "hardgen.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def make(**keys: Any) -> DataSet:
        spec = DataSpec(source="path:hardgen.jsonl", format="hardgen", **keys)
        return prepare("train", spec, SKILL, ENCODER, tmp_path)

    return make


def test_conversations_left_out_by_the_reader_are_counted_and_told(prepared: Prepared) -> None:
    made = prepared()
    ((reason, ids),) = made.dropped.items()
    assert "no literal" in reason and ids == ("c2",)
    assert (made.total, len(made.train)) == (8, 7)
    assert made.remarks == {UNDECLARED: ("c1",)}
    spec = DataSpec(source="path:hardgen.jsonl", format="hardgen")
    line = describe(made, spec)
    assert "7 of 8 rows" in line and f"1 dropped: {reason}" in line
    assert f"1 kept: {UNDECLARED}" in line


def test_expanded_rows_of_a_conversation_fall_on_one_side(prepared: Prepared) -> None:
    made = prepared(expand="each_turn", split={"dev": 0.3})
    sides = [{row.conversation for row in side} for side in (made.train, made.dev)]
    assert not sides[0] & sides[1] and sum(map(len, sides)) == 7
    assert len(made.train) + len(made.dev) == 14
    cut = prepared(expand="last_call")
    assert all(row.messages[-1].tool_calls for row in cut.train)


def test_filters_by_length_count_what_they_removed(prepared: Prepared) -> None:
    whole = prepared()
    tokens = {row.id: conversation_tokens(ENCODER, SKILL, row) for row in whole.train}
    assert list(tokens.values()) == sorted(tokens.values())
    made = prepared(min_tokens=tokens["c1"], max_tokens=tokens["c5"])
    assert [row.id for row in made.train] == ["c1", "c3", "c4", "c5"]
    assert made.dropped[LONGER] == ("c6", "c7") and made.dropped[SHORTER] == ("c0",)


def test_the_whole_conversation_is_measured_with_its_answer(prepared: Prepared) -> None:
    (row, *_) = prepared().train
    messages = (*SKILL.prompt(row), SKILL.target(row))
    rendered = RENDERER.conversation(messages, row.tools)
    # What the template writes after the last turn is not trained on.
    assert conversation_tokens(ENCODER, SKILL, row) == rendered.message_spans[-1][2]
    asked = Row("asked", (Message("user", "?"),))
    assert conversation_tokens(ENCODER, SKILL, asked) == len(RENDERER.prompt(SKILL.prompt(asked)))


def test_limits_that_leave_nothing_say_by_which_reason(prepared: Prepared) -> None:
    with pytest.raises(InputError, match=f"no row is left .*{LONGER}: 7"):
        prepared(max_tokens=5)
    with pytest.raises(ValueError, match="is more than max_tokens = 5"):
        DataSpec(source="a:b", min_tokens=6, max_tokens=5)


def test_a_test_part_is_held_out_beside_the_dev_part_which_does_not_depend_on_it(
    prepared: Prepared,
) -> None:
    alone, both = prepared(split=Split(dev=0.3)), prepared(split=Split(dev=0.3, test=0.3))
    assert alone.dev == both.dev and len(both.dev) == len(both.test) == 2
    assert both.part("train.test") == both.test and len(both.rows) == len(both.train) + 4 == 7
    assert len({row.id for row in both.rows}) == 7
    assert "3 train, 2 dev, 2 test" in describe(both, DataSpec(source="path:x", format="trl"))
    only = prepared(split=Split(test=3))
    assert (only.dev, len(only.test), len(only.train)) == ((), 3, 4)
    with pytest.raises(InputError, match=r"split.test: a share of 0.9\d* of"):
        prepared(split=Split(dev=0.3, test=0.7))
    with pytest.raises(
        InputError, match=f"of 1 conversations is 0; left out before: .*{LONGER}: 6"
    ):
        least = conversation_tokens(ENCODER, SKILL, prepared().train[0])
        prepared(split=Split(dev=0.3), max_tokens=least)
