"""Converts OpenAI messages to `Message`s, and back.

Content may be text, null beside tool calls, or typed parts (`text`, `reasoning`, `tool_call`, and
`image_url` in user messages of formats that carry images). `<think>` text inside content is left as
it is. OpenAI's older `function_call` and role `function`, and its `developer`, are read as what
they became. Roles of other formats, such as ms-swift's `tool_call`, are converted by those formats.
"""

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, get_args

from assay.data.json_files import load_json
from assay.data.loaded import Record
from assay.data.message_parts import image_part, stored_parts
from assay.data.python_calls import parse_literal
from assay.data.row import Message, Part, Role, TextPart, ToolCall
from assay.errors import nearest

ROLES: tuple[str, ...] = get_args(Role)
OTHER_NAMES = {"developer": "system", "function": "tool"}
"""OpenAI's newer and older names of roles."""
IMAGE = "image_url"
CARRIED = "rows of format 'messages' carry text and images to a model behind an endpoint"
REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")

OF_ANSWERS = ("loss", "loss_scale", "weight")
"""Keys of ms-swift and OpenAI that say whether an assistant message is trained on."""
OF_MESSAGES = ("train", "training", "trainable", "train_on_turn", "loss_mask", "loss_weight")
"""Keys by which others train on messages of any role (axolotl, LLaMA-Factory, verl)."""
LIKE_THESE = re.compile(
    r"(?:^|_)(?:loss|masks?|weights?|train|training|trained)(?:_|$)|Loss|Mask|Weight|Train"
)
SAID = {
    *("role", "content", "tool_calls", "function_call", "tool_call_id", "name"),
    *REASONING_KEYS,
}

NULLS = 'arguments of calls are null, as Arrow fills absent keys (nulls = "drop" leaves them out)'
LITERALS = "calls or tools written as Python literals were read as JSON"
NO_ARGUMENTS = "arguments of calls that are empty text were read as {}"
UNANSWERED = "parallel calls without a result stand before one that has a result"
ID_OR_NAME = "results name another function than the call that their id says"
REORDERED = "results of parallel calls were put into the order of their calls"


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
    role: Any = message_role(record, message, path, (*ROLES, *OTHER_NAMES))
    role = OTHER_NAMES.get(role, role)
    single, where = message.get("function_call"), f"{path}.tool_calls"
    listed = loaded_value(record, message.get("tool_calls") or [], where)
    if single and record.typed(where, listed, list):
        fix = "keep tool_calls, which took its place"
        raise record.error(f"{path}.function_call", "stands beside tool_calls", fix)
    if single:
        calls = (parse_call(record, single, f"{path}.function_call"),)
    else:
        named = enumerate(record.typed(where, listed, list))
        calls = tuple(parse_call(record, call, f"{where}[{i}]") for i, call in named)
    raw, where = message.get("content"), f"{path}.content"
    content, reasoning, more_calls = _content(record, raw, where)
    parts: tuple[Part, ...] = ()
    if isinstance(raw, list) and any(part["type"] == IMAGE for part in raw):
        # Refused before anything is read: a request to a server names files too.
        if not images:
            raise record.error(where, "holds an image, which is not carried here", CARRIED)
        if role != "user":
            raise record.error(where, f"a {role} message cannot hold an image")
        for index, part in enumerate(raw):
            if part["type"] == IMAGE:
                parts += (image_part(record, part.get(IMAGE), f"{where}[{index}].{IMAGE}"),)
            elif part["type"] == "text":
                parts += (TextPart(str(part.get("value", part.get("text")))),)
            else:
                raise record.error(f"{where}[{index}].type", "stands beside an image", CARRIED)
    reasoning += _reasoning(record, message, path)
    calls += more_calls
    if raw is None and not calls and not reasoning:
        raise record.error(where, "missing", "write the text of the message")
    if role != "assistant" and (calls or reasoning):
        raise record.error(path, f"a {role} message cannot call tools or reason")
    call_id = record.typed(f"{path}.tool_call_id", message.get("tool_call_id") or "", str)
    loss = message_loss(record, message, path, role)
    name = message.get("name") if role == "tool" else None
    name = record.typed(f"{path}.name", name or "", str)
    remark_unread(record, message, SAID if role == "tool" else SAID - {"name"})
    return Message(role, content, calls, call_id, reasoning, loss, parts, name)


