"""Translates between Assay's tools and calls and those of OpenAI's interface, which is stricter.

OpenAI's function names have no dots and its schemas JSON Schema's words; BFCL's have dots and words
of Python and Java ("dict", "float", "tuple"). Both are translated in requests, names back in
answers. A call is returned as the Hermes text that a model would have written, broken arguments
unchanged, because errors of the model are judged, not corrected. Nothing is sent here.

A server's log-probabilities of prompts are its likeliest words at each token, as vLLM tells them:
`prompt_logprobs` is its addition to OpenAI's completions, asked for with a prompt in token ids: one
object a token, of ids with `logprob` and `decoded_token`, in which the prompt's own token stands
beside the likeliest. What is told is kept as one text, as answers are.
"""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import quote

import numpy as np

from assay.data.episode import Ended
from assay.data.files import whole_text
from assay.data.json_files import load_json
from assay.data.renderings.hermes import think_text
from assay.data.tools import function_of

TYPES = {
    **dict.fromkeys(("dict", "hashmap", "hashtable"), "object"),
    **dict.fromkeys(("float", "double"), "number"),
    **dict.fromkeys(("int", "byte", "short", "long", "bigint"), "integer"),
    **dict.fromkeys(("str", "char", "any"), "string"),
    **dict.fromkeys(("list", "tuple", "arraylist", "queue", "stack"), "array"),
    "bool": "boolean",
}
"""Words of other languages for JSON Schema's types, as BFCL maps them (GORILLA_TO_OPENAPI)."""
_NAME = re.compile(r"[^A-Za-z0-9_-]")
REASONING = ("reasoning_content", "reasoning")


MOST_TOKENS = 10_000_000
"""That one answer can have read or written: more is no count. No model reads so many."""


class Unanswered(Exception):
    """One request has no answer. `reason` is short, the same for failures of one kind."""

    def __init__(
        self,
        reason: str,
        detail: str = "",
        *,
        passing: bool = False,
        charged: bool = False,
        retry_after: str | None = None,
        too_long: bool = False,
    ):
        """`passing` says whether asking again may help, `charged` whether the server may have
        charged for it all the same; `retry_after` is the server's. `too_long`: the model cannot
        read so much."""
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason, self.detail = reason, detail
        self.passing, self.charged, self.retry_after = passing, charged, retry_after
        self.too_long = too_long


def unusable(detail: str) -> Unanswered:
    """That a model's own answer, made and paid for, has something in it that cannot be kept."""
    return Unanswered("unusable answer", detail, charged=True)


@dataclass(frozen=True, slots=True)
class EndpointAnswer:
    """One answer. Token counts are the server's; None where it gave none."""

    text: str
    ended: Ended
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


@dataclass(frozen=True)
class Portable:
    """Tools as any server takes them, and the names both ways."""

    tools: tuple[Mapping[str, Any], ...] = ()
    there: Mapping[str, str] = field(default_factory=dict)
    """Our name -> the server's."""

    @property
    def here(self) -> dict[str, str]:
        """The server's name -> ours."""
        return {theirs: ours for ours, theirs in self.there.items()}


def portable(tools: Sequence[Mapping[str, Any]]) -> Portable:
    """Tools in OpenAI's wrapping and words. Two names that come out alike get a number."""
    there: dict[str, str] = {}
    for tool in tools:
        name = function_of(tool)["name"]
        plain = _NAME.sub("_", name)[:60]
        taken = set(there.values())
        extra = 2
        chosen = plain
        while chosen in taken:
            chosen, extra = f"{plain}_{extra}", extra + 1
        there[name] = chosen
    return Portable(tuple(_tool(function_of(tool), there) for tool in tools), there)


def _tool(function: Mapping[str, Any], there: Mapping[str, str]) -> dict[str, Any]:
    described = {"name": there[function["name"]], "description": function.get("description", "")}
    parameters = function.get("parameters") or {"type": "object", "properties": {}}
    if "type" not in parameters and "properties" not in parameters:
        parameters = {"type": "object", "properties": parameters}
    described["parameters"] = _schema({"type": "object", **parameters})
    return {"type": "function", "function": described}


def _schema(schema: Any) -> Any:
    """The schema with the types in JSON Schema's words."""
    if not isinstance(schema, Mapping):
        return schema
    members = dict(schema)
    if isinstance(members.get("type"), str):
        members["type"] = TYPES.get(members["type"].lower(), members["type"].lower())
    if isinstance(members.get("properties"), Mapping):
        members["properties"] = {
            name: _schema(value) for name, value in members["properties"].items()
        }
    if "items" in members:
        members["items"] = _schema(members["items"])
    return members


