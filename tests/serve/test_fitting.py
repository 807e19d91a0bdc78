"""What a request demands of its answer is kept, or refused in words: never an answer beside it."""

import json
from collections.abc import Callable

import pytest

from assay.data.json_schema import check
from assay.rl.policy import SampleKey
from assay.serve.streams import MORE_SAMPLES
from tests.serve.scripted import client
from tests.serve.test_app import CALL, CHAT, HELLO, TOOL, events, named

OTHER = {**TOOL, "function": {**TOOL["function"], "name": "other"}}
OTHER_CALL = CALL.replace("add", "other")
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
TOOLS = {**HELLO, "tools": [TOOL, OTHER]}


def schema(value: object) -> dict:
    return {"type": "json_schema", "json_schema": {"name": "it", "schema": value, "strict": True}}


def later(good: str, bad: str) -> Callable[[str, SampleKey], str]:
    """Says `bad` first and `good` in the third of the other samples."""
    return lambda _, key: good if key.row.endswith("again 3") else bad


@pytest.mark.parametrize(("said", "drawn"), [(0, 1), (1e-8, 1), (1e-3, 1e-3), (0.5, 0.5), (2, 2)])
def test_further_samples_are_drawn_at_a_temperature_at_which_they_may_differ(said, drawn) -> None:
    demand = {**HELLO, "response_format": {"type": "json_object"}, "temperature": said}
    with client(later("{}", "no")) as (http, sampler):
        assert http.post(CHAT, json=demand).status_code == 200
    first, *others = [one.temperature for one in sampler.settings]
    assert first == said and set(others) == {drawn}


@pytest.mark.parametrize(
    ("demand", "good", "bad"),
    [
        ({**TOOLS, "tool_choice": "required"}, CALL, "no call"),
        ({**TOOLS, "tool_choice": "required"}, CALL, CALL.replace("add", "unknown")),
        ({**TOOLS, "tool_choice": named("add")}, CALL, OTHER_CALL),
        ({**TOOLS, "tool_choice": named("add")}, CALL, CALL + OTHER_CALL),
        ({**TOOLS, "parallel_tool_calls": False}, CALL, CALL + CALL),
        ({**TOOLS, "parallel_tool_calls": False}, "no call", CALL + CALL),
        ({**HELLO, "response_format": {"type": "json_object"}}, '{"a": 1}', "Sure: {"),
        ({**HELLO, "response_format": {"type": "json_object"}}, '{"a": 1}', "[1]"),
        ({**HELLO, "response_format": {"type": "json_object"}}, '{"a": 1}', '{"a": NaN}'),
        ({**HELLO, "response_format": schema(PERSON)}, '{"name": "x", "age": 3}', '{"age": 3}'),
        ({**HELLO, "response_format": schema({"type": "array"})}, "[]", "{}"),
        ({**TOOLS, "response_format": schema(PERSON)}, CALL, "words"),
    ],
)
def test_samples_are_drawn_until_one_is_what_was_demanded(demand, good, bad) -> None:
    with client(later(good, bad)) as (http, sampler):
        answer = http.post(CHAT, json={**demand, "seed": 1, "temperature": 0})
        pieces = events(http.post(CHAT, json={**demand, "seed": 1, "stream": True}).text)
        settings = [one.temperature for one in sampler.settings[: 1 + MORE_SAMPLES]]
    assert answer.status_code == 200, answer.text
    message = answer.json()["choices"][0]["message"]
    calls = [call["function"] for call in message.get("tool_calls", [])]
    assert calls == ([] if "<tool" not in good else [{"name": "add", "arguments": '{"a": 1}'}])
    assert calls or message["content"] == good
    assert answer.headers["x-assay-samples"] == str(1 + MORE_SAMPLES)
    # A greedy sample drawn again would be the same.
    assert settings == [0.0] + [1.0] * MORE_SAMPLES
    deltas = [piece["choices"][0]["delta"] for piece in pieces]
    assert "".join(delta.get("content") or "" for delta in deltas) == (message["content"] or "")
    assert [c["function"] for d in deltas for c in d.get("tool_calls", [])] == calls
    assert pieces[-1]["choices"][0]["finish_reason"] == answer.json()["choices"][0]["finish_reason"]


