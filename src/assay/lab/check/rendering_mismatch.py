"""Checks that a stage and its evaluations render conversations alike, and that tokens round-trip.

Two renderings with one fingerprint are equal. Others are compared token by token on the rows of the
stage and the items of the evaluation. A stage that differs from its evaluation is refused, unless
it allows the evaluation's rendering by name.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

from assay.data.encoding import Codec
from assay.data.episode import Turn, tokens_of
from assay.data.renderings.qwen import is_tool_result, split_thought
from assay.data.renderings.rendering import Loss, Renderer, Tools, first_difference, spoken_of
from assay.data.renderings.template import PROBE, PROBE_TALK, RenderingError
from assay.data.row import Message, Row
from assay.errors import Finding, InputError
from assay.experiment.experiment import Experiment
from assay.experiment.stage_tables import SftStage, StageSpec
from assay.experiment.training_settings import LoraAdapt
from assay.lab.check.subject import (
    Gold,
    Number,
    Seen,
    Subject,
    on_rows,
    reading,
    share_of,
    some,
    spread,
    target_messages,
)
from assay.lab.data.prepare import find_part
from assay.lab.models.language_encoder import LanguageEncoder
from assay.lab.models.language_learner import LanguageLearner, language_model
from assay.lab.session.session import Session
from assay.models.load import untrained_rows
from assay.tasks.task import Task

Tokens = tuple[int, ...]
Turns = tuple[Turn, ...]

CHECKING = "checking renderings"
COMPARED = 64
"""Rows, and as many items, that two renderings are compared on."""
COUNTED = 16
"""Rows whose tokens are counted message by message."""


def refuse_other_renderings(session: Session) -> None:
    """Raise InputError if a stage's rendering differs from that of an evaluation of its checkpoints
    which it does not allow."""
    for stage, evaluation, (trained, benchmark), difference in partings(session, allowed=False):
        problem = f"is trained by {trained!r} and evaluate.{evaluation} asks by {benchmark!r}; "
        problem += difference
        fix = f'use one rendering, or allow it: other_rendering_than = ["{evaluation}"]'
        raise InputError(problem, field=f"stage.{stage}.rendering", fix=fix)


def partings(
    session: Session, allowed: bool = True
) -> Iterator[tuple[str, str, tuple[str, str], str]]:
    """Each stage with each evaluation of its checkpoints that renders otherwise, those that the
    stage allows among them or not: both renderings by name, and the first difference on rows and
    items."""
    experiment, learner = session.experiment, session.learner
    measured = dict.fromkeys(
        (reference.stage, name)
        for name, evaluation in experiment.evaluate.items()
        for reference in evaluation.references
        if reference.stage is not None
    )
    for stage, name in measured:
        spec, place = experiment.stage[stage], f"evaluate.{name}"
        if not allowed and name in (spec.other_rendering_than or ()):
            continue
        if difference := compare(session, spec, place, session.evaluations[name].items):
            trained, benchmark = (
                learner.encoder(x).name for x in (spec, experiment.evaluate[name])
            )
            yield stage, name, (trained, benchmark), difference


def last_of(stage: object) -> bool:
    """Whether a stage trains on the last assistant message of a row alone."""
    return not isinstance(stage, SftStage) or stage.loss_on == "last"


def compare(session: Session, stage: StageSpec, place: str, items: Sequence[Row] = ()) -> str:
    """The first difference between the rendering of a stage and that of `place`, on rows of the
    stage and on `items`, whose options the template is given there; "" where there is none."""
    table, _, name = place.partition(".")
    other = getattr(session.experiment, table)[name]
    learner, options = session.learner, [item.template_options for item in items]
    alike = learner.encoder(stage).fingerprint == learner.encoder(other).fingerprint
    rows = spread(find_part(session.sets, stage.data), COMPARED)
    conversations = [("row", row) for row in rows]
    conversations += [("item", row) for row in spread(items, COMPARED)]
    others = [row for _, row in conversations if options and row.template_options not in options]
    if alike and not others:
        return ""
    model = language_model(learner, CHECKING)
    trained, benchmark = model.encoder(stage), model.encoder(other)
    for kind, row in conversations:
        item = replace(row, template_options=options[0]) if row in others else row
        sides = (trained, row), (benchmark, item)
        difference = part_in(session.task, *sides, last_of(stage), place)
        if difference is not None:
            return f"{kind} {row.id}{difference}"
    return ""


Written = tuple[LanguageEncoder, Row]


def part_in(task: Task, one: Written, other: Written, last: bool, place: str) -> str | None:
    """The first difference in one conversation of two rows: " before message 3", or "" at its last,
    then what differs."""
    (stage, row), (evaluation, item) = one, other
    messages = conversation(task, row)
    try:
        trained, asking = stage.renderer_of(row), evaluation.renderer_of(item)
        before = contexts(trained, messages, row.tools, last)
    except RenderingError as error:
        return f": {stage.name!r} cannot write it: {error}"
    for index, training in before.items():
        at = "" if index >= len(messages) - 1 else f" before message {index + 1}"
        try:
            rollout = trained.prompt(messages[:index], row.tools)
            benchmark = asking.prompt(messages[:index], row.tools)
        except RenderingError as error:
            return f"{at}: {place} cannot write it by {asking.name!r}: {error}"
        for name, tokens in (("training", training), ("rollout", rollout)):
            if tokens != benchmark:
                return f"{at}: {told(trained.tokenizer, (name, tokens), (place, benchmark))}"
    return None


def contexts(
    renderer: Renderer, messages: Sequence[Message], tools: Tools, last: bool
) -> dict[int, Tokens]:
    """By the index of each trained assistant message: its context in training, as `Renderer.turns`
    has it; of a conversation without one its prompt. Raises RenderingError."""
    spoken = spoken_of(messages)
    if not spoken:
        return {len(messages): renderer.prompt(messages, tools)}
    turns = renderer.turns(messages, tools, "last" if last else "all")
    if last or len(turns) == len(spoken):
        trained = spoken[-1:] if last else spoken
        return {index: tokens_of(t.context) for index, t in zip(trained, turns, strict=True)}
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
    return target_messages(task, row, trained=True) or task.prompt(row)


def renderings(subject: Subject) -> Seen:
    """Checks the token round-trip of every stage's rows, and every stage against its
    evaluations."""
    for place, stage, data in reading(subject.session):
        golds = subject.golds_of_data(data, stage)
        whole = len(golds.answers) + len(golds.broken)
        if broken := [*golds.broken, *untrainable(subject, stage, golds.answers)]:
            what = f"{place}: rows cannot be rendered by {stage.rendering!r}"
            fix, why = "choose another rendering, or leave these rows out", f"; {broken[0][1]}"
            yield from on_rows("error", what, [id_ for id_, _ in broken], whole, fix, why)
        if elsewhere := [gold for gold in golds.answers if gold.trained_elsewhere]:
            turn, prompt = elsewhere[0].encode()
            sides = tokens_of(prompt), tokens_of(turn.context)
            tokenizer = language_model(subject.session.learner, CHECKING).base.tokenizer
            what = f"{place}: answers are trained after another prompt than they are sampled after"
            fix = "choose a rendering whose prompt begins its conversation"
            why = f"; {first_difference(tokenizer, *sides) or 'it is longer'}"
            yield from on_rows("error", what, [g.row.id for g in elsewhere], whole, fix, why)
        yield from reencoded(subject, place, stage, golds.answers)
    yield from differing(subject)


def untrainable(subject: Subject, stage: StageSpec, golds: Sequence[Gold]) -> list[tuple[str, str]]:
    """(id, why) of rows whose last answer can be trained, but not an earlier one that is."""
    broken: list[tuple[str, str]] = []
    encoder = subject.session.learner.encoder(stage)
    for gold in golds:
        if gold.doubtful and not last_of(stage):
            try:
                encoder.turns(gold.row, conversation(subject.session.task, gold.row), "all")
            except RenderingError as error:
                broken.append((gold.row.id, str(error)))
    return broken


def reencoded(subject: Subject, place: str, stage: StageSpec, golds: tuple[Gold, ...]) -> Seen:
    """Answers whose decoded text is tokenized differently from the trained tokens."""
    learner = language_model(subject.session.learner, CHECKING)
    base, renderer = learner.base, learner.encoder(stage).renderer
    changed: list[tuple[str, str]] = []
    for gold in golds:
        spoken = [t for t in gold.tokens if t not in base.end_tokens]
        again = [*renderer.text(gold.text)]
        if spoken != again:
            difference = first_difference(base.tokenizer, spoken, again)
            changed.append((gold.row.id, difference or "the second goes on"))
    if changed:
        what, ids = f"{place}: gold answers change on the way through text", [i for i, _ in changed]
        fix = "rewards read the decoded text: see that the tokenizer keeps spaces and rare signs"
        yield from on_rows("warning", what, ids, len(golds), fix, f"; {changed[0][1]}")


def differing(subject: Subject) -> Seen:
    """Stages whose evaluations, or whose starts, use prompts rendered differently from their
    own."""
    session = subject.session
    for stage, evaluation, (trained, benchmark), difference in partings(session):
        severity, fix = "error", f'allow it: other_rendering_than = ["{evaluation}"]'
        if evaluation in (session.experiment.stage[stage].other_rendering_than or ()):
            severity, fix = "warning", "leave it so; pages and comparisons carry the mark"
        what = (
            f"stage.{stage} is trained by {trained!r}, evaluate.{evaluation} asks by {benchmark!r}"
        )
        yield Finding(severity, what, difference, f"use one rendering, or {fix}")
    for name, stage in session.experiment.stage.items():
        if (start := stage.starts_from) is None or (before := start.stage) is None:
            continue
        below = session.experiment.stage[before]
        if difference := compare(session, below, f"stage.{name}"):
            what = f"stage.{name} renders by {stage.rendering!r}, stage.{before}, which it starts "
            what += f"from, by {below.rendering!r}"
            fix = "use one rendering for both, else the second stage has to unlearn the first"
            yield Finding("warning", what, difference, fix)


def empties_thought(renderer: Renderer) -> bool:
    """Whether an answer without reasoning is trained behind an empty think block, or behind the end
    of the one that the prompt opened. Raises RenderingError."""
    (turn,) = renderer.turns(PROBE_TALK)
    written = renderer.tokenizer.decode(list(turn.actions))
    return "</think>" in written.partition(PROBE)[0]


LITTLE = 0.5
"""Share of the assistant's tokens below which too little is trained."""


