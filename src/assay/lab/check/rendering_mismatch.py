"""Checks that a stage and its evaluations render conversations alike, and that tokens round-trip.

Two renderings with one fingerprint are equal. Others are compared token by token on the rows of the
stage and the items of the evaluation. A stage that differs from its evaluation is refused, unless
it allows the evaluation's rendering by name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from assay.data.episode import tokens_of
from assay.data.renderings.rendering import Renderer, Tools, first_difference
from assay.data.renderings.template import RenderingError
from assay.data.row import Message, Row
from assay.errors import Finding, InputError
from assay.experiment.base_table import RenderingSettings
from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.experiment.stage_tables import SftStage, StageSpec
from assay.lab.check.subject import Gold, Seen, Subject, reading, share_of, some
from assay.lab.setup.language_learner import LanguageEncoder, language_model
from assay.lab.setup.prepare import find_part
from assay.lab.setup.session import Session
from assay.tasks.task import Task

Value = TypeVar("Value")
Tokens = tuple[int, ...]

CHECKING = "checking renderings"
COMPARED = 64
"""Rows, and as many items, that two renderings are compared on."""


@dataclass(frozen=True, slots=True)
class Parting:
    """The first place where two renderings write a conversation differently."""

    where: str
    """The row or item, and the message that follows."""
    difference: str
    """The first differing token, with the text around it."""

    def __str__(self) -> str:
        return f"{self.where}: {self.difference}"


def refuse_other_renderings(session: Session) -> None:
    """Raise InputError if a stage's rendering differs from an evaluation of its checkpoints.

    Pairs that the stage allows are skipped.
    """
    for stage, evaluation in measured(session):
        if evaluation in allowed(session, stage):
            continue
        found = parting(session, stage, evaluation)
        if isinstance(found, Parting):
            trained, asked = names(session, stage, evaluation)
            raise InputError(
                f"is trained by {trained!r} and evaluate.{evaluation} asks by {asked!r}; {found}",
                field=f"stage.{stage}.rendering",
                fix=f'use one rendering, or allow it: other_rendering_than = ["{evaluation}"]',
            )


def measured(session: Session) -> list[tuple[str, str]]:
    """Each stage with each evaluation of its checkpoints, in file order."""
    pairs = [
        (reference.stage, name)
        for name, spec in session.experiment.evaluate.items()
        for reference in map(parse_checkpoint, spec.checkpoints)
        if reference is not None and reference.stage is not None
    ]
    return list(dict.fromkeys(pairs))


def allowed(session: Session, stage: str) -> tuple[str, ...]:
    """The evaluations whose rendering a stage allows to differ."""
    return session.experiment.stage[stage].other_rendering_than or ()


def names(session: Session, stage: str, evaluation: str) -> tuple[str, str]:
    """The names of the renderings of a stage and an evaluation, with `auto` resolved."""
    experiment, learner = session.experiment, session.learner
    both = experiment.stage[stage], experiment.evaluate[evaluation]
    trained, asked = (learner.encoder(name).name for name in both)
    return trained, asked


def parting(session: Session, stage: str, evaluation: str) -> Parting | int:
    """The first difference between the renderings of a stage and an evaluation.

    Compares rows of the stage and items of the evaluation. Without a difference, returns the number
    of compared conversations: 0 if both use one rendering.
    """
    spec = session.experiment.stage[stage]
    rows = find_part(session.sets, spec.data)
    items = session.evaluations[evaluation].items
    conversations = [("row", row) for row in spread(rows)] + [
        ("item", row) for row in spread(items)
    ]
    place, options = f"evaluate.{evaluation}", [item.template_options for item in items]
    return compare(session, spec, place, conversations, last_of(spec), options)


def last_of(stage: object) -> bool:
    """Whether a stage trains on the last assistant message of a row alone."""
    return not isinstance(stage, SftStage) or stage.loss_on == "last"


def compare(
    session: Session,
    rendering: RenderingSettings,
    place: str,
    conversations: Sequence[tuple[str, Row]],
    last: bool,
    options: Sequence[Mapping[str, Any]] = (),
) -> Parting | int:
    """The first difference between the rendering of a stage and that of `place`, whose items give
    the template these `options`; see `parting`."""
    table, _, name = place.partition(".")
    other = getattr(session.experiment, table)[name]
    learner = session.learner
    alike = learner.encoder(rendering).fingerprint == learner.encoder(other).fingerprint
    others = [row for _, row in conversations if options and row.template_options not in options]
    if alike and not others:
        return 0
    model = language_model(learner, CHECKING)
    trained, asked = model.encoder(rendering), model.encoder(other)
    for kind, row in conversations:
        item = replace(row, template_options=options[0]) if row in others else row
        found = part_in(session.task, (trained, row), (asked, item), last, place)
        if found is not None:
            return Parting(f"{kind} {row.id}{found[0]}", found[1])
    return len(conversations)


Written = tuple[LanguageEncoder, Row]


def part_in(
    task: Task, one: Written, other: Written, last: bool, place: str
) -> tuple[str, str] | None:
    """The place of the first difference in one conversation (" before message 3", or "" at its
    last), and its description. The two rows have one conversation."""
    (stage, row), (evaluation, item) = one, other
    messages = conversation(task, row)
    try:
        trained, asked = stage.renderer_of(row), evaluation.renderer_of(item)
        before = contexts(trained, messages, row.tools, last)
    except RenderingError as error:
        return "", f"{stage.name!r} cannot write it: {error}"
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
    """By the index of each trained assistant message: its context in training, and in rollout.

    A conversation without one gives its prompt twice. Raises RenderingError.
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
    """The context of each trained assistant message by its index, as `Renderer.turns` has it.

    One sequence if the rendering keeps the history unchanged, else one for each message.
    """
    turns = renderer.turns(messages, tools, "last" if last else "all")
    if last:
        return {spoken[-1]: tokens_of(turns[0].context)}
    if len(turns) == len(spoken):
        return {index: tokens_of(turn.context) for index, turn in zip(spoken, turns, strict=True)}
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
        reference = parse_checkpoint(stage.start)  # None for a start in another run
        if reference is not None and reference.stage is not None:
            found[name] = reference.stage
    return found


