"""What a server does to its client: one answer costs one answer, and the key goes nowhere."""

import base64
import gzip
import json
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.data.row import Message
from assay.errors import InputError
from assay.rl.policy import Sampling
from assay.rollout.engines.endpoint import client
from assay.rollout.engines.endpoint.client import (
    LONGEST_ASKED,
    Endpoint,
    Unanswered,
    asked_seconds,
    endpoint_of,
)
from assay.rollout.engines.endpoint.openai_text import SHOWN, redact
from tests.rollout.engines.endpoint.raw_server import (
    Raw,
    Script,
    answer,
    chat,
    raw_server,
    repeating,
    say,
)

KEY = "sk-Very/secret+0123 456_789"
ASKED = (Message("user", "hi"),)
SAMPLING = Sampling(0.0, 16)
FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "percent": lambda key: quote(key, safe=""),
    "form": lambda key: quote_plus(key).replace("%2F", "%2f"),
    "percent twice": lambda key: quote(quote(key, safe=""), safe=""),
    "JSON": lambda key: "".join(f"\\u{ord(c):04x}" for c in key),
    "JSON in JSON": lambda key: "".join(f"\\\\u{ord(c):04X}" for c in key),
    "escaped slashes": lambda key: key.replace("/", "\\/"),
    "HTML": lambda key: "".join(f"&#{ord(c)};" for c in key),
    "hexadecimal": lambda key: key.encode().hex(),
    "base64": lambda key: base64.b64encode(key.encode()).decode(),
    "basic": lambda key: base64.b64encode(f"user:{key}".encode()).decode(),
    "bearer": lambda key: base64.urlsafe_b64encode(f"Bearer {key}".encode()).decode(),
    "another": lambda key: base64.b64encode(f"ab{key}cde".encode()).decode(),
}


def endpoint(server: Raw, deadline: float = 20.0, key: str | None = KEY) -> Endpoint:
    """A client that does not really pause."""
    return Endpoint(f"{server.address}/v1", "m", key, deadline, lambda _: None)


def failure(server: Raw, deadline: float = 20.0) -> Unanswered:
    """Why a question has no answer."""
    with pytest.raises(Unanswered) as raised:
        say(endpoint(server, deadline), ASKED, [], SAMPLING)
    return raised.value


def message(**fields: object) -> bytes:
    return json.dumps({"choices": [{"message": fields, "finish_reason": "stop"}]}).encode()


UNUSABLE = {
    "half a pair": chat("a\ud800b"),
    "half a pair in the reasoning": message(content="a", reasoning_content="\udfff"),
    "half a pair in arguments": message(
        tool_calls=[{"function": {"name": "f", "arguments": {"a": "\ud83d"}}}]
    ),
    "content of numbers": chat(5),
    "calls without functions": message(tool_calls=[{}]),
    "usage of 10^30": chat("a", {"completion_tokens": 10**30}),
    "negative usage": chat("a", {"prompt_tokens": -1}),
    "usage of fractions": chat("a", {"prompt_tokens": 7.0}),
    "usage of one text": chat("a", "many"),
    "NaN": chat("a", {"cost": float("nan")}),
    "5000 digits": b'{"choices": ' + b"9" * 5000 + b"}",
    "nested without end": b'{"choices": ' + b"[" * 100_000 + b"}",
}


@pytest.mark.parametrize("fault", UNUSABLE)
def test_an_answer_that_cannot_be_kept_fails_alone_and_is_paid_for_once(fault: str) -> None:
    with raw_server(answer(UNUSABLE[fault])) as server:
        failed = failure(server)
        assert failed.reason == "unusable answer" and failed.detail
        str(failed).encode("utf-8")
    assert len(server.requests) == 1


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": None, "total_tokens": 10**30}])
def test_an_answer_without_counts_is_an_answer(usage: object) -> None:
    with raw_server(answer(chat("fine", usage))) as server:
        said = say(endpoint(server), ASKED, [], SAMPLING)
    assert (said.text, said.prompt_tokens, said.completion_tokens) == ("fine", None, None)


def leaks(text: str, shortest: int = 8) -> bool:
    """Whether some of the key stands in a text, in any form."""
    forms = [form(KEY) for name, form in FORMS.items() if name not in ("basic", "bearer")]
    pieces = {f[i : i + shortest] for f in forms for i in range(len(f) - shortest + 1)}
    return any(piece in text for piece in pieces)


@pytest.mark.parametrize("form", FORMS)
def test_a_key_that_the_server_repeats_is_in_no_message_wherever_it_is_cut(form: str) -> None:
    written = FORMS[form](KEY).encode()
    bodies = [b"x" * before + b" " + written + b" y" for before in (0, 150, 190, 199, 1990, 1999)]
    bodies.append(json.dumps({"error": {"message": f"no {FORMS[form](KEY)}"}}).encode())
    headers = f"X-Key: {KEY}\r\nWWW-Authenticate: Bearer {FORMS[form](KEY)}\r\n"
    for body in bodies:
        with raw_server(answer(body, "400 Bad Request", headers)) as server:
            assert not leaks(str(failure(server)))
    with raw_server(answer(bodies[0], "401 No " + FORMS[form](KEY), headers)) as server:
        with pytest.raises(InputError) as raised:
            say(endpoint(server), ASKED, [], SAMPLING)
        assert SHOWN in str(raised.value) and not leaks(str(raised.value))


