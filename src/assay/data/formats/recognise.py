"""Which format a file is in, from its first records; its reader then has to bear the guess out."""

from itertools import islice
from pathlib import Path
from typing import Any

from assay.data.formats.formats import FORMATS, UnknownFormatError, read_records
from assay.data.formats.preferences import refuse_preferences

LOOKED_AT = 20
"""Records: a conversation without a call says little about how calls are written."""


def recognise(path: str | Path) -> str:
    """The format of a file. Raises DataError where it cannot be read or holds preference data,
    UnknownFormatError where its first records look like none.
    """
    first: dict[str, Any] = {}
    for record in islice(read_records(path), LOOKED_AT):
        first = first or dict(refuse_preferences(record).value)
        found = _format_of(record.value)
        if found is not None:
            return found
    if "messages" in first or "traj" in first:
        return "messages"
    fix = "name it with --from: " + ", ".join(FORMATS)
    keys = ", ".join(list(first)[:8]) or "nothing"
    raise UnknownFormatError(
        f"is in no format that is known by its fields ({keys})", file=path, fix=fix
    )


def _format_of(value: Any) -> str | None:
    """The format that one record shows; None where it does not show any."""
    if isinstance(value.get("0"), dict):
        return "hardgen"
    # In TRL's columns, what another format kept under this name is text.
    if isinstance(value.get("reward_model"), dict) and "prompt" in value:
        info = value.get("extra_info")
        loop = isinstance(info, dict) and {"instruction", "input", "output"} <= set(info)
        return "looptool" if loop else "verl"
    if "prompt" in value:
        return "trl"
    if {"question", "answer"} <= set(value):
        return "gsm8k"
    if "conversations" in value or "<|im_start|>" in str(value.get("text", "")):
        return "hermes"
    return _format_of_messages(value.get("messages"))


def _format_of_messages(messages: Any) -> str | None:
    if not isinstance(messages, list):
        return None
    said = [message for message in messages if isinstance(message, dict)]
    if {message.get("role") for message in said} & {"tool_call", "tool_response"}:
        return "swift"
    if any(message.get("tool_calls") for message in said):
        return "messages"
    texts = [message["content"] for message in said if isinstance(message.get("content"), str)]
    tagged = any(tag in text for text in texts for tag in ("<tool_call>", "<tool_response>"))
    return "hermes" if tagged else None
