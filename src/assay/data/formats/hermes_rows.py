"""Reads rows whose tools, calls and results are Hermes or Qwen text, and LoopTool's RL rows.

Hermes rows are `{"messages": [{"role", "content"}]}`, ShareGPT's `{"conversations": [{"from",
"value"}]}` or one `{"text": "<|im_start|>..."}`; `tools` may be a column of its own. LoopTool's
rows are verl's columns: `prompt` holds a system message with the tools and a user message with the
whole history, `<|im_end|>` and `<|im_start|>` between its turns. `reward_model.ground_truth` is the
answer: it becomes the last message, and stays text as the gold; the copies of prompt and answer in
`extra_info` are left out. The text itself is parsed by `data.renderings.hermes`.
"""

from collections.abc import Iterator
from typing import Any

from assay.data.conversation import message_loss, message_role
from assay.data.formats.kept import build_row
from assay.data.formats.verl_rows import ground_truth, source_id
from assay.data.loaded import Record
from assay.data.renderings.hermes import Said, parse_text_messages, split_chatml
from assay.data.row import Row
from assay.data.tools import parse_tools

COLUMNS = ("messages", "conversations", "text", "tools")
ROLES = {
    "system": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "tool": "tool",
    "function_response": "tool",
}


def hermes_row(record: Record) -> Row:
    """A row of this format. Raises DataError."""
    tools = parse_tools(record, record.value.get("tools"))
    column = next((name for name in COLUMNS[:3] if record.value.get(name) is not None), "messages")
    messages, tools = parse_text_messages(record, _said(record, column), tools, column)
    return build_row(record, messages, tools, *COLUMNS)


def _said(record: Record, column: str) -> Iterator[Said]:
    if column == "text":
        for role, text in split_chatml(record, record.need("text", str), "text"):
            yield _role(record, {"role": role}, "text"), text, True
        return
    role_key, text_key = ("from", "value") if column == "conversations" else ("role", "content")
    for index, value in enumerate(record.need(column, list)):
        path = f"{column}[{index}]"
        message = record.typed(path, value, dict)
        role = _role(record, {"role": message.get(role_key)}, path)
        text = record.typed(f"{path}.{text_key}", message.get(text_key), str)
        yield role, text, message_loss(record, message, path)


def _role(record: Record, message: dict[str, Any], path: str) -> str:
    return ROLES[message_role(record, message, path, tuple(ROLES))]


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
            said += [(*turn, True) for turn in split_chatml(record, _whole(text), path)]
        else:
            said.append((role, text, True))
    truth = record.typed("reward_model.ground_truth", ground_truth(record), str)
    said.append(("assistant", truth, True))
    messages, tools = parse_text_messages(record, said, (), "prompt")
    info = record.maybe("extra_info", dict) or {}
    kept = {key: value for key, value in info.items() if key not in COPIES}
    extra = {**record.others("prompt", "extra_info"), "extra_info": kept}
    return Row(source_id(record, info), messages, tools, truth, origin=record.origin, extra=extra)


def _whole(text: str) -> str:
    """The history with the marks of its first and last turn, which the data leaves out."""
    return text if text.startswith("<|im_start|>") else f"<|im_start|>user\n{text}<|im_end|>\n"