@pytest.mark.parametrize(
    ("demand", "words"),
    [
        ({**TOOLS, "tool_choice": "required"}, "calls no function"),
        ({**HELLO, "response_format": {"type": "json_object"}}, "is not JSON"),
        ({**HELLO, "response_format": schema(PERSON)}, "is not JSON"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_where_no_sample_fits_the_request_is_refused_and_says_so(demand, words, stream) -> None:
    with client("I would rather not.") as (http, sampler):
        refused = http.post(CHAT, json={**demand, "stream": stream})
        assert len(sampler.prompts) == 1 + MORE_SAMPLES
    error = refused.json()["error"]
    assert refused.status_code == 422 and error["code"] == "no_fitting_answer"
    assert words in error["message"] and "8 samples" in error["message"]
    assert error["param"] == ("tool_choice" if "tools" in demand else "response_format")


def test_an_answer_that_fits_at_once_is_the_one_without_a_demand() -> None:
    with client(CALL) as (http, sampler):
        body = {**TOOLS, "seed": 3}
        free = http.post(CHAT, json=body).json()["choices"][0]
        bound = http.post(CHAT, json={**body, "tool_choice": "required"})
        assert len(sampler.prompts) == 2 and sampler.settings[0] == sampler.settings[1]
    choice = bound.json()["choices"][0]
    for one in (free, choice):
        one["message"]["tool_calls"][0].pop("id")
    assert choice == free and bound.headers["x-assay-samples"] == "1"


def test_every_choice_of_a_request_is_what_was_demanded() -> None:
    def answer(_: str, key: SampleKey) -> str:
        return CALL if key.sample == 1 or key.row.endswith("again 2") else "no"

    with client(answer) as (http, _):
        body = {**TOOLS, "tool_choice": "required", "n": 3}
        choices = http.post(CHAT, json=body).json()["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2]
    assert all(choice["message"]["tool_calls"] for choice in choices)


def test_allowed_tools_are_the_only_ones_called() -> None:
    def chosen(mode: str) -> dict:
        allowed = {"mode": mode, "tools": [named("add")]}
        return {**TOOLS, "tool_choice": {"type": "allowed_tools", "allowed_tools": allowed}}

    for said, mode, status in (
        (OTHER_CALL, "auto", 422),
        (CALL, "auto", 200),
        ("words", "auto", 200),
        ("words", "required", 422),
    ):
        with client(said) as (http, _):
            assert http.post(CHAT, json=chosen(mode)).status_code == status


def test_a_strict_function_is_called_with_arguments_that_fit() -> None:
    strict = {**TOOL, "function": {**TOOL["function"], "strict": True}}
    wrong = CALL.replace("1", '"one"')
    with client(later(CALL, wrong)) as (http, _):
        answer = http.post(CHAT, json={**HELLO, "tools": [strict]})
        loose = http.post(CHAT, json={**HELLO, "tools": [TOOL]})
    assert answer.json()["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == (
        '{"a": 1}'
    )
    assert (
        '"one"' in loose.json()["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]
    )


@pytest.mark.parametrize(
    "said", ['<think>{}</think>\n\n{"a": 1}', '```json\n{"a": 1}\n```', ' {"a": 1}\n']
)
def test_json_comes_without_reasoning_and_fences(said: str) -> None:
    with client(said) as (http, _):
        body = {**HELLO, "response_format": {"type": "json_object"}}
        message = http.post(CHAT, json=body).json()["choices"][0]["message"]
    assert message["content"] == '{"a": 1}'


BOMB: dict = {"$defs": {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 9} for n in range(12)}}
BOMB["$defs"]["d12"] = {"type": "object"}


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"type": "nothing"}, "nothing"),
        ({"properties": 3}, "properties"),
        ({"$ref": "http://127.0.0.1:1/schema"}, "nothing is fetched"),
        ({"$ref": "file:///etc/passwd"}, "nothing is fetched"),
        ({"properties": {"a": {"$ref": "#/$defs/none"}}}, "does not hold"),
    ],
)
def test_a_schema_that_is_none_is_refused(bad: dict, words: str) -> None:
    with client('{"a": 1}') as (http, _):
        refused = http.post(CHAT, json={**HELLO, "response_format": schema(bad)})
    assert refused.status_code == 400 and words in refused.json()["error"]["message"]
    assert refused.json()["error"]["code"] == "invalid_schema"


@pytest.mark.parametrize(
    "slow",
    [
        {"properties": {"a": {"pattern": "^(a+)+$"}}},
        {**BOMB, "$ref": "#/$defs/d0"},
    ],
)
def test_a_check_without_end_is_cut_off_and_the_server_goes_on(slow: dict, monkeypatch) -> None:
    monkeypatch.setattr("assay.serve.streams.CHECK_SECONDS", 1.0)
    monkeypatch.setattr("assay.serve.streams.MORE_SAMPLES", 0)
    with client('{"a": "' + "a" * 60 + '!"}') as (http, _):
        refused = http.post(CHAT, json={**HELLO, "response_format": schema(slow)})
        assert refused.status_code == 422 and "cannot be checked" in refused.text
        fine = http.post(CHAT, json={**HELLO, "response_format": schema({})})
        assert fine.status_code == 200


@pytest.mark.parametrize(
    ("given", "text", "problem"),
    [
        (PERSON, '{"name": "x", "age": 3}', {}),
        (PERSON, '{"name": "x", "age": "3"}', {"text": "$.age: '3' is not of type 'integer'"}),
        ({"$defs": {"n": {"type": "null"}}, "$ref": "#/$defs/n"}, "null", {}),
        ({"type": "integer"}, "1e999", {"text": "$: inf is not of type 'integer'"}),
        ([], "1", {"schema": "is no object"}),
        (PERSON, None, {}),
    ],
)
def test_what_fits_a_schema(given, text, problem) -> None:
    assert check(given, text) == problem


def test_a_problem_is_one_short_line() -> None:
    [problem] = check({"type": "string"}, json.dumps(["\n" * 1000, "x" * 10_000])).values()
    assert len(problem) < 400 and "\n" not in problem
