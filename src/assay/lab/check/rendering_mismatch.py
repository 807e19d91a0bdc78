"""Whether what a stage trains after, what it samples after and what its benchmark asks are alike.

Renderings of one fingerprint are one rendering. Two are compared on what they write, token by
token, before every assistant message of the stage's rows and of the evaluation's items. One that
parts from its evaluation's is refused before anything is trained, unless the stage allows it by
name. What else may be wrong with a rendering is `renderings_alike`' part.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from assay.data.renderings.rendering import Renderer, Tools, first_difference
from assay.data.renderings.template import RenderingError
from assay.data.row import Message, Row
from assay.errors import InputError
from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.experiment.stage_tables import SftStage
from assay.lab.setup.prepare import find_part, make_renderer
from assay.lab.setup.session import Session
from assay.tasks.task import Task

Value = TypeVar("Value")
Tokens = tuple[int, ...]

COMPARED = 64
"""Rows, and as many items, that two renderings are compared on."""


class OtherRendering(InputError):
    """A stage is measured on prompts that are written otherwise than those it was trained on."""


@dataclass(frozen=True, slots=True)
class Parting:
    """The first place where two renderings write a conversation differently."""

    where: str
    """The row or item, and the message that comes next there."""
    difference: str
    """The first differing token, with what comes before it and after."""

    def __str__(self) -> str:
        return f"{self.where}: {self.difference}"


def refuse_other_renderings(session: Session) -> None:
    """Raise OtherRendering for the first stage that parts from an evaluation of its checkpoints,
    and has not allowed it.
    """
    for stage, evaluation in measured(session):
        if evaluation in allowed(session, stage):
            continue
        found = parting(session, stage, evaluation)
        if isinstance(found, Parting):
            trained, asked = names(session, stage, evaluation)
            raise OtherRendering(
                f"is trained by {trained!r} and evaluate.{evaluation} asks by {asked!r}; {found}",
                field=f"stage.{stage}.rendering",
                fix=f'use one rendering, or allow it: other_rendering_than = ["{evaluation}"]',
            )


def measured(session: Session) -> list[tuple[str, str]]:
    """Each stage with each evaluation that looks at its checkpoints, in file order."""
    pairs = [
        (reference.stage, name)
        for name, spec in session.experiment.evaluate.items()
        for reference in map(parse_checkpoint, spec.checkpoints)
        if reference is not None and reference.stage is not None
    ]
    return list(dict.fromkeys(pairs))


def allowed(session: Session, stage: str) -> tuple[str, ...]:
    """The evaluations that a stage may part from."""
    return session.experiment.stage[stage].other_rendering_than or ()


def names(session: Session, stage: str, evaluation: str) -> tuple[str, str]:
    """The renderings of a stage and an evaluation; `auto` under the name of what it comes to."""
    experiment, tokenizer = session.experiment, session.base.tokenizer
    both = experiment.stage[stage].rendering, experiment.evaluate[evaluation].rendering
    trained, asked = (make_renderer(tokenizer, name).name for name in both)
    return trained, asked


def parting(session: Session, stage: str, evaluation: str) -> Parting | int:
    """Where a stage and an evaluation part, on rows of the one and items of the other.

    Without one, the number of conversations that were compared: 0 where it is one rendering.
    """
    spec = session.experiment.stage[stage]
    rows = find_part(session.sets, spec.data)
    items = session.evaluations[evaluation].items
    conversations = [("row", row) for row in spread(rows)] + [
        ("item", row) for row in spread(items)
    ]
    return compare(session, spec.rendering, f"evaluate.{evaluation}", conversations, last_of(spec))


def last_of(stage: object) -> bool:
    """Whether a stage trains on the last assistant message of a row alone."""
    return not isinstance(stage, SftStage) or stage.loss_on == "last"


def compare(
    session: Session,
    rendering: str,
    place: str,
    conversations: Sequence[tuple[str, Row]],
    last: bool,
) -> Parting | int:
    """Where the rendering of a stage and that of `place` part; see `parting`."""
    table, _, name = place.partition(".")
    other = getattr(session.experiment, table)[name].rendering
    tokenizer = session.base.tokenizer
    trained, asked = make_renderer(tokenizer, rendering), make_renderer(tokenizer, other)
    if trained.fingerprint == asked.fingerprint:
        return 0
    for kind, row in conversations:
        found = part_in(session.task, trained, asked, row, last, place)
        if found is not None:
            return Parting(f"{kind} {row.id}{found[0]}", found[1])
    return len(conversations)


def part_in(
    task: Task, trained: Renderer, asked: Renderer, row: Row, last: bool, place: str
) -> tuple[str, str] | None:
    """Where one conversation parts (" before message 3", or nothing at its last), and how."""
    messages = conversation(task, row)
    try:
        before = contexts(trained, messages, row.tools, last)
    except RenderingError as error:
        return "", f"{trained.name!r} cannot write it: {error}"
    for index, (training, rollout) in before.items():
        at = "" if index >= len(messages) - 1 else f" before message {index + 1}"
        try:
            benchmark = asked.prompt(messages[:index], row.tools)
        except RenderingError as error:
            return at, f"{place} cannot write it by {asked.name!r}: {error}"
        for name, tokens in (("training", training), ("rollout", rollout)):
            if tokens != benchmark:
                return at, told(trained.tokenizer, (name, tokens), (place, benchmark))
    return None


def contexts(
    renderer: Renderer, messages: Sequence[Message], tools: Tools, last: bool
) -> dict[int, tuple[Tokens, Tokens]]:
    """By the index of each trained assistant message: what comes before it in training, and in
    rollout. Of a conversation without one, its prompt twice. Raises RenderingError.
    """
    spoken = [i for i, message in enumerate(messages) if message.role == "assistant"]
    if not spoken:
        prompt = renderer.prompt(messages, tools)
        return {len(messages): (prompt, prompt)}
    trained = training_contexts(renderer, messages, tools, spoken, last)
    return {
        index: (tokens, renderer.prompt(messages[:index], tools))
        for index, tokens in trained.items()
    }


def training_contexts(
    renderer: Renderer, messages: Sequence[Message], tools: Tools, spoken: Sequence[int], last: bool
) -> dict[int, Tokens]:
    """What comes before each trained assistant message, by its index, as `Renderer.turns` has it:
    in one sequence where the rendering leaves history as it was, else in one for each message.
    """
    turns = renderer.turns(messages, tools, "last" if last else "all")
    if last:
        return {spoken[-1]: turns[0].context}
    if len(turns) == len(spoken):
        return {index: turn.context for index, turn in zip(spoken, turns, strict=True)}
    whole = renderer.conversation(messages, tools)
    return {index: whole.tokens[:start] for index, start, _ in whole.message_spans}


def told(tokenizer: object, one: tuple[str, Tokens], other: tuple[str, Tokens]) -> str:
    """The first difference between two token sequences in words."""
    (left_name, left), (right_name, right) = one, other
    difference = first_difference(tokenizer, left, right)
    if difference is None:
        goes_on = tokenizer.decode(list(right[len(left) :][:8]))  # type: ignore[attr-defined]
        difference = f"the other goes on after token {len(left)}, with {goes_on!r}"
    return f"{difference} (one is {left_name}, the other {right_name})"


def conversation(task: Task, row: Row) -> tuple[Message, ...]:
    """The row's prompt, and its target where it has one."""
    try:
        return (*task.prompt(row), task.target(row))
    except InputError:
        return task.prompt(row)


def spread(values: Sequence[Value]) -> list[Value]:
    """Values evenly from all over a sequence, COMPARED at most."""
    step = max(1, -(-len(values) // COMPARED))
    return list(values[::step])


def starts(session: Session) -> Mapping[str, str]:
    """Each stage that starts from another one, with that one."""
    found = {}
    for name, stage in session.experiment.stage.items():
        reference = parse_checkpoint(stage.start)
        if reference is not None and reference.stage is not None:
            found[name] = reference.stage
    return found
