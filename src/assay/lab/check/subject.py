"""The input of every check: the opened experiment, and its gold answers as the policy gives them.

Gold answers are encoded once and shared. Nothing is judged here.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeGuard, TypeVar

from assay.data.episode import Completion, Context, Turn
from assay.data.renderings.packed_rows import remembered
from assay.data.renderings.qwen import split_thought
from assay.data.renderings.template import RenderingError
from assay.data.row import Message, Row
from assay.errors import Finding, InputError, Severity
from assay.experiment.base_table import RenderingSettings, rendering_key
from assay.experiment.stage_tables import CommonStage, SamplingStage, StageSpec
from assay.lab.data.prepare import find_part
from assay.lab.models.learner import each_encoded, encoded_by, question
from assay.lab.session.evaluation import Evaluation
from assay.lab.session.session import Session
from assay.tasks.task import Task

Value = TypeVar("Value")

SHOWN = 3
"""Row ids that a finding names."""


@dataclass(frozen=True, slots=True)
class Number:
    """A measurement: `place` is a table of the experiment, `name` has the unit."""

    place: str
    name: str
    value: float


SharedKind = Literal["questions", "calls", "functions", "conversations"]


@dataclass(frozen=True, slots=True)
class SharedItems:
    """The overlap of a training set's rows with the items of a test."""

    kind: SharedKind
    data: str
    place: str
    """`evaluate.NAME`."""
    report: bool
    """Whether the test is reported; an overlap with dev items is less grave."""
    rows: int
    """Training rows that share it."""
    of: int
    exact: int
    """The number of questions that are equal word for word."""
    names: tuple[str, ...]
    """A few of the rows, or of the functions and conversations."""


Seen = Iterator[Finding | Number | SharedItems]
"""The result of a check."""


@dataclass(frozen=True, slots=True)
class Gold:
    """A row's gold answer as actions, and as the text that rewards would see of them."""

    row: Row
    encode: Callable[[], Any]
    """The answer as it is trained, and what the policy reads when it samples."""
    trained_elsewhere: bool
    """Whether the answer is trained after something else than it is sampled after."""
    tokens: array
    text: str
    prompt_size: int
    context_size: int
    """Tokens of the prompt and of the context of training."""
    context_key: int
    """The same for equal contexts."""
    blank: bool
    """Whether it has no call, and no visible character beside its reasoning."""
    doubtful: bool
    """Whether an answer before it may be one that cannot be trained."""

    @property
    def actions(self) -> tuple[int, ...]:
        """The answer's tokens, the end of the turn included; or the candidates that it picks."""
        return tuple(self.tokens)

    @property
    def completion(self) -> Completion:
        """The answer as if the model had written it."""
        return Completion(self.text, self.actions, "stop")


@dataclass(frozen=True, slots=True)
class Golds:
    """The gold answers of some rows, and the rows that have none."""

    answers: tuple[Gold, ...]
    missing: tuple[str, ...]
    """Ids of rows without a gold answer that the policy can give."""
    broken: tuple[tuple[str, str], ...]
    """(id, why) of rows that cannot be rendered."""


@dataclass(frozen=True)
class Subject:
    """An experiment whose model, data sets and evaluations could be opened."""

    session: Session
    pairs: dict[int, Any] = field(default_factory=dict, repr=False)
    """The pairs of dpo stages, see `work.pairs_of`."""
    _golds: dict[tuple[str, str], Golds] = field(default_factory=dict)

    def golds_of_data(self, name: str, rendering: RenderingSettings) -> Golds:
        """The gold answers of `NAME` or `NAME.dev`."""
        return self._cached(name, rendering, find_part(self.session.sets, name))

    def golds_of_items(self, evaluation: Evaluation) -> Golds:
        """The gold answers of an evaluation's items."""
        place = f"evaluate.{evaluation.name}"
        return self._cached(place, evaluation.spec, evaluation.items)

    def _cached(self, place: str, rendering: RenderingSettings, rows: Sequence[Row]) -> Golds:
        key = (place, rendering_key(rendering))
        if key not in self._golds:
            self._golds[key] = render_golds(self.session, rows, rendering)
        return self._golds[key]


def reward_uses(session: Session) -> list[tuple[str, Any]]:
    """Every reward that the experiment puts to rows: the place and the table, a stage's or an
    evaluation's; where two are alike, the first."""
    stages, evaluations = session.experiment.stage.items(), session.experiment.evaluate.items()
    tables: list[tuple[str, Any]] = [(f"stage.{name}", s) for name, s in stages if samples(s)]
    tables += [(f"evaluate.{name}", spec) for name, spec in evaluations if spec.data is not None]
    uses: dict[tuple[str, str, str], tuple[str, Any]] = {}
    for place, table in tables:
        if table.reward is not None:
            key = (table.data, str(table.reward), rendering_key(table))
            uses.setdefault(key, (place, table))
    return list(uses.values())