def chat_text(answer: Any, names: Portable) -> tuple[str, str]:
    """The text of a chat answer, calls in Hermes form, and its finish reason.

    Raises ValueError.
    """
    choice = first_choice(answer)
    message = choice.get("message")
    if not isinstance(message, dict):
        raise unusable("the choice has no message")
    thought, content = _read_content(message.get("content"))
    content = content or _text_of(message.get("refusal") or "", "refusal")
    reasoning = next((message[key] for key in REASONING if message.get(key)), thought)
    reasoning = _text_of(reasoning, "reasoning")
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise unusable("the tool calls are no list")
    written = "\n".join(_call_text(call, names) for call in calls)
    text = think_text(reasoning) + content
    whole = f"{text}\n{written}" if text and written else text + written
    return _keepable(whole), str(choice.get("finish_reason"))


def _read_content(content: Any) -> tuple[str, str]:
    """The reasoning and the text of a message's content: a text, or a list of parts, of which each
    holds its own under the name of its type, as Mistral's `thinking` and OpenAI's `text` do."""
    if content is None or isinstance(content, str):
        return "", content or ""
    if not isinstance(content, list):
        raise unusable("the content is no text")
    pieces = {"thinking": "", "text": ""}
    for part in content:
        part = {"type": "text", "text": part} if isinstance(part, str) else part
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in (*pieces, "output_text", "refusal"):
            raise unusable(f"the content has a part that is no text: {kind!r}")
        if kind == "thinking":
            pieces["thinking"] += "".join(_read_content(part.get("thinking")))
        else:
            pieces["text"] += _text_of(part.get("refusal" if kind == "refusal" else "text"), "text")
    return pieces["thinking"], pieces["text"]