@dataclass
class Trained:
    """The conversations of an SFT stage, each read once: a long one takes many times its text."""

    name: str
    stage: SftStage
    encoder: LanguageEncoder
    task: Task
    rows: tuple[Row, ...]
    counts: Counter[str] = field(default_factory=Counter)
    """Of the assistant's `messages`, those `learned`, of these those `silent`, without reasoning;
    those `earlier` than a row's last, of these those with both calls and text, `beside`; rows whose
    results of calls come `as_user` messages."""
    ending: list[str] = field(default_factory=list)
    """Rows with an answer whose text ends with the end token's."""
    spelled: Counter[str] = field(default_factory=Counter)
    """Rows by the special tokens that their trained texts hold."""

    def __post_init__(self) -> None:
        codec, counts = Codec(self.renderer.tokenizer), self.counts
        for row in self.rows:
            messages = conversation(self.task, row)
            spoken = [messages[index] for index in spoken_of(messages)]
            learned = spoken[-1 if self.stage.loss_on == "last" else 0 :]
            texts = [f"{m.reasoning}\n{m.content}" for m in spoken if m.loss]
            counts["messages"] += len(spoken)
            counts["learned"] += len(learned)
            counts["silent"] += sum(not split_thought(m)[0].strip() for m in learned)
            counts["earlier"] += len(spoken[:-1])
            both = (m.tool_calls and split_thought(m)[1].strip() for m in spoken[:-1])
            counts["beside"] += sum(map(bool, both))
            counts["as_user"] += any(map(is_tool_result, messages))
            self.ending += [row.id] * any(text.rstrip().endswith(self.end) for text in texts)
            self.spelled.update({token for text in texts for token, _ in codec.specials(text)})

    @cached_property
    def end(self) -> str:
        """The token that ends an answer."""
        return self.renderer.tokenizer.convert_ids_to_tokens(self.renderer.end_token)

    @property
    def renderer(self) -> Renderer:
        """Of rows without template options of their own."""
        return self.encoder.renderer

    def turns(self, most: int, loss_on: Loss) -> Iterator[tuple[str, Turns]]:
        """Rows from all over that can be rendered: their id, and what is trained of them."""
        for row in spread(self.rows, most):
            with suppress(RenderingError):  # shown by `round_trip`
                turns = self.encoder.turns(row, conversation(self.task, row), loss_on)
                yield row.id, turns

    @cached_property
    def encoded(self) -> list[tuple[str, Turns]]:
        """Some rows, see `turns`."""
        return [*self.turns(COMPARED, self.stage.loss_on)]

    @property
    def tokens_trained(self) -> float:
        """The share of the assistant's tokens that are trained, of a few rows from all over."""
        if self.stage.loss_on == "all":
            return float(bool(self.encoded))
        last, whole = (
            sum(sum(turn.loss_mask) for _, turns in self.turns(COUNTED, loss_on) for turn in turns)
            for loss_on in ("last", "all")
        )
        return last / whole if whole else 0.0


