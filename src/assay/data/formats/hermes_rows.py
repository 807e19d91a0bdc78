"""Reads rows whose tools, calls and results are Hermes or Qwen text, and LoopTool's RL rows.

Hermes rows are `{"messages": [{"role", "content"}]}`, ShareGPT's `{"conversations": [{"from",
"value"}]}` or one `{"text": "<|im_start|>..."}`; `tools` and `system` may be columns of their own.
LLaMA-Factory's `function_call` is the JSON text of one call or of several, and `observation` a
result. LoopTool's
rows are verl's columns: `prompt` holds a system message with the tools and a user message with the
whole history, `<|im_end|>` and `<|im_start|>` between its turns. `reward_model.ground_truth` is the
answer: it becomes the last message, and stays text as the gold; the copies of prompt and answer in
`extra_info` are left out. The text itself is parsed by `data.renderings.hermes`.
"""

from collections.abc import Iterator
from typing import Any

from assay.data.conversation import (
    loaded_value,
    message_loss,
    message_role,
    parse_call,
    remark_unread,
)
from assay.data.formats.kept import BESIDE, build_row, system_beside, tools_beside
from assay.data.formats.verl_rows import ground_truth, source_id
from assay.data.loaded import Record
from assay.data.renderings.hermes import (
    THINK_END,
    Said,
    call_text,
    parse_text_messages,
    split_chatml,
)
from assay.data.row import Row, ToolCall

COLUMNS = ("messages", "conversations", "text", "tools")
CALLS = "function_call"
ROLES = {
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "gpt", "bot"), "assistant"),
    **dict.fromkeys(("tool", "function", "function_response", "tool_response"), "tool"),
    **dict.fromkeys(("observation", "observations"), "tool"),
    **dict.fromkeys(("tool_call", CALLS), CALLS),
}
"""Roles of ShareGPT, LLaMA-Factory, ms-swift and OpenAI -> those of messages, or CALLS."""
SAID = {"role", "content", "from", "value"}


def hermes_row(record: Record) -> Row:
    """A row of this format. Raises DataError."""
    column = next((name for name in COLUMNS[:3] if record.value.get(name) is not None), "messages")
    said = [*_said(record, column)]
    own = said[0][1] if said and said[0][0] == "system" else None
    system = system_beside(record, own)
    before = [("system", system, True)] if system else []
    found = parse_text_messages(record, [*before, *said], tools_beside(record), column)
    return build_row(record, *found, *COLUMNS, *BESIDE)


def _said(record: Record, column: str) -> Iterator[Said]:
    if column == "text":
        for role, text in split_chatml(record, record.need("text", str), "text"):
            known = message_role(record, {"role": role}, "text", tuple(ROLES))
            yield ROLES[known], text, True
        return
    waiting: Said | None = None
    for index, value in enumerate(record.need(column, list)):
        said = _one_said(record, value, f"{column}[{index}]", column)
        if said[0] != CALLS:
            yield from [waiting] if waiting else []
            waiting = said
            continue
        said = ("assistant", *said[1:])
        if waiting and waiting[0] == "assistant":
            # A call and the text right before it, or another call, are one turn.
            if waiting[2] != said[2]:
                fix = "give all messages of the turn the same loss"
                raise record.error(f"{column}[{index}]", "differs from its turn in loss", fix)
            said = ("assistant", f"{waiting[1]}\n{said[1]}", said[2])
        elif waiting:
            yield waiting
        waiting = said
    yield from [waiting] if waiting else []


def _one_said(record: Record, value: Any, path: str, column: str) -> Said:
    message = record.typed(path, value, dict)
    sharegpt = column == "conversations" and "role" not in message
    role_key, text_key = ("from", "value") if sharegpt else ("role", "content")
    for key in ("tool_calls", "function_call"):
        if message.get(key):
            fix = "this format reads calls in the text; name format = 'messages'"
            raise record.error(f"{path}.{key}", "holds calls beside the text", fix)
    remark_unread(record, message, SAID)
    role = ROLES[message_role(record, message, path, tuple(ROLES), role_key)]
    text = record.typed(f"{path}.{text_key}", message.get(text_key), str)
    if role != CALLS:
        return role, text, message_loss(record, message, path, role)
    thought, calls = called(record, text, path)
    text = "\n".join([*([thought] if thought else []), *map(call_text, calls)])
    return role, text, message_loss(record, message, path, "assistant")


def called(record: Record, text: str, path: str) -> tuple[str, tuple[ToolCall, ...]]:
    """What a message of CALLS says: the JSON text of one call or of a list, with reasoning in its
    tags before it where there is some. Raises DataError."""
    thought, end, rest = text.rpartition(THINK_END)
    calls = record.typed(path, loaded_value(record, rest.strip(), path), dict, list)
    listed = calls if isinstance(calls, list) else [calls]
    return thought + end, tuple(parse_call(record, call, path) for call in listed)


COPIES = ("instruction", "input", "output")


def looptool_row(record: Record) -> Row:
    """A row of this format. Raises DataError."""
    said: list[Said] = []
    for index, value in enumerate(record.need("prompt", list)):
        path = f"prompt[{index}]"
        message = record.typed(path, value, dict)
        role = message_role(record, message, path, ("system", "user"))
        text = record.typed(f"{path}.content", message.get("content"), str)
        if role == "user":
            # The data leaves the marks of the history's first and last turn out.
            marked = text.startswith("<|im_start|>")
            whole = text if marked else f"<|im_start|>user\n{text}<|im_end|>\n"
            said += [(*turn, False) for turn in split_chatml(record, whole, path)]
        else:
            said.append((role, text, False))
    truth = record.typed("reward_model.ground_truth", ground_truth(record), str)
    said.append(("assistant", truth, True))
    messages, tools = parse_text_messages(record, said, (), "prompt")
    info = record.maybe("extra_info", dict) or {}
    kept = {key: value for key, value in info.items() if key not in COPIES}
    extra = {**record.others("prompt", "extra_info"), "extra_info": kept}
    return Row(source_id(record, info), messages, tools, truth, origin=record.origin, extra=extra)
