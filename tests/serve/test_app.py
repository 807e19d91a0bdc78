"""The endpoint speaks OpenAI's language, refuses in it, and never shows a traceback."""

import json
import threading
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient
from tokenizers.processors import TemplateProcessing

from assay.agents.protocol import ChatRequest, CompletionRequest
from assay.data.renderings.rendering import Renderer
from assay.serve.server import ServedEndpoint, ask_chat, ask_completion
from tests.models.folders import CHAT as TEMPLATE
from tests.serve.scripted import CONTEXT, HEADERS, MODEL, TOKEN, Says, batching, client, served

TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    },
}
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HELLO = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
ONCE = {"model": MODEL, "prompt": "once"}


def beginning(tokenizer, template: str):
    """The tokenizer as one that puts BOS before every text."""
    tokenizer.add_special_tokens({"bos_token": "<s>"})
    bos = tokenizer.bos_token_id
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", bos)]
    )
    tokenizer.chat_template = template
    return tokenizer


def events(text: str) -> list[dict]:
    """The objects of a stream, whose end mark is checked."""
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_a_chat_is_answered_with_text_usage_and_reason() -> None:
    with client("Hello!") as (http, sampler):
        answer = http.post(CHAT, json=HELLO).json()
    (choice,) = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": "Hello!"}
    assert choice["finish_reason"] == "stop" and answer["object"] == "chat.completion"
    prompt = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert sampler.prompts == [prompt]
    counted = len(sampler.tokenizer.encode(prompt))
    assert answer["usage"] == {
        "prompt_tokens": counted,
        "completion_tokens": 7,
        "total_tokens": counted + 7,
    }


def test_calls_come_back_as_tool_calls_and_the_text_beside_them_stays() -> None:
    with client(f"Let me add.\n{CALL}\n{CALL}") as (http, sampler):
        answer = http.post(CHAT, json={**HELLO, "tools": [TOOL]}).json()
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "Let me add."
    first, second = choice["message"]["tool_calls"]
    assert first["function"] == {"name": "add", "arguments": '{"a": 1}'}
    assert first["id"] != second["id"] and first["type"] == "function"
    assert '"name": "add"' in sampler.prompts[0]


BROKEN = CALL.replace("}}", "}")


@pytest.mark.parametrize(
    ("text", "body"),
    [(CALL, {}), (CALL, {"tools": [TOOL], "tool_choice": "none"}), (BROKEN, {"tools": [TOOL]})],
)
def test_a_broken_call_and_one_without_tools_are_text(text: str, body: dict) -> None:
    with client(text) as (http, sampler):
        choice = http.post(CHAT, json={**HELLO, **body}).json()["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": text}
    assert choice["finish_reason"] == "stop"
    assert ("# Tools" in sampler.prompts[0]) == (text == BROKEN)


def test_a_conversation_with_calls_and_results_is_rendered_as_in_training() -> None:
    calls = [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}]
    talk = [
        {"role": "user", "content": "add"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "2"}]},
    ]
    with client("Two.") as (http, sampler):
        body = {"model": MODEL, "messages": talk, "tools": [TOOL]}
        assert http.post(CHAT, json=body).status_code == 200
    (prompt,) = sampler.prompts
    assert '<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call><|im_end|>' in prompt
    assert "<tool_response>\n2\n</tool_response>" in prompt


def test_limits_end_texts_and_stop_texts_are_no_part_of_them() -> None:
    with client("one two three") as (http, _):
        body = {**ONCE, "max_tokens": 5}
        cut = http.post(COMPLETIONS, json=body).json()
        stopped = http.post(COMPLETIONS, json={**ONCE, "stop": ["zz", " t"]}).json()
        third = http.post(COMPLETIONS, json={**ONCE, "stop_token_ids": [ord("t") - 33]}).json()
    assert cut["choices"][0]["text"] == "one t" and cut["choices"][0]["finish_reason"] == "length"
    assert stopped["choices"][0]["text"] == "one"
    assert stopped["choices"][0]["finish_reason"] == "stop"
    assert stopped["usage"]["completion_tokens"] == 5
    assert third["choices"][0]["text"] == "one " and third["choices"][0]["finish_reason"] == "stop"