def trained(subject: Subject) -> Seen:
    """Every SFT stage whose rendering works."""
    session = subject.session
    learner = language_model(session.learner, "checking what is trained")
    for name, stage in session.experiment.stage.items():
        if on_the_models_embedding(session.experiment, stage):
            yield from new_tokens(subject, learner, name, stage)
        if not isinstance(stage, SftStage):
            continue
        encoder = learner.encoder(stage)
        try:
            empties = empties_thought(encoder.renderer)
        except RenderingError as error:
            fix = "choose another rendering, or correct the chat template"
            yield Finding("error", f"stage.{name}: the rendering fails", str(error), fix)
            continue
        rows = find_part(session.sets, stage.data)
        training = Trained(name, stage, encoder, session.task, rows)
        yield from share(training)
        yield from ends(training, learner.base.end_tokens)
        yield from special_tokens(training)
        yield from thoughts_and_calls(training, empties)


def on_the_models_embedding(experiment: Experiment, stage: StageSpec) -> bool:
    """Whether a stage trains an adapter and its model's embedding is as it was loaded."""
    while isinstance(stage.adapt, LoraAdapt):
        if (start := stage.starts_from) is None or start.stage is None:
            return True
        stage = experiment.stage[start.stage]
    return False


def new_tokens(subject: Subject, learner: LanguageLearner, name: str, stage: StageSpec) -> Seen:
    """Added tokens whose embedding was never trained, in what an adapter learns from."""
    golds = subject.golds_of_data(stage.data, stage).answers
    added = learner.base.tokenizer.added_tokens_decoder
    turns = (gold.encode()[0] for gold in golds)
    read = [added.keys() & {*tokens_of(turn.context), *turn.actions} for turn in turns]
    used = sorted(set().union(*read))
    vocabulary = learner.base.config.get_text_config().vocab_size
    new = untrained_rows(learner.folder, vocabulary, used) if used else set()
    if not new:
        return
    words = [f"{added[token].content!r} ({token})" for token in sorted(new)]
    rows = sum(not new.isdisjoint(tokens) for tokens in read)
    what = f"stage.{name}: tokens with an untrained embedding, which an adapter does not train"
    told = f"{some(words)} in {share_of(rows, len(read))} rows: the row of the embedding is 0, the "
    told += "mean of the others, or that of another added token"
    fix = 'train the embedding before: a stage with adapt = { kind = "freeze", patterns = '
    fix += '["*.layers.*"] }, from which this one starts; or adapt = { kind = "full" }'
    yield Finding("warning", what, told, fix)