def renderings(subject: Subject) -> Seen:
    """Checks the token round-trip of every stage's rows, and every stage against its
    evaluations."""
    for place, stage, data in reading(subject.session):
        yield from round_trip(subject, place, stage, data)
    yield from differing(subject)


def round_trip(subject: Subject, place: str, stage: StageSpec, data: str) -> Seen:
    """Rows that cannot be rendered, or whose answer the tokenizer does not give back."""
    golds = subject.golds_of_data(data, stage)
    whole = len(golds.answers) + len(golds.broken)
    broken = [*golds.broken, *untrainable(subject, stage, golds.answers)]
    if broken:
        ids = [id_ for id_, _ in broken]
        yield Finding(
            "error",
            f"{place}: rows cannot be rendered by {stage.rendering!r}",
            f"{share_of(len(ids), whole)}: {some(ids)}; {broken[0][1]}",
            "choose another rendering, or leave these rows out",
        )
    elsewhere = [gold for gold in golds.answers if gold.context != gold.prompt]
    if elsewhere:
        sides = tokens_of(elsewhere[0].prompt), tokens_of(elsewhere[0].context)
        tokenizer = language_model(subject.session.learner, CHECKING).base.tokenizer
        yield Finding(
            "error",
            f"{place}: answers are trained after another prompt than they are sampled after",
            f"{share_of(len(elsewhere), whole)}: {some([g.row.id for g in elsewhere])}; "
            f"{first_difference(tokenizer, *sides) or 'it is longer'}",
            "choose a rendering whose prompt begins its conversation",
        )
    yield from reencoded(subject, place, stage, golds.answers)


