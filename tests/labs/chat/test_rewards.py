"""The rewards of the chat task: right, wrong, empty, exchanged, and what they cannot know."""

import json
from typing import Any

import pytest

from assay.data.episode import Completion, Reward
from assay.data.row import Message, Row
from assay.errors import InputError
from assay.lab.session.reward_parts import with_options
from assay.tasks.running import RewardRunner
from assay.tasks.task import reward, task

CHAT = task("chat")


def row(answer: str | None = "Paris", gold: Any = None, **extra: Any) -> Row:
    said = () if answer is None else (Message("assistant", answer),)
    return Row("r", (Message("user", "?"), *said), gold=gold, extra=extra)


def judged(name: str, of: Row, *texts: str, deadline: float = 20.0) -> list[Reward]:
    judge = reward(CHAT, f"chat.{name}")
    with RewardRunner(judge, deadline, sandbox="limits-only", workers=1) as runner:
        return runner.score([(of, Completion(text)) for text in texts])


def values(name: str, of: Row, *texts: str) -> list[float | None]:
    return [each.value for each in judged(name, of, *texts)]


def test_an_exact_match_is_the_whole_answer_after_its_thought() -> None:
    texts = ("Paris", " Paris\n", "<think>Rome?</think>\nParis", "paris", "Paris.", "", "Rome")
    assert values("exact_match", row(), *texts) == [1, 1, 1, 0, 0, 0, 0]
    assert values("exact_match", row(gold="Rome"), "Rome", "Paris") == [1, 0]
    assert values("exact_match", Row("r", (), extra={"answer": 7}), "7", "8") == [1, 0]


def test_an_answer_contains_the_reference_anywhere_but_in_its_thought() -> None:
    texts = ("It is Paris.", "<think>Paris</think> Rome", "", "Par")
    assert values("contains", row(), *texts) == [1, 0, 0, 0]


@pytest.mark.parametrize("name", ["exact_match", "contains"])
def test_a_row_without_an_answer_is_unscored(name: str) -> None:
    (found,) = judged(name, row(None), "Paris")
    assert found.value is None and "no answer" in found.why


def test_json_is_equal_by_value() -> None:
    gold = {"a": [1, {"b": True}], "c": None}
    right = '{"c": null, "a": [1.0, {"b": true}]}'
    wrong = ('{"a": [1, {"b": 1}], "c": null}', '{"a": [1, {"b": true}]}', "[]", "{} {}", "", "NaN")
    for of in (row(json.dumps(gold)), row(None, gold=gold), row("text", gold=gold)):
        found = judged("json_equal", of, right, *wrong)
        assert [each.value for each in found] == [1, 0, 0, 0, 0, 0, 0]
        assert [each.parts["json"] for each in found] == [1, 1, 1, 1, 0, 0, 0]
    assert judged("json_equal", row("Paris"), right)[0].value is None
    deep = "[" * 5000 + "]" * 5000
    assert judged("json_equal", row("[]"), deep)[0].value == 0


def test_a_pattern_is_the_rows_own_and_runs_elsewhere() -> None:
    of = row("12 May", pattern=r"^\d+ [A-Z][a-z]+$")
    assert values("regex", of, "12 May", "<think>x</think>3 June", "May 12", "") == [1, 1, 0, 0]
    assert judged("regex", row(), "x")[0].value is None
    (broken,) = judged("regex", row(pattern="("), "x")
    assert broken.value is None and "no regular expression" in broken.why.replace("not a", "no")


def test_a_text_on_which_a_pattern_never_ends_earns_nothing() -> None:
    (found,) = judged("regex", row("a", pattern="^(a|aa)+$"), "a" * 60 + "b", deadline=1.0)
    assert found.value == 0 and found.outcome == "timed out"


def test_a_schema_is_the_rows_own_as_object_or_text() -> None:
    schema = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
    texts = ('{"n": 1}', '{"n": "1"}', "{}", "n = 1", "")
    for given in (schema, json.dumps(schema)):
        found = judged("json_schema", row('{"n": 3}', schema=given), *texts)
        assert [each.value for each in found] == [1, 0, 0, 0, 0]
        assert [each.outcome for each in found] == ["right", "wrong", "wrong", *["not_json"] * 2]
    for given, why in {
        None: "no column schema",
        "{": "is not JSON",
        '{"type": 3}': "the schema $.type",
        '{"$ref": "http://a/b"}': "nothing is fetched",
    }.items():
        (found,) = judged("json_schema", row(schema=given), "{}")
        assert found.value is None and why in found.why


def test_pattern_and_schema_may_be_options_of_a_reward_table() -> None:
    for name, options, right in (
        ("regex", {"pattern": "^[0-9]+$"}, "12"),
        ("json_schema", {"schema": '{"type": "integer"}'}, "12"),
    ):
        judge = with_options(name, reward(CHAT, name), options)
        with RewardRunner(judge, 20.0, sandbox="limits-only", workers=1) as runner:
            found = runner.score([(row(), Completion(text)) for text in (right, "twelve")])
        assert [each.value for each in found] == [1.0, 0.0]
    with pytest.raises(InputError, match="'json_schema' cannot be made"):
        with_options("json_schema", reward(CHAT, "json_schema"), {"schema": "{"})


def test_every_reward_gives_gold_its_full_value_and_an_empty_answer_none() -> None:
    pattern, schema = r"\{.*\}", {"type": "object"}
    for name in CHAT.rewards:
        of = row('{"a": 1}', pattern=pattern, schema=schema)
        assert values(name, of, CHAT.target(of).content, "") == [1.0, 0.0]