@pytest.mark.parametrize("form", FORMS)
def test_a_key_that_the_model_repeats_is_in_no_answer(form: str) -> None:
    written = FORMS[form](KEY)
    with raw_server(answer(chat(f"Your key is {written}, is it not?"))) as server:
        text = say(endpoint(server), ASKED, [], SAMPLING).text
    assert SHOWN in text and not leaks(text)
    if form not in ("basic", "bearer", "another"):
        assert text == f"Your key is {SHOWN}, is it not?"
    arguments = json.dumps({"key": written})
    call = {"function": {"name": "f", "arguments": arguments}}
    with raw_server(answer(message(content=None, tool_calls=[call]))) as server:
        text = say(endpoint(server), ASKED, [], SAMPLING).text
    assert SHOWN in text and not leaks(text)


def test_a_stand_in_for_a_key_is_a_word_like_any_other() -> None:
    with raw_server(answer(chat("The set is EMPTY."))) as server:
        said = say(endpoint(server, key="EMPTY"), ASKED, [], SAMPLING)
    assert said.text == "The set is EMPTY."


AROUND = st.lists(st.integers(128, 255), max_size=7).map(bytes)


@given(
    key=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=60),
    before=AROUND,
    behind=AROUND,
)
def test_base64_of_a_key_is_found_whatever_stands_around_it(
    key: str, before: bytes, behind: bytes
) -> None:
    whole = before + key.encode() + behind
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        shown = redact(encode(whole).decode(), key)
        # What is left holds no more bits than what stood around the key.
        left, found, right = shown.partition(SHOWN)
        assert found and 6 * len(left) <= 8 * len(before)
        assert 6 * len(right.rstrip("=")) <= 8 * len(behind) + 4


@pytest.mark.parametrize("part", ["url", "model"])
def test_a_key_in_the_url_or_the_models_name_is_refused_since_both_are_recorded(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "sk-0123456789abcdef"
    monkeypatch.setenv("OPENAI_API_KEY", secret)
    url = f"http://127.0.0.1:1/{secret}/v1" if part == "url" else "http://127.0.0.1:1/v1"
    with pytest.raises(InputError) as raised:
        endpoint_of(f"openai:{secret if part == 'model' else 'm'}", url)
    assert secret not in str(raised.value)


def test_a_key_that_no_header_can_carry_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-012345678\nX: y")
    with pytest.raises(InputError, match="OPENAI_API_KEY"):
        endpoint_of("openai:m", "http://127.0.0.1:1/v1")


HEAD = b"HTTP/1.1 200 OK\r\n"
SLOW: dict[str, Script] = {
    "no answer": repeating(b""),
    "headers that drip": repeating(b"X", first=HEAD + b"X-Long: "),
    "103 Early Hints": repeating(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 0.01),
    "a body that drips": repeating(b" ", first=HEAD + b"Content-Length: 1000\r\n\r\n"),
    "chunks that drip": repeating(
        b"1\r\n \r\n", first=HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    ),
}


@pytest.mark.parametrize("slow", SLOW)
def test_the_deadline_covers_every_part_of_an_answer(slow: str) -> None:
    with raw_server(SLOW[slow]) as server:  # without end
        assert failure(server, 0.3).reason == "deadline"
    assert len(server.requests) == 1


def test_a_compressed_answer_is_not_unpacked() -> None:
    bomb = gzip.compress(b" " * (64 << 20))
    with raw_server(answer(bomb, headers="Content-Encoding: gzip\r\n")) as server:
        assert "compressed" in failure(server).detail
    assert b"accept-encoding: identity" in server.requests[0].lower()


def test_an_answer_beyond_the_size_is_read_no_further_and_not_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "MOST_BYTES", 1 << 16)
    script = repeating(b" " * 4096, 0.0, HEAD + b"Content-Length: 999999999\r\n\r\n")
    with raw_server(script) as server:
        assert failure(server).reason == "unusable answer"
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", ["302 Found", "308 Permanent"])
def test_a_redirect_takes_the_key_nowhere(status: str) -> None:
    with raw_server(answer(chat("stolen"))) as thief:
        place = f"Location: {thief.address}/v1/chat/completions\r\n"
        with raw_server(answer(b"", status, place)) as server:
            assert failure(server).reason == f"HTTP {status[:3]}"
    assert not thief.requests


def pauses_of(status: str, headers: str) -> list[float]:
    """The pauses of a client that is turned away twice and then answered."""
    pauses: list[float] = []
    away = answer(b"", status, headers)
    with raw_server(away, away, answer(chat("at last"))) as server:
        asked = Endpoint(f"{server.address}/v1", "m", KEY, 1000.0, pauses.append)
        assert say(asked, ASKED, [], SAMPLING).text == "at last"
    return pauses


@pytest.mark.parametrize("status", ["429 Many", "503 Busy", "529 Overloaded"])
def test_a_server_that_says_when_to_come_back_is_asked_then_and_not_by_all_at_once(
    status: str,
) -> None:
    pauses = pauses_of(status, "Retry-After: 7\r\n")
    assert all(7 <= pause <= 8 for pause in pauses) and pauses[0] != pauses[1]


@pytest.mark.parametrize("value", ["soon", "-5", "Mon, 99 Foo 2026", "١٢"])
def test_nonsense_about_when_to_come_back_leaves_the_usual_pauses(value: str) -> None:
    first, second = pauses_of("429 Many", f"Retry-After: {value}\r\n")
    assert 0.3 < first < 0.7 < second < 1.3


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("0" * 50 + "30", 30.0),
        ("9" * 6000, LONGEST_ASKED),
        ("Mon, 23 Nov 2026 12:00:30 GMT", None),
        ("1.5", None),
        ("x" * 100_000, None),
    ],
)
def test_retry_after_is_read_in_seconds_and_bounded(value: str, seconds: float | None) -> None:
    assert asked_seconds(value) == seconds