def _text_of(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise unusable(f"the {what} is no text")
    return value


def provider_error(answer: Any) -> tuple[int | None, str] | None:
    """The status and the text of an error that came with HTTP 200: providers that pass requests on
    send so what the model's server said. None for an answer without one."""
    if not isinstance(answer, dict):
        return None
    choices = answer.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    error = answer.get("error") or (isinstance(first, dict) and first.get("error"))
    if not error and answer.get("object") == "error":
        error = answer
    if not error:
        return None
    code = str(error.get("code")) if isinstance(error, dict) else ""
    text = error.get("message") if isinstance(error, dict) else error
    status = int(code) if len(code) == 3 and code.isdecimal() and code[0] in "45" else None
    return status, text if isinstance(text, str) else json.dumps(error)


def read_answer(body: bytes) -> Any:
    """The JSON of an answer.

    Raises ValueError for what is no JSON at all, as a proxy's page is, and Unanswered for what
    Python's parser takes or refuses on its own account: NaN, Infinity, thousands of digits, nesting
    without end.
    """
    try:
        return load_json(body.decode("utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(str(error)) from error
    except ValueError as error:
        raise unusable(str(error)) from error


def token_counts(answer: Any) -> tuple[int | None, int | None]:
    """The server's counts of the prompt's and the answer's tokens, None where it gives none.

    Raises Unanswered for a count that is none.
    """
    usage = answer.get("usage")
    if usage is None:
        return None, None
    if not isinstance(usage, dict):
        raise unusable("the usage is no object")
    return _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")


def _count(usage: Mapping[str, Any], name: str) -> int | None:
    count = usage.get(name)
    if count is None:
        return None
    if type(count) is not int or not 0 <= count <= MOST_TOKENS:
        raise unusable(f"the usage's {name} is no number of tokens")
    return count


def _keepable(text: str) -> str:
    """The text. Raises Unanswered for half of a surrogate pair, which no file can hold."""
    if whole_text(text) != text:
        raise unusable("the text holds half of a surrogate pair")
    return text


def first_choice(answer: Any) -> dict[str, Any]:
    """The first choice of an answer. Raises ValueError."""
    choices = answer.get("choices") if isinstance(answer, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise ValueError("the answer has no choices")
    return choices[0]


def _call_text(call: Any, names: Portable) -> str:
    made = call.get("function") if isinstance(call, dict) else None
    if not isinstance(made, dict) or not isinstance(made.get("name"), str):
        raise unusable("a tool call has no function")
    name = json.dumps(names.here.get(made["name"], made["name"]), ensure_ascii=False)
    arguments = made.get("arguments")
    if not isinstance(arguments, str):
        try:
            arguments = json.dumps(arguments, ensure_ascii=False)
        except RecursionError as error:
            raise unusable("a tool call's arguments are nested too deeply") from error
    return f'<tool_call>\n{{"name": {name}, "arguments": {arguments or "{}"}}}\n</tool_call>'


LOWEST = -1e4
"""Below it no word's log-probability lies; vLLM writes -9999 for a word that cannot be."""
ROUNDED = 1e-3
"""Above 0 by rounding alone."""


@dataclass(frozen=True)
class LikelyWords:
    """Ids and log-probabilities (T, N), the likeliest first, and the texts of all that was told by
    id."""

    words_TN: np.ndarray
    logps_TN: np.ndarray
    texts: Mapping[int, str]


def asked_words(tokens: tuple[int, ...], count: int) -> dict[str, Any]:
    """The part of a request that asks for the `count` likeliest words at each token."""
    return {"prompt": list(tokens), "max_tokens": 1, "temperature": 0, "prompt_logprobs": count}


def told_words(answer: Any, begin: int, tokens: int, count: int) -> str:
    """What is told of the tokens from `begin` of a prompt of so many, as a text for `read_words`.
    Raises ValueError, and Unanswered for a server that tells nothing of prompts."""
    told = first_choice(answer).get("prompt_logprobs")
    if not isinstance(told, list):
        raise unusable("the server tells no prompt_logprobs, as vLLM's does")
    if len(told) != tokens:
        raise unusable(f"it tells of {len(told)} tokens and was asked about {tokens}")
    places = [told_of(place) for place in told[begin:]]
    fewest = min(map(len, places))
    if fewest < count:
        raise unusable(f"it tells {fewest} words of a token and was asked for {count}")
    best = [sorted(place.items(), key=lambda each: -each[1][0])[:count] for place in places]
    words = np.array([[word for word, _ in place] for place in best], dtype="<i4")
    logps = np.array([[logp for _, (logp, _) in place] for place in best], dtype="<f4")
    texts = {w: text for place in places for w, (_, text) in place.items() if text is not None}
    packed = [base64.b64encode(each.tobytes()).decode("ascii") for each in (words, logps)]
    return json.dumps({"count": count, "words": packed[0], "logps": packed[1], "texts": texts})


def told_of(place: Any) -> dict[int, tuple[float, str | None]]:
    """Log-probability and text of the words at a token, by id. Raises ValueError."""
    if not isinstance(place, dict):
        raise ValueError("a token of the prompt has no log-probabilities")
    words = {}
    for word, entry in place.items():
        known = entry if isinstance(entry, dict) else {}
        logp, text = known.get("logprob"), known.get("decoded_token")
        if not (isinstance(logp, int | float) and LOWEST <= logp <= ROUNDED) or not (
            word.isascii() and word.isdigit() and len(word) < 10
        ):
            raise ValueError(f"word {word!r} of the prompt has no log-probability")
        words[int(word)] = min(float(logp), 0.0), text if isinstance(text, str) else None
    return words


def read_words(text: str) -> LikelyWords:
    """What `told_words` wrote."""
    held = json.loads(text)
    words, logps = (base64.b64decode(held[name]) for name in ("words", "logps"))
    shape = -1, held["count"]
    return LikelyWords(
        np.frombuffer(words, "<i4").reshape(shape).astype(np.int64),
        np.frombuffer(logps, "<f4").reshape(shape).copy(),
        {int(word): string for word, string in held["texts"].items()},
    )


SHOWN = "[key]"
SECRET_LENGTH = 8
"""A shorter key is a stand-in such as EMPTY or none: a word that answers may hold."""


def redact(text: str, key: str | None, *, answer: bool = False) -> str:
    """`text` with SHOWN for the key; in an `answer`, only for one that may be secret."""
    if not key or (answer and len(key) < SECRET_LENGTH):
        return text
    return _forms(key).sub(SHOWN, text)


@cache
def _forms(key: str) -> re.Pattern[str]:
    raw = key.encode("utf-8", "surrogateescape")
    forms = ["".join(map(_character, key))]
    if len(key) >= SECRET_LENGTH:
        forms += [f"(?i:{raw.hex()})", *_base64(raw)]
    return re.compile("|".join(forms))


def _character(character: str) -> str:
    """One character as it is, or escaped."""
    code = ord(character)
    percent = quote(character, safe="", errors="surrogateescape")
    if len(percent) == 1:
        percent = f"%{code:02X}"
    written = [
        re.escape(character),
        rf"\\+u(?i:{code:04x})",
        rf"\\+x(?i:{code:02x})",
        rf"\\+{re.escape(character)}",
        f"(?i:{re.escape(percent)}|{re.escape(percent.replace('%', '%25'))})",
        rf"&#0*{code};",
        rf"(?i:&#x0*{code:x};)",
    ]
    if character == " ":
        written.append(r"\+")
    return f"(?:{'|'.join(written)})"


def _base64(raw: bytes) -> list[str]:
    """The characters of the key's base64 that do not depend on what stands around it, and the
    groups beside them, in which its first and last bytes share characters with that."""
    forms = []
    for before in range(3):
        padded = b"\0" * before + raw
        core = slice(4 if before else 0, len(padded) // 3 * 4)
        first = "(?:[A-Za-z0-9+/_-]{4})?" if before else ""
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            sure = re.escape(encode(padded).decode()[core])
            forms.append(f"{first}{sure}[A-Za-z0-9+/_-]{{0,4}}=*")
    return list(dict.fromkeys(forms))