def reading(session: Session) -> list[tuple[str, StageSpec, str]]:
    """Uses of rows for training or validation: the place, the stage, the data by name."""
    return [
        (f"stage.{name}" + (".validation" if data != stage.data else ""), stage, data)
        for name, stage in session.experiment.stage.items()
        for data in stage.reads
    ]


def samples(stage: CommonStage) -> TypeGuard[SamplingStage]:
    """Whether the stage samples; candidates that the data holds are not sampled."""
    return isinstance(stage, SamplingStage) and not stage.stored


def render_golds(session: Session, rows: Sequence[Row], rendering: RenderingSettings) -> Golds:
    """The gold answer of each row; what cannot be rendered is kept with its reason."""
    encoder = session.learner.encoder(rendering)

    doubtful = getattr(encoder, "doubtful", lambda row, messages: False)

    def encode(row: Row, messages: Sequence[Message]) -> tuple[Turn, Context]:
        # The prompt is a part of the conversation, which is rendered once.
        turn = encoder.turns(row, messages, "last")[0]
        return turn, encoder.prompt(row, question(session.task, row))

    def facts(row: Row) -> Any:
        """None for a row without an answer, why another cannot be rendered, or what it holds."""
        if (messages := target_messages(session.task, row)) is None:
            return None
        try:
            turn, prompt = encode(row, messages)
        except RenderingError as error:
            return str(error)
        sizes = encoder.size(prompt), encoder.size(turn.context), hash(turn.context)
        actions, text = " ".join(map(str, turn.actions)), encoder.decode(turn.actions)
        seen = (char.isprintable() and char != " " for char in split_thought(messages[-1])[1])
        marks = not (messages[-1].tool_calls or any(seen)), doubtful(row, messages)
        return [turn.context != prompt, actions, text, *sizes, *marks]

    def made() -> list[Any]:
        told: list[Any] = []
        for own in each_encoded(encoder, rows, facts, session.observer):
            if isinstance(own, str) and not any(isinstance(each, str) for each in told):
                session.observer.note(f"a row cannot be rendered: {own}")
            told.append(own)
        return told

    def again(row: Row) -> tuple[Turn, Context]:
        return encode(row, target_messages(session.task, row) or ())

    told_by = encoded_by(session.task, encoder)
    pairs = [*zip(rows, remembered("golds", rows, told_by, made), strict=True)]
    answers = tuple(
        Gold(row, partial(again, row), own[0], array("q", map(int, own[1].split())), *own[2:])
        for row, own in pairs
        if isinstance(own, list)
    )
    missing = tuple(row.id for row, own in pairs if own is None)
    return Golds(answers, missing, tuple((r.id, own) for r, own in pairs if isinstance(own, str)))


def target_messages(task: Task, row: Row, trained: bool = False) -> tuple | None:
    """The row's prompt and its right answer; None for a row without one. That is its target, or,
    unless what is `trained` is meant, what a task whose rows have none declares as `right_answer`.
    """
    right_answer: Callable[[Row], Message] = getattr(task, "right_answer", task.target)
    right_answer = task.target if trained else right_answer
    try:
        return (*task.prompt(row), right_answer(row))
    except InputError:
        return None


def gold_conversations(task: Task, row: Row) -> list[tuple[Row, tuple[Message, ...]]]:
    """Conversations that end with what the assistant rightly says in a dialogue, one for each of
    its messages, and the row to render them with: those of the row, or what the task declares as
    `right_messages`, each after the row's prompt."""
    right_messages = getattr(task, "right_messages", lambda row: ())(row)
    if right_messages:
        # How a message is written depends on no function but that there are some.
        short = replace(row, tools=row.tools[:1])
        return [(short, (*task.prompt(row), message)) for message in right_messages]
    whole = target_messages(task, row) or ()
    return [(row, whole[: i + 1]) for i, m in enumerate(whole) if m.role == "assistant"]


def spread(values: Sequence[Value], most: int) -> Sequence[Value]:
    """At most so many values, evenly from all over a sequence."""
    return values[:: max(1, -(-len(values) // most))]


def some(ids: Sequence[str], shown: int = SHOWN) -> str:
    """The first ids in words, and how many more there are."""
    rest = len(ids) - shown
    return ", ".join(ids[:shown]) + (f" and {rest} more" if rest > 0 else "")


def on_rows(
    severity: Severity, what: str, ids: Sequence[str], whole: int, fix: str, more: str = ""
) -> Iterator[Finding]:
    """A finding on some of all rows; nothing where there are none."""
    if ids:
        yield Finding(severity, what, f"{share_of(len(ids), whole)}: {some(ids)}{more}", fix)


def with_line(row: Row) -> str:
    """A row's id with the file and line that it was read from, where they are known."""
    return f"{row.id} ({Path(row.origin).name})" if row.origin else row.id


def share_of(part: int, whole: int) -> str:
    """`12 of 80 (15.0%)`."""
    return f"{part} of {whole} ({part / whole:.1%})" if whole else "0 of 0"