def share(training: Trained) -> Seen:
    """How many of the assistant's messages and tokens are trained."""
    messages, learned = training.counts["messages"], training.counts["learned"]
    if not messages:
        return
    tokens = training.tokens_trained
    yield Number(f"stage.{training.name}", "assistant_messages_trained", learned / messages)
    yield Number(f"stage.{training.name}", "assistant_tokens_trained", tokens)
    if learned == messages:
        return
    evidence = f"{tokens:.0%} of the assistant's tokens"
    if as_user := training.counts["as_user"]:
        evidence += f"; in {share_of(as_user, len(training.rows))} rows tool results come as user "
        evidence += "messages, so that every call stands in a turn of its own"
    severity = "warning" if as_user or tokens < LITTLE else "note"
    what = f"stage.{training.name}: loss_on = 'last' trains {share_of(learned, messages)} of the "
    fix = "loss_on = 'all' trains every assistant message"
    yield Finding(severity, f"{what}assistant's messages", evidence, fix)


def ends(training: Trained, stops: frozenset[int]) -> Seen:
    """Whether rows from all over the data end with a trained token at which sampling stops."""
    stops = stops | {training.renderer.end_token}
    endless = [
        id_
        for id_, turns in training.encoded
        if not all(t.loss_mask[-1] and t.actions[-1] in stops for t in turns)
    ]
    if not training.encoded:
        return
    whole = len(training.encoded)
    share = 1 - len(endless) / whole
    yield Number(f"stage.{training.name}", "rows_ending_with_end_token", share)
    token = training.end
    what = f"stage.{training.name}: rows do not end with a token that sampling stops at"
    fix = "let the template end every answer with it, or name the other token as eos_token_id in "
    fix += "generation_config.json"
    yield from on_rows("warning", what, endless, whole, fix, f"; answers end with {token!r}")
    if training.renderer.adds_end:
        what = (
            f"stage.{training.name}: the template ends no answer, so {token!r} is added and trained"
        )
        told = "the last token of each trained answer; prompts are written without it"
        yield Finding("note", what, told, "nothing; sampling stops at it")


