"""Converts OpenAI messages to `Message`s, and back.

Content may be text, null beside tool calls, or typed parts (`text`, `reasoning`, `tool_call`, and
`image_url` in user messages of formats that carry images). `<think>` text inside content is left as
it is. Roles of other formats, such as ms-swift's `tool_call`, are converted by those formats.
"""

from collections.abc import Mapping
from typing import Any, get_args

from assay.data.json_files import load_json
from assay.data.loaded import Record
from assay.data.message_parts import image_part, stored_parts
from assay.data.row import Message, Part, Role, TextPart, ToolCall
from assay.errors import nearest

ROLES: tuple[str, ...] = get_args(Role)
IMAGE = "image_url"
CARRIED = "rows of format 'messages' carry text and images to a model behind an endpoint"
REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")


def parse_messages(
    record: Record, value: Any, path: str, *, images: bool = False
) -> tuple[Message, ...]:
    """Messages from a list of OpenAI messages, in an order that can be trained on.

    With `images` user messages may hold some, by path or as data URLs (`message_parts`).

    Raises DataError that names the message and the field.
    """
    parsed = tuple(
        parse_message(record, message, f"{path}[{index}]", images=images)
        for index, message in enumerate(record.typed(path, value, list))
    )
    return check_order(record, parsed, path)


def parse_message(record: Record, value: Any, path: str, *, images: bool = False) -> Message:
    """One OpenAI message. Raises DataError."""
    message = record.typed(path, value, dict)
    role = message_role(record, message, path, ROLES)
    calls = _calls(record, message.get("tool_calls"), f"{path}.tool_calls")
    where = f"{path}.content"
    content, reasoning, more_calls = _content(record, message.get("content"), where)
    parts: tuple[Part, ...] = ()
    if _holds_image(message.get("content")):
        # Refused before anything is read: a request to a server names files too.
        if not images:
            raise record.error(where, "holds an image, which is not carried here", CARRIED)
        if role != "user":
            raise record.error(where, f"a {role} message cannot hold an image")
        parts = _parts(record, message["content"], where)
    for key in REASONING_KEYS:
        if message.get(key):
            reasoning += record.typed(f"{path}.{key}", message[key], str)
            break
    calls += more_calls
    if message.get("content") is None and not calls and not reasoning:
        raise record.error(f"{path}.content", "missing", "write the text of the message")
    if role != "assistant" and (calls or reasoning):
        raise record.error(path, f"a {role} message cannot call tools or reason")
    call_id = record.typed(f"{path}.tool_call_id", message.get("tool_call_id") or "", str)
    loss = role != "assistant" or message_loss(record, message, path)
    return Message(role, content, calls, call_id, reasoning, loss, parts)


def message_loss(record: Record, message: Mapping[str, Any], path: str) -> bool:
    """What an assistant message says under `loss` (ms-swift's key); absent or null means true."""
    loss = message.get("loss")
    return True if loss is None else record.typed(f"{path}.loss", loss, bool)


def message_role(record: Record, message: Any, path: str, known: tuple[str, ...]) -> Any:
    """The role of a raw message, one of `known`. Raises DataError that offers the nearest."""
    role = record.typed(f"{path}.role", message.get("role"), str)
    if role not in known:
        raise record.error(f"{path}.role", f"unknown role {role!r}", nearest(role, known))
    return role


def parse_call(record: Record, value: Any, path: str) -> ToolCall:
    """A call as an object or its JSON text, plain or in OpenAI's wrapping. Raises DataError."""
    call = record.typed(path, _loaded(record, value, path), dict)
    function, where = call, path
    if "function" in call:
        where = f"{path}.function"
        function = record.typed(where, call["function"], dict)
    name = record.typed(f"{where}.name", function.get("name"), str)
    if not name:
        raise record.error(f"{where}.name", "is empty")
    where += ".arguments"
    arguments = record.typed(where, _loaded(record, function.get("arguments"), where), dict)
    return ToolCall(name, arguments, record.typed(f"{path}.id", call.get("id") or "", str))


def check_order(record: Record, messages: tuple[Message, ...], path: str) -> tuple[Message, ...]:
    """`messages` themselves, if a chat could have gone this way. Raises DataError."""
    if not messages:
        raise record.error(path, "holds no messages", "a row needs at least a user message")
    for index, message in enumerate(messages):
        where = f"{path}[{index}]"
        if message.role == "system" and index:
            raise record.error(where, "a system message after the first place", "put it first")
        if message.role == "assistant" and all(m.role == "system" for m in messages[:index]):
            raise record.error(where, "the assistant speaks first", "a user message comes first")
        if message.role == "tool":
            _check_tool_result(record, messages[:index], message, where)
    if all(message.role == "system" for message in messages):
        raise record.error(path, "holds no user message")
    return messages


