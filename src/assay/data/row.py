"""Defines a row of a data set: one conversation with its tools and the gold answer.

Frozen data only: `data.formats` reads rows, `data.renderings` renders them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a function by name with JSON arguments."""

    name: str
    arguments: Mapping[str, Any]
    id: str = ""


@dataclass(frozen=True, slots=True)
class TextPart:
    """A piece of text between images."""

    text: str


@dataclass(frozen=True, slots=True)
class ImagePart:
    """An image, by its path or by its bytes; two are equal where both and the sha256 are."""

    sha256: str
    media_type: str
    path: str = ""
    """Below the data file's folder; "" where the data file holds the bytes."""
    data: bytes | None = field(default=None, repr=False)
    """The bytes that the data file holds; None where it names a path."""
    file: Path | None = field(default=None, compare=False, repr=False)
    """Where `path` was found."""
    origin: tuple[str, int, str] = field(default=("", 0, ""), compare=False, repr=False)
    """File, line and field, for messages about this image."""


Part = TextPart | ImagePart


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation, in OpenAI's terms."""

    role: Role
    content: str
    """The text; of a message with `parts`, that of its text parts."""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    reasoning: str = ""
    loss: bool = True
    """Whether an assistant message is trained on; one that is not is context only."""
    parts: tuple[Part, ...] = ()
    """The whole content in order, where it holds an image; empty where `content` is all of it."""
    name: str = ""
    """Of a tool result: the function that it names, where the data does."""


@dataclass(frozen=True, slots=True)
class Row:
    """One example. `messages` ends with the target assistant message where the data has one."""

    id: str
    """Stable: the source's own id, else a hash of the content."""
    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    """Function descriptions as the source wrote them (plain, or wrapped as OpenAI tools)."""
    gold: Any = None
    """The reference for the reward: a JSON value that the task interprets."""
    conversation: str = ""
    """Rows with the same conversation never fall on both sides of a split; empty means `id`."""
    origin: str = ""
    """`file:line`, for messages about this row."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    template_options: Mapping[str, Any] = field(default_factory=dict)
    """What the row gives the chat template, such as `{"enable_thinking": False}`."""
    columns: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """What the format read, by the file's own names and as the file has it, but for messages; for
    rewards that ask for columns by name. Beside `extra`, which holds the others."""

    @property
    def prompt(self) -> tuple[Message, ...]:
        """The messages before the final assistant message, which is the target if there is one."""
        if self.messages and self.messages[-1].role == "assistant":
            return self.messages[:-1]
        return self.messages
