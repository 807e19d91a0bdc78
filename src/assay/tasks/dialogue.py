"""The seam of episodes that take several turns: a world that asks, hears, and asks again.

A dialogue knows messages and tools, never tokens: rendering, sampling and the tokens of a turn are
the business of whoever runs it. What an episode earned is for a reward to say, which reads the
finished conversation (`Completion.messages`) as it would read a single answer.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from assay.data.episode import Ended
from assay.data.row import Message

Tools = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """What the model sees before it writes its next message."""

    messages: tuple[Message, ...]
    """The whole conversation so far, the task's own system text included."""
    tools: Tools = ()
    """The functions that it may call now."""


class Dialogue(Protocol):
    """One episode with one row."""

    def asks(self) -> Asked | None:
        """What comes next; None when the episode is over. Asking twice changes nothing."""
        ...

    def hears(self, text: str, ended: Ended) -> None:
        """Take what the model wrote, without its end token, and how that ended.

        An exception ends the episode as an abstention that says why.
        """
        ...

    @property
    def messages(self) -> tuple[Message, ...]:
        """Everything that came after the row's prompt: the model's messages as it wrote them (the
        raw text is the content), tool results, and the user's later messages."""
        ...