def special_tokens(training: Trained) -> Seen:
    """Answers that spell special tokens, which are trained as ordinary text."""
    end, known = training.end, {training.end, *training.renderer.kept}
    spelled = {token: rows for token, rows in training.spelled.items() if token not in known}
    what = f"stage.{training.name}: answers end with {end!r} as text, before the token itself"
    fix = f'take it off: [data.{training.stage.data.partition(".")[0]}] cut_end = "{end}"'
    why = "; the model would learn to spell it in pieces"
    yield from on_rows("error", what, training.ending, len(training.rows), fix, why)
    if spelled:
        counts = ", ".join(f"{token!r} in {rows}" for token, rows in sorted(spelled.items()))
        kept = ", ".join(f'"{token}"' for token in sorted({*spelled, *training.renderer.kept}))
        what = f"stage.{training.name}: answers spell special tokens, trained as ordinary text"
        fix = f"keep_special = [{kept}] in the stage and its evaluations trains the tokens "
        fix += "themselves; else leave it so"
        yield Finding("warning", what, f"{counts} of {len(training.rows)} rows", fix)


def thoughts_and_calls(training: Trained, empties: bool) -> Seen:
    """Answers without reasoning, where the rendering `empties` the think block before them; text
    beside calls, which BFCL's handler leaves out once more messages follow."""
    counts, renderer = training.counts, training.renderer
    if empties and counts["silent"]:
        what = f"stage.{training.name}: answers without reasoning teach the model not to think"
        told = f"{share_of(counts['silent'], counts['learned'])} trained messages; by "
        told += f"{renderer.name!r} the think block before them is empty"
        fix = "give the answers their reasoning, train by a rendering that writes none (qwen3_fc), "
        fix += "or leave it so if a model that does not think is wanted"
        yield Finding("warning", what, told, fix)
    if renderer.name == "qwen3_fc" and counts["beside"]:
        what = f"stage.{training.name}: text next to calls is trained and then lost"
        told = f"{share_of(counts['beside'], counts['earlier'])} earlier messages have both; "
        told += "BFCL's handler keeps the calls alone in its history"
        fix = "leave the text out of such messages, or accept that later prompts miss it"
        yield Finding("warning", what, told, fix)