def _reasoning(record: Record, message: Mapping[str, Any], path: str) -> str:
    """The reasoning of a message, once. Raises DataError where two keys say different things."""
    first, *others = [key for key in REASONING_KEYS if message.get(key)] or [""]
    for key in others:
        if message[key] != message[first]:
            raise record.error(f"{path}.{key}", f"differs from {first}", "keep one of them")
    return record.typed(f"{path}.{first}", message[first], str) if first else ""


def remark_unread(record: Record, message: Mapping[str, Any], read: Container[str]) -> None:
    """Say which keys of a message hold something and are read neither as `read` nor as marks."""
    for key, value in message.items():
        if key in read or key in OF_ANSWERS or key in OF_MESSAGES:
            continue
        if value not in (None, "", [], {}):
            record.remark(f"messages hold {key!r}, which is not read")


def message_loss(record: Record, message: Mapping[str, Any], path: str, role: str) -> bool:
    """Whether a message is trained on, by the keys in which other tools say it; true where none is.

    Raises DataError for what is neither yes nor no, for keys that disagree, for one that is not
    known, and for a message of another role than the assistant's that is to be trained on.
    """
    marks = {}
    for key, value in message.items():
        where = f"{path}.{key}"
        if value is None or key in SAID or not (LIKE_THESE.search(key) or key in OF_MESSAGES):
            continue
        if key not in OF_ANSWERS + OF_MESSAGES:
            fix = "write loss: true or false in its place, or leave it out"
            raise record.error(where, "says what is trained on in a way that is not known", fix)
        if record.typed(where, value, bool, int, float) not in (0, 1):
            fix = "write loss: true or false, or leave it out"
            raise record.error(where, f"a weight of one message ({value}) is not supported", fix)
        marks[key] = bool(value)
        if marks[key] and role != "assistant" and key in OF_MESSAGES:
            raise record.error(where, f"a {role} message cannot be trained on", "leave it out")
    if role == "assistant" and len({*marks.values()}) > 1:
        raise record.error(path, f"{' and '.join(marks)} disagree about training on it")
    return role != "assistant" or all(marks.values())


def message_role(
    record: Record, message: Any, path: str, known: tuple[str, ...], key: str = "role"
) -> Any:
    """The role of a raw message, one of `known`. Raises DataError that offers the nearest."""
    role = record.typed(f"{path}.{key}", message.get(key), str)
    if role not in known:
        raise record.error(f"{path}.{key}", f"unknown role {role!r}", nearest(role, known))
    return role


def parse_call(record: Record, value: Any, path: str) -> ToolCall:
    """A call as an object or its JSON text, plain or in OpenAI's wrapping. Raises DataError."""
    call = record.typed(path, loaded_value(record, value, path), dict)
    function, where = call, path
    if "function" in call:
        where = f"{path}.function"
        function = record.typed(where, call["function"], dict)
    name = record.typed(f"{where}.name", function.get("name"), str)
    if not name:
        raise record.error(f"{where}.name", "is empty")
    where += ".arguments"
    arguments_field = function.get("arguments")
    if isinstance(arguments_field, str) and not arguments_field.strip():
        record.remark(NO_ARGUMENTS)
        arguments_field = {}
    if arguments_field is not None and not isinstance(value, str) and _holds_null(arguments_field):
        record.remark(NULLS)
    arguments = record.typed(where, loaded_value(record, arguments_field, where), dict)
    return ToolCall(name, arguments, record.typed(f"{path}.id", call.get("id") or "", str))


