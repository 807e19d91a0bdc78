"""A row of a data set: one conversation with its tools and the gold answer.

Frozen data only; readers live in `formats`, rendering in `rendering`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a function by name with JSON arguments."""

    name: str
    arguments: Mapping[str, Any]
    id: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation, in OpenAI's terms."""

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    reasoning: str = ""
    loss: bool = True
    """Whether an assistant message is trained on; one that is not is context only."""


@dataclass(frozen=True, slots=True)
class Row:
    """One example. `messages` ends with the target assistant message where the data has one."""

    id: str
    """Stable: the source's own id, else a hash of the content."""
    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    """Function descriptions as the source wrote them (plain, or wrapped as OpenAI tools)."""
    gold: Any = None
    """What the reward compares with; a JSON value whose meaning the task knows."""
    conversation: str = ""
    """Rows with the same conversation never fall on both sides of a split; empty means `id`."""
    origin: str = ""
    """`file:line`, for messages about this row."""
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def prompt(self) -> tuple[Message, ...]:
        """The messages before the final assistant message, which is the target if there is one."""
        if self.messages and self.messages[-1].role == "assistant":
            return self.messages[:-1]
        return self.messages