def _check_tool_result(
    record: Record, before: tuple[Message, ...], message: Message, where: str
) -> None:
    caller = next((m for m in reversed(before) if m.role != "tool"), None)
    if caller is None or not caller.tool_calls:
        raise record.error(
            where, "a tool result without a call", "the call comes before its result"
        )
    ids = [call.id for call in caller.tool_calls if call.id]
    if message.tool_call_id and ids and message.tool_call_id not in ids:
        problem = f"answers call {message.tool_call_id!r}, which was not made"
        raise record.error(f"{where}.tool_call_id", problem, "the calls are " + ", ".join(ids))


def dump_messages(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    """OpenAI messages as JSON objects, with the arguments as objects; absent fields left out.

    Which messages are trained on is not OpenAI's to say: `stored_messages` says that too.
    """
    return [dump_message(message) for message in messages]


def stored_messages(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    """The same with `loss: false` on the messages that are not trained on."""
    values = dump_messages(messages)
    for value, message in zip(values, messages, strict=True):
        if not message.loss:
            value["loss"] = False
    return values


def cut_untrained(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The messages up to the last one that is trained on, which nothing after it can change.

    The same messages where none has `loss: false`; none where no message is trained on.
    """
    answers = [index for index, message in enumerate(messages) if message.role == "assistant"]
    trained = [index for index in answers if messages[index].loss]
    if len(trained) == len(answers) or (trained and trained[-1] == answers[-1]):
        return messages
    return messages[: trained[-1] + 1] if trained else ()


def dump_message(message: Message) -> dict[str, Any]:
    """One OpenAI message as a JSON object."""
    content = stored_parts(message) if message.parts else message.content
    value: dict[str, Any] = {"role": message.role, "content": content}
    if message.reasoning:
        value["reasoning_content"] = message.reasoning
    if message.tool_calls:
        value["tool_calls"] = [_dump_call(call) for call in message.tool_calls]
    if message.tool_call_id:
        value["tool_call_id"] = message.tool_call_id
    return value


def _dump_call(call: ToolCall) -> dict[str, Any]:
    value: dict[str, Any] = {"id": call.id} if call.id else {}
    function = {"name": call.name, "arguments": dict(call.arguments)}
    return value | {"type": "function", "function": function}


def _calls(record: Record, value: Any, path: str) -> tuple[ToolCall, ...]:
    calls = record.typed(path, value or [], list)
    return tuple(parse_call(record, call, f"{path}[{i}]") for i, call in enumerate(calls))


def _content(record: Record, value: Any, path: str) -> tuple[str, str, tuple[ToolCall, ...]]:
    """Text, reasoning and calls of a content field; parts of one type are joined as they stand."""
    if value is None:
        return "", "", ()
    if isinstance(value, str):
        return value, "", ()
    text, reasoning, calls = "", "", ()
    for index, part in enumerate(record.typed(path, value, list, str)):
        where = f"{path}[{index}]"
        kind = record.typed(f"{where}.type", record.typed(where, part, dict).get("type"), str)
        body = part.get("value", part.get(kind))
        if kind == "text":
            text += record.typed(f"{where}.value", body, str)
        elif kind == "reasoning":
            reasoning += record.typed(f"{where}.value", body, str)
        elif kind == "tool_call":
            calls += (parse_call(record, body, f"{where}.value"),)
        elif kind != IMAGE:
            known = ("text", "reasoning", "tool_call", IMAGE)
            raise record.error(f"{where}.type", f"unknown part {kind!r}", nearest(kind, known))
    return text, reasoning, calls


def _holds_image(content: Any) -> bool:
    return isinstance(content, list) and any(part["type"] == IMAGE for part in content)


def _parts(record: Record, value: list[dict[str, Any]], path: str) -> tuple[Part, ...]:
    """Text and images of a content field in order. Raises DataError."""
    parts: list[Part] = []
    for index, part in enumerate(value):
        if part["type"] == IMAGE:
            parts.append(image_part(record, part.get(IMAGE), f"{path}[{index}].{IMAGE}"))
        elif part["type"] == "text":
            parts.append(TextPart(str(part.get("value", part.get("text")))))
        else:
            raise record.error(f"{path}[{index}].type", "stands beside an image", CARRIED)
    return tuple(parts)


def _loaded(record: Record, value: Any, path: str) -> Any:
    """What `value` says, if it is JSON text; else `value` itself. Raises DataError."""
    if not isinstance(value, str):
        return value
    try:
        return load_json(value)
    except ValueError as error:
        raise record.error(path, f"is not JSON: {error}") from error