def check_order(record: Record, messages: tuple[Message, ...], path: str) -> tuple[Message, ...]:
    """`messages`, if a chat could have gone this way, with results in the order of their calls.

    Raises DataError.
    """
    if not messages:
        raise record.error(path, "holds no messages", "a row needs at least a user message")
    for index, message in enumerate(messages):
        where = f"{path}[{index}]"
        if message.role == "system" and index:
            raise record.error(where, "a system message after the first place", "put it first")
        if message.role == "assistant" and all(m.role == "system" for m in messages[:index]):
            raise record.error(where, "the assistant speaks first", "a user message comes first")
    if all(message.role == "system" for message in messages):
        raise record.error(path, "holds no user message")
    calls: tuple[ToolCall, ...] = ()
    for index, message in enumerate(messages):
        if message.role == "tool":
            _check_result(record, calls, message, f"{path}[{index}]")
        else:
            calls = message.tool_calls
    ordered = tuple(in_call_order(messages))
    if ordered != messages:
        record.remark(REORDERED)
    for is_result, run in groupby(call_places(ordered), lambda place: place is not None):
        answered = {*run}
        if is_result and answered != {*range(len(answered))}:
            record.remark(UNANSWERED)
    return ordered


def _check_result(record: Record, calls: tuple[ToolCall, ...], result: Message, where: str) -> None:
    """Raise DataError for a result of a call that was not made, by its id, else by the name of its
    function; it may say neither.
    """
    if not calls:
        raise record.error(
            where, "a tool result without a call", "the call comes before its result"
        )
    ids = [call.id for call in calls if call.id]
    if result.tool_call_id and ids:
        meant = [call.name for call in calls if call.id == result.tool_call_id]
        if result.name and meant and result.name not in meant:
            record.remark(ID_OR_NAME)
        field, problem = "tool_call_id", f"answers call {result.tool_call_id!r}, which was not made"
        known = ids
    else:
        known = [call.name for call in calls]
        meant = [name for name in known if result.name in (name, "")]
        field, problem = "name", f"is a result of {result.name!r}, which was not called"
    if not meant:
        raise record.error(f"{where}.{field}", problem, "the calls are " + ", ".join(known))


def call_places(messages: Sequence[Message]) -> list[int | None]:
    """The place of the call that each message answers among those of its turn: the call of its id,
    else of its function's name, else the first that no other result answers; None for others."""
    places: list[int | None] = []
    calls: tuple[ToolCall, ...] = ()
    for is_result, run in groupby(messages, lambda message: message.role == "tool"):
        results = [*run]
        answered: list[int | None] = [None] * len(results)
        free = [*range(len(calls))] if is_result else []
        for mark in ("id", "name", ""):
            for index, result in enumerate(results):
                named = {"id": result.tool_call_id, "name": result.name, "": ""}[mark]
                fitting = [at for at in free if not mark or getattr(calls[at], mark) == named]
                if answered[index] is None and fitting and (named or not mark):
                    answered[index] = fitting[0]
                    free.remove(fitting[0])
        calls = results[-1].tool_calls
        places += answered
    return places


def in_call_order(messages: Sequence[Message]) -> list[Message]:
    """The messages with the results of one turn in the order of its calls: templates that write no
    ids tell them apart by their places alone."""
    ordered: list[Message] = []
    pairs = zip(messages, call_places(messages), strict=True)
    for is_result, run in groupby(pairs, lambda pair: pair[0].role == "tool"):
        turn = [*run]
        if is_result:
            # Those without a call of their own are more than there are calls.
            turn = sorted(turn, key=lambda pair: len(messages) if pair[1] is None else pair[1])
        ordered += [message for message, _ in turn]
    return ordered


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


def untrained(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The messages of a prompt: its answers are context, and are not trained on."""
    return tuple(
        replace(message, loss=False) if message.role == "assistant" else message
        for message in messages
    )


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
        value["tool_calls"] = [
            ({"id": call.id} if call.id else {})
            | {
                "type": "function",
                "function": {"name": call.name, "arguments": dict(call.arguments)},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id:
        value["tool_call_id"] = message.tool_call_id
    if message.name:
        value["name"] = message.name
    return value


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


def loaded_value(record: Record, value: Any, path: str) -> Any:
    """What `value` says, if it is text of JSON or of a Python literal; else `value` itself.

    Raises DataError.
    """
    if not isinstance(value, str):
        return value
    try:
        return load_json(value)
    except ValueError as error:
        try:
            literal = parse_literal(value)
        except ValueError:
            raise record.error(path, f"is not JSON: {error}") from error
    record.remark(LITERALS)
    return literal


def _holds_null(value: Any) -> bool:
    if isinstance(value, dict):
        return any(each is None or _holds_null(each) for each in value.values())
    return isinstance(value, list) and any(map(_holds_null, value))
