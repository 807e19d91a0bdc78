"""The skill of writing a text of a given length, in three tries."""

from dataclasses import dataclass, field
from typing import ClassVar

from assay.data.episode import Completion, Ended, Reward
from assay.data.row import Message, Row
from assay.errors import look_up
from assay.tasks.task import Asked, BaseTask, Benchmark, BenchmarkOptions, Loaded

TRIES = 3
WANTED = {"train": (3, 4, 5, 6, 8, 9), "test": (2, 7)}


def verdict(wanted: int, answer: str) -> str:
    """What the world says of an answer; "" of a right one."""
    if len(answer) == wanted:
        return ""
    return "Too long." if len(answer) > wanted else "Too short."


@dataclass
class Lengths:
    """The world of one row."""

    row: Row
    later: list[Message] = field(default_factory=list)
    over: bool = False

    def asks(self) -> Asked | None:
        """The whole conversation so far, or None when it is over."""
        return None if self.over else Asked((*self.row.prompt, *self.later))

    def hears(self, text: str, ended: Ended) -> None:
        """Keep the model's message as it wrote it, and answer it."""
        self.later.append(Message("assistant", text))
        answer = verdict(self.row.gold, text)
        tries = sum(message.role == "assistant" for message in self.later)
        self.over = not answer or tries == TRIES
        if not self.over:
            self.later.append(Message("user", f"{answer} Try again."))

    @property
    def messages(self) -> tuple[Message, ...]:
        """Everything after the row's prompt."""
        return tuple(self.later)


def close(row: Row, completion: Completion) -> Reward:
    """1 for the wanted length, else how near the nearest try came. Part: `tries`."""
    tries = [m.content for m in completion.messages if m.role == "assistant"]
    if not tries:
        return Reward(None, why="the model wrote nothing")
    nearest = min(abs(len(text) - row.gold) / max(len(text), row.gold) for text in tries)
    return Reward(1.0 - nearest, {"tries": float(len(tries))})


def exact(row: Row, completion: Completion) -> Reward:
    """1 where the last try had the wanted length, else 0."""
    tries = [m.content for m in completion.messages if m.role == "assistant"]
    return Reward(float(bool(tries) and not verdict(row.gold, tries[-1])))


def wrong_because(row: Row, completion: Completion) -> str:
    """What was wrong with the last try."""
    if completion.ended == "context":
        return "no_room"
    last = completion.messages[-1].content
    return verdict(row.gold, last).removesuffix(".").replace(" ", "_").lower()


def make_row(wanted: int) -> Row:
    """A question with its gold conversation for SFT."""
    asked = Message("user", f"Write {wanted} characters.")
    return Row(str(wanted), (asked, Message("assistant", "x" * wanted)), gold=wanted)


def read_lengths(name: str) -> Loaded:
    """The rows of `source = "lengths:NAME"`. Raises UnknownNameError."""
    return Loaded(tuple(make_row(wanted) for wanted in look_up(WANTED, name, "list")))


def benchmark(options: BenchmarkOptions) -> Benchmark:
    """All test lengths, each an episode."""
    return Benchmark(
        name="lengths/test",
        items=read_lengths("test").rows,
        score=exact,
        checker="lengths 1",
        classify=wrong_because,
        options=options.over({}),
        dialogue=Lengths,
    )


class LengthsTask(BaseTask):
    """The task called "lengths"."""

    name = "lengths"
    rewards: ClassVar = {"close": close, "exact": exact}
    benchmarks: ClassVar = {"lengths/test": benchmark}
    sources: ClassVar = {"lengths": read_lengths}

    def dialogue(self, row: Row) -> Lengths:
        """Every row is an episode."""
        return Lengths(row)


TASK = LengthsTask()
