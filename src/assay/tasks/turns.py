"""A task of several turns from one generator function, which says what the model hears."""

from collections.abc import Callable, Generator

from assay.data.episode import Ended
from assay.data.row import Message, Row
from assay.tasks.task import Asked, BaseTask

Turns = Callable[[Row], Generator[str | Message | None, str, None]]
"""`answer = yield` asks the row's prompt; `answer = yield TEXT` says TEXT as the user, or a message
as it is, and asks again. The episode ends when the function returns."""


class GeneratorDialogue:
    """One row's conversation with a generator: a `tasks.task.Dialogue`."""

    def __init__(self, row: Row, turns: Turns) -> None:
        self.row, self.generator, self.over = row, turns(row), False
        self.messages: tuple[Message, ...] = ()
        self._go_on(None)

    def _go_on(self, answer: str | None) -> None:
        try:
            # A generator starts with None.
            words = self.generator.send(answer)  # type: ignore[arg-type]
        except StopIteration:
            self.over = True
            return
        if words is not None:
            self.messages += (words if isinstance(words, Message) else Message("user", words),)

    def asks(self) -> Asked | None:
        """The row's prompt and all that followed; None when the function has returned."""
        return None if self.over else Asked((*self.row.prompt, *self.messages), self.row.tools)

    def hears(self, text: str, ended: Ended) -> None:
        """Hand the function what the model wrote."""
        self.messages += (Message("assistant", text),)
        self._go_on(text)


class TurnsTask(BaseTask):
    """The task of a generator function, named as the function is."""

    def __init__(self, turns: Turns) -> None:
        self.turns, self.name = turns, turns.__name__

    def dialogue(self, row: Row) -> GeneratorDialogue:
        """See `BaseTask`."""
        return GeneratorDialogue(row, self.turns)