def test_a_completion_may_use_tokens() -> None:
    with client(lambda prompt, key: f"{prompt}0") as (http, sampler):
        tokens = sampler.tokenizer.encode("xy")
        ids = http.post(COMPLETIONS, json={**ONCE, "prompt": tokens}).json()
    assert ids["choices"][0]["text"] == "xy0"


def test_a_stream_ends_with_usage_where_it_was_asked_for() -> None:
    body = {**HELLO, "stream": True, "stream_options": {"include_usage": True}}
    with client("Hello there") as (http, _):
        pieces = events(http.post(CHAT, json=body).text)
    assert pieces[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert pieces[-1]["choices"] == [] and pieces[-1]["usage"]["completion_tokens"] == 12
    assert pieces[-2]["choices"][0]["finish_reason"] == "stop"
    assert len({piece["id"] for piece in pieces}) == 1


TEXTS = st.lists(
    st.sampled_from(
        ["é", "日本", " ", "\n", "a", "<", "tool", "<tool_call>", "</tool_call>", "</think>", CALL]
    ),
    max_size=8,
).map("".join)


@given(text=TEXTS, stop=st.sampled_from([None, "a<", "本 "]), tools=st.booleans())
def test_the_pieces_of_a_stream_add_up_to_the_whole_answer(text: str, stop, tools: bool) -> None:
    body = {**HELLO, "stop": stop, "tools": [TOOL] if tools else None}
    with client(text) as (http, _):
        whole = http.post(CHAT, json=body).json()["choices"][0]
        pieces = events(http.post(CHAT, json={**body, "stream": True}).text)
    deltas = [piece["choices"][0]["delta"] for piece in pieces]
    calls = [call["function"] for delta in deltas for call in delta.get("tool_calls", [])]
    assert "".join(d.get("content") or "" for d in deltas) == (whole["message"]["content"] or "")
    assert calls == [call["function"] for call in whole["message"].get("tool_calls", [])]
    assert pieces[-1]["choices"][0]["finish_reason"] == whole["finish_reason"]


def test_a_call_that_a_thought_drafts_is_text_and_no_call() -> None:
    thought = f"<think>\n{CALL}\n</think>"
    for answer, calls in ((f"{thought}\n\n{CALL}", 1), (f"{thought}I cannot.", 0)):
        with client(answer) as (http, _):
            asked = {**HELLO, "tools": [TOOL]}
            message = http.post(CHAT, json=asked).json()["choices"][0]["message"]
        assert len(message.get("tool_calls", [])) == calls
        assert message["content"] == (thought if calls else answer)


@pytest.mark.parametrize(
    ("body", "parameter"),
    [
        ({"model": MODEL}, "messages"),
        ({**HELLO, "messages": [{"role": "robot", "content": "x"}]}, "messages"),
        ({**HELLO, "tools": [{"function": {}}]}, "tools"),
        ({**HELLO, "temperature": "hot"}, "temperature"),
        ({**HELLO, "top_p": 0}, "top_p"),
        ({**HELLO, "n": 2}, "n"),
        ({**HELLO, "max_tokens": 0}, "max_tokens"),
        ({**HELLO, "stop": [""]}, "stop"),
        ({**HELLO, "logit_bias": {"1": 5}}, "logit_bias"),
        ({**HELLO, "tool_choice": "required"}, "tool_choice"),
        ({**HELLO, "tools": [TOOL], "tool_choice": ["add"]}, "tool_choice"),
        ({**HELLO, "response_format": {"type": "json_object"}}, "response_format"),
        ({**HELLO, "modalities": ["text", "audio"]}, "modalities"),
        ({**HELLO, "chat_template_kwargs": {"enable_thinking": False}}, "chat_template_kwargs"),
        ({**HELLO, "logprobs": 0}, "logprobs"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(body: dict, parameter: str) -> None:
    with client("x") as (http, sampler):
        refused = http.post(CHAT, json=body)
    error = refused.json()["error"]
    assert refused.status_code == 400 and error["param"] == parameter, error
    assert error["type"] == "invalid_request_error" and error["message"] and error["code"]
    assert not sampler.prompts


@pytest.mark.parametrize("arguments", [{}, {"arguments": ""}, {"arguments": None}])
def test_calls_without_arguments_are_taken_as_clients_send_them(arguments: dict) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", **arguments}}
    talk = [*HELLO["messages"], {"role": "assistant", "content": None, "tool_calls": [call]}]
    talk += [{"role": "tool", "tool_call_id": "c1", "content": "2"}]
    with client("Done.") as (http, sampler):
        assert http.post(CHAT, json={**HELLO, "messages": talk}).status_code == 200
        call["function"]["arguments"] = "{1"
        refused = http.post(CHAT, json={**HELLO, "messages": talk})
    assert '{"name": "add", "arguments": {}}' in sampler.prompts[0]
    assert refused.status_code == 400 and "arguments" in refused.json()["error"]["message"]


BEGUN = "{{ bos_token }}" + TEMPLATE


@pytest.mark.parametrize(
    ("template", "rendering", "plain"),
    [(BEGUN, "template", True), (TEMPLATE, "template", False), (BEGUN, "hermes", None)],
)
def test_the_text_of_a_chat_has_the_tokens_of_the_chat(
    template: str, rendering: str, plain: bool | None
) -> None:
    sampler = Says(lambda *_: "x")
    tokenizer = beginning(sampler.tokenizer, template)
    assert tokenizer.encode("a")[0] == tokenizer.bos_token_id
    model = replace(served(sampler), renderer=Renderer(tokenizer, rendering))
    messages = HELLO["messages"]
    chat = ask_chat(model, ChatRequest(model=MODEL, messages=messages))
    context = chat.job.context
    text = str(tokenizer.decode(list(context)))
    same = ask_completion(model, CompletionRequest(model=MODEL, prompt=text))
    assert same.job.context == context
    if plain is not None:
        bare = ask_completion(model, CompletionRequest(model=MODEL, prompt="once"))
        begun = bare.job.context[0] == tokenizer.bos_token_id
        assert begun == plain


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"\xff\xfe",
        b'{"model": NaN}',
        b'{"model": "\\ud800"}',
        b"[" * 100_000,
        b'{"model": ' + b"9" * 10_000 + b"}",
    ],
)
def test_bodies_that_are_no_request_are_refused(body: bytes) -> None:
    with client("x") as (http, _):
        for path in (CHAT, COMPLETIONS):
            refused = http.post(path, content=body)
            assert refused.status_code == 400 and "Traceback" not in refused.text
            assert refused.json()["error"]["code"]


@pytest.mark.parametrize("header", ["", "Bearer wrong", "Bearer", "Basic c2VjcmV0", "Bearer ü"])
def test_without_the_token_nothing_is_sampled(header: str) -> None:
    with client("x") as (http, sampler):
        http.headers.pop("Authorization")
        given = {b"Authorization": header.encode("latin-1")} if header else {}
        for path, body in ((CHAT, HELLO), (COMPLETIONS, ONCE)):
            refused = http.post(path, json=body, headers=given)
            assert refused.status_code == 401
            assert refused.json()["error"]["type"] == "authentication_error"
            assert "secret" not in refused.text
    assert not sampler.prompts


def test_models_are_listed_without_a_token_but_not_with_a_wrong_one() -> None:
    with client("x") as (http, _):
        listed = http.get("/v1/models").json()
        http.headers["Authorization"] = "Bearer wrong"
        assert http.get("/v1/models").status_code == 401
        http.headers.pop("Authorization")
        assert http.get("/v1/models").json() == listed
    (model,) = listed["data"]
    assert model["id"] == MODEL and model["max_model_len"] == CONTEXT


def test_an_unknown_model_and_an_unknown_route_are_404_in_json() -> None:
    with client("x") as (http, _):
        other = http.post(CHAT, json={**HELLO, "model": "gpt"})
        assert other.status_code == 404 and other.json()["error"]["code"] == "model_not_found"
        assert http.get("/v2").json()["error"]["code"] == "unknown_url"
        assert http.get(CHAT).status_code == 405


@pytest.mark.parametrize("size", [CONTEXT - 15, CONTEXT, 3 * CONTEXT])
def test_a_prompt_beyond_the_context_is_refused_with_both_numbers(size: int) -> None:
    with client("x") as (http, sampler):
        refused = http.post(COMPLETIONS, json={**ONCE, "prompt": "y" * size, "max_tokens": 16})
        fits = http.post(
            COMPLETIONS, json={**ONCE, "prompt": "y" * (CONTEXT - 16), "max_tokens": 16}
        )
    error = refused.json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert str(size) in error["message"] and str(CONTEXT) in error["message"]
    assert fits.status_code == 200 and len(sampler.prompts) == 1


@pytest.mark.parametrize("where", ["prompt", "messages", "tools"])
def test_a_prompt_of_7_mb_is_refused_before_it_is_tokenised(where: str, monkeypatch) -> None:
    words, seen = "word " * 1_400_000, []
    with client("x") as (http, sampler):
        kind = type(sampler.tokenizer)
        encode = kind.encode

        def counted(tokenizer, text: str, **options: Any) -> list[int]:
            seen.append(len(text))
            return encode(tokenizer, text, **options)

        monkeypatch.setattr(kind, "encode", counted)
        if where == "prompt":
            refused = http.post(COMPLETIONS, json={**ONCE, "prompt": words})
        else:
            tool = {"name": "f", "description": words, "parameters": {"type": "object"}}
            said = words if where == "messages" else "hi"
            more = {"tools": [{"type": "function", "function": tool}]} if where == "tools" else {}
            message = {"role": "user", "content": said}
            refused = http.post(CHAT, json={"model": MODEL, "messages": [message], **more})
    error = refused.json()["error"]
    assert error["code"] == "context_length_exceeded" and error["param"] == where
    assert sum(seen) < 100_000 and not sampler.prompts


def test_a_model_that_fails_is_a_500_without_a_traceback_and_the_server_goes_on(capsys) -> None:
    def answer(prompt: str, key: object) -> str:
        if "bad" in prompt:
            raise RuntimeError("no memory at secret/place")
        return "fine"

    with client(answer) as (http, _):
        for body in ({**ONCE, "prompt": "bad"}, {**ONCE, "prompt": "bad", "stream": True}):
            failed = http.post(COMPLETIONS, json=body)
            assert "internal_error" in failed.text and "secret/place" not in failed.text
        assert http.post(COMPLETIONS, json=ONCE).json()["choices"][0]["text"] == "fine"
    assert "no memory" in capsys.readouterr().err


def test_a_server_that_stops_answers_503_instead_of_half_an_answer() -> None:
    sampler = Says(lambda *_: "a long answer")
    sampler.released.clear()
    batcher = batching(sampler)
    with TestClient(ServedEndpoint(served(sampler), batcher, TOKEN).app(), headers=HEADERS) as http:
        answers: list = []
        threads = [
            threading.Thread(target=lambda b=b: answers.append(http.post(COMPLETIONS, json=b)))
            for b in ({**ONCE, "prompt": "one"}, {**ONCE, "prompt": "two", "max_tokens": 999})
        ]
        for thread in threads:
            thread.start()
            time.sleep(0.1)
        closing = threading.Thread(target=batcher.close)
        closing.start()
        time.sleep(0.1)
        sampler.released.set()
        for thread in [*threads, closing]:
            thread.join()
        late = http.post(COMPLETIONS, json=ONCE)
    assert [a.status_code for a in [*answers, late]] == [503, 503, 503]


@pytest.mark.parametrize("value", ["1e999", "NaN", '"\\ud800"', '"日本"'])
def test_whatever_a_model_writes_into_a_call_the_reply_is_json(value: str) -> None:
    for name in ("add", "a\\ud800"):
        call = f'<tool_call>\n{{"name": "{name}", "arguments": {{"a": {value}}}}}\n</tool_call>'
        with client(call) as (http, _):
            whole = http.post(CHAT, json={**HELLO, "tools": [TOOL]})
            pieces = events(http.post(CHAT, json={**HELLO, "tools": [TOOL], "stream": True}).text)
        assert whole.status_code == 200
        message = strict_json(whole.text)["choices"][0]["message"]
        calls = message.get("tool_calls", [])
        assert bool(calls) == (value.startswith('"') and name == "add")
        assert calls or message["content"] == call
        for one in calls:
            assert strict_json(one["function"]["arguments"]) == {"a": json.loads(value)}
        assert pieces[-1]["choices"][0]["finish_reason"] == ("tool_calls" if calls else "stop")


def strict_json(text: str):
    """JSON without NaN and infinities."""

    def refuse(constant: str):
        raise AssertionError(constant)

    return json.loads(text, parse_constant=refuse)