def untrainable(subject: Subject, stage: StageSpec, golds: Sequence[Gold]) -> list[tuple[str, str]]:
    """(id, why) of rows whose last answer can be trained, but not an earlier one that is."""
    broken: list[tuple[str, str]] = []
    if last_of(stage):
        return broken
    encoder = subject.session.learner.encoder(stage)
    for gold in golds:
        messages = conversation(subject.session.task, gold.row)
        if sum(message.role == "assistant" for message in messages) > 1:
            try:
                encoder.turns(gold.row, messages, "all")
            except RenderingError as error:
                broken.append((gold.row.id, str(error)))
    return broken


def reencoded(subject: Subject, place: str, stage: StageSpec, golds: tuple[Gold, ...]) -> Seen:
    """Answers whose decoded text is tokenized differently from the trained tokens."""
    learner = language_model(subject.session.learner, CHECKING)
    base, renderer = learner.base, learner.encoder(stage).renderer
    changed: list[tuple[str, str]] = []
    for gold in golds:
        spoken = [t for t in gold.actions if t not in base.end_tokens]
        again = [*renderer.text(gold.text)]
        if spoken != again:
            difference = first_difference(base.tokenizer, spoken, again)
            changed.append((gold.row.id, difference or "the second goes on"))
    if changed:
        yield Finding(
            "warning",
            f"{place}: gold answers change on the way through text",
            f"{share_of(len(changed), len(golds))}: {some([id_ for id_, _ in changed])}; "
            f"{changed[0][1]}",
            "rewards read the decoded text: see that the tokenizer keeps spaces and rare signs",
        )


def differing(subject: Subject) -> Seen:
    """Stages whose evaluations, or whose starts, use prompts rendered differently from their
    own."""
    session = subject.session
    for stage, evaluation in measured(session):
        found = parting(session, stage, evaluation)
        if isinstance(found, Parting) or found:
            yield of_evaluation(session, stage, evaluation, found)
    for name, before in starts(session).items():
        trained = session.experiment.stage[before]
        rows = [("row", row) for row in spread(find_part(session.sets, trained.data))]
        found = compare(session, trained, f"stage.{name}", rows, last_of(trained))
        if isinstance(found, Parting):
            yield Finding(
                "warning",
                f"stage.{name} renders by {session.experiment.stage[name].rendering!r}, "
                f"stage.{before}, which it starts from, by {trained.rendering!r}",
                str(found),
                "use one rendering for both, else the second stage has to unlearn the first",
            )
    yield from idle_permissions(subject)


def of_evaluation(session: Session, stage: str, evaluation: str, found: Parting | int) -> Finding:
    """The finding on a stage and an evaluation whose renderings have different names."""
    trained, asked = names(session, stage, evaluation)
    what = f"stage.{stage} is trained by {trained!r}, evaluate.{evaluation} asks by {asked!r}"
    if not isinstance(found, Parting):
        alike = f"{found} conversations are alike token by token"
        return Finding("note", f"{what}: no difference", alike, "nothing; one name would do")
    if evaluation in allowed(session, stage):
        fix = "nothing, as the stage allows it; pages and comparisons carry the mark"
        return Finding("warning", what, str(found), fix)
    fix = f'use one rendering, or allow it: other_rendering_than = ["{evaluation}"]'
    return Finding("error", what, str(found), fix)


def idle_permissions(subject: Subject) -> Seen:
    """Evaluations that a stage allows to differ although they do not."""
    session = subject.session
    pairs = measured(session)
    for name in session.experiment.stage:
        for evaluation in allowed(session, name):
            pair = (name, evaluation)
            if pair in pairs and isinstance(parting(session, *pair), Parting):
                continue
            yield Finding(
                "note",
                f"stage.{name} allows evaluate.{evaluation} another rendering for nothing",
                "they do not part" if pair in pairs else "it measures none of its checkpoints",
                "leave the name out of other_rendering_than",
            )
