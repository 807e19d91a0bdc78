"""Measures the share of tokens that a supervised stage trains, whether each row ends with a token
that sampling stops at, and what happens to reasoning.

How a rendering handles reasoning is found by rendering probes, because the text of a template
proves nothing. Whether conversations can be rendered at all is checked in `rendering_mismatch`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from assay.data.encoding import Codec
from assay.data.episode import tokens_of
from assay.data.renderings.qwen import is_tool_result, split_thought
from assay.data.renderings.rendering import Renderer
from assay.data.renderings.template import PROBE, RenderingError
from assay.data.row import Message, Row, ToolCall
from assay.errors import Finding
from assay.experiment.experiment import Experiment
from assay.experiment.stage_tables import OTHER_RUN, SftStage, StageSpec, start_of
from assay.experiment.training_settings import LoraAdapt
from assay.lab.check.rendering_mismatch import conversation, spread
from assay.lab.check.subject import Number, Seen, Subject, share_of, some
from assay.lab.setup.language_learner import LanguageEncoder, LanguageLearner, language_model
from assay.lab.setup.prepare import find_part
from assay.models.embedding_rows import untrained_rows

QUESTION = Message("user", "a")
CALL = ToolCall("f", {}, "call00001")


@dataclass(frozen=True, slots=True)
class ThinkHandling:
    """The places where a rendering writes reasoning. None: it refuses such a conversation."""

    prefilled: bool
    """The prompt ends inside an open `<think>`."""
    written: bool | None
    """The answer's own reasoning is rendered and trained."""
    empty_block: bool
    """An answer without reasoning is trained behind an empty think block, or behind the end of the
    one that the prompt opened."""
    in_step: bool | None
    """Reasoning before a call is still there when its result has come."""
    in_history: bool | None
    """Reasoning is still there after a later question."""


def think_handling(renderer: Renderer) -> ThinkHandling:
    """The handling of reasoning by a rendering with a tokenizer. Raises RenderingError as rendering
    does."""
    prompt = _text(renderer, renderer.prompt((QUESTION,)))
    (turn,) = renderer.turns((QUESTION, Message("assistant", PROBE)))
    before_answer = _text(renderer, turn.actions).partition(PROBE)[0]
    spoken = Message("assistant", "b", reasoning=PROBE)
    calling = Message("assistant", "", (CALL,), reasoning=PROBE)
    result = Message("tool", "c", (), CALL.id)
    return ThinkHandling(
        prefilled=prompt.rfind("<think>") > prompt.rfind("</think>"),
        written=_holds_probe(renderer, (QUESTION, spoken)),
        empty_block="</think>" in before_answer,
        in_step=_holds_probe(renderer, (QUESTION, calling, result)),
        in_history=_holds_probe(renderer, (QUESTION, spoken, QUESTION)),
    )


def _holds_probe(renderer: Renderer, messages: tuple[Message, ...]) -> bool | None:
    """Whether reasoning is in the text; None where the rendering refuses to write it."""
    answers = messages[-1].role == "assistant"
    try:
        tokens = renderer.conversation(messages).tokens if answers else renderer.prompt(messages)
    except RenderingError:
        return None
    return PROBE in _text(renderer, tokens)


def _text(renderer: Renderer, tokens: tuple[int, ...]) -> str:
    return renderer.tokenizer.decode(list(tokens))


LITTLE = 0.5
"""Share of the assistant's tokens below which too little is trained."""


@dataclass(frozen=True)
class Trained:
    """The conversations of an SFT stage."""

    name: str
    stage: SftStage
    encoder: LanguageEncoder
    handling: ThinkHandling
    talks: tuple[tuple[Row, tuple[Message, ...]], ...]

    @property
    def renderer(self) -> Renderer:
        """Of rows without template options of their own."""
        return self.encoder.renderer

    @property
    def learned(self) -> list[Message]:
        """The assistant messages that are trained."""
        spoken = [spoken_by(messages) for _, messages in self.talks]
        return [m for said in spoken for m in (said[-1:] if self.stage.loss_on == "last" else said)]

    @property
    def earlier(self) -> list[Message]:
        """The assistant messages that a later one of their row follows."""
        return [m for _, messages in self.talks for m in spoken_by(messages)[:-1]]


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
        renderer = encoder.renderer
        try:
            handling = think_handling(renderer)
        except RenderingError as error:
            fix = "choose another rendering, or correct the chat template"
            yield Finding("error", f"stage.{name}: the rendering fails", str(error), fix)
            continue
        rows = find_part(session.sets, stage.data)
        talks = tuple((row, conversation(session.task, row)) for row in rows)
        found = Trained(name, stage, encoder, handling, talks)
        yield from share(found)
        yield from ends(found, learner.base.end_tokens)
        yield from special_tokens(found)
        yield from empty_blocks(found)
        yield from history(found)


def on_the_models_embedding(experiment: Experiment, stage: StageSpec) -> bool:
    """Whether a stage trains an adapter and its model's embedding is as it was loaded."""
    while isinstance(stage.adapt, LoraAdapt):
        if stage.start.startswith(OTHER_RUN) or (below := start_of(stage).stage) is None:
            return True
        stage = experiment.stage[below]
    return False


def new_tokens(subject: Subject, learner: LanguageLearner, name: str, stage: StageSpec) -> Seen:
    """Added tokens whose embedding was never trained, in what an adapter learns from."""
    golds = subject.golds_of_data(stage.data, stage).answers
    read = [{*tokens_of(gold.context), *gold.actions} for gold in golds]
    added = learner.base.tokenizer.added_tokens_decoder
    used = sorted(set(added) & set().union(*read))
    vocabulary = learner.base.config.get_text_config().vocab_size
    new = untrained_rows(learner.folder, vocabulary, used) if used else set()
    if not new:
        return
    words = [f"{added[token].content!r} ({token})" for token in sorted(new)]
    rows = sum(not new.isdisjoint(tokens) for tokens in read)
    yield Finding(
        "warning",
        f"stage.{name}: tokens with an untrained embedding, which an adapter does not train",
        f"{some(words)} in {share_of(rows, len(read))} rows: the row of the embedding is 0, the "
        "mean of the others, or that of another added token",
        'train the embedding before: a stage with adapt = { kind = "freeze", patterns = '
        '["*.layers.*"] }, from which this one starts; or adapt = { kind = "full" }',
    )


def share(found: Trained) -> Seen:
    """The number of the assistant's messages and tokens that are trained."""
    messages = sum(len(spoken_by(messages)) for _, messages in found.talks)
    learned = len(found.learned)
    if not messages:
        return
    tokens = token_share(found)
    yield Number(f"stage.{found.name}", "assistant_messages_trained", learned / messages)
    yield Number(f"stage.{found.name}", "assistant_tokens_trained", tokens)
    if learned == messages:
        return
    as_user = sum(any(map(is_tool_result, messages)) for _, messages in found.talks)
    evidence = f"{tokens:.0%} of the assistant's tokens"
    if as_user:
        evidence += f"; in {share_of(as_user, len(found.talks))} rows tool results come as user "
        evidence += "messages, so that every call stands in a turn of its own"
    yield Finding(
        "warning" if as_user or tokens < LITTLE else "note",
        f"stage.{found.name}: loss_on = 'last' trains {share_of(learned, messages)} of the "
        "assistant's messages",
        evidence,
        "loss_on = 'all' trains every assistant message",
    )


def ends(found: Trained, stops: frozenset[int]) -> Seen:
    """Whether rows from all over the data end with a trained token at which sampling stops."""
    stops = stops | {found.renderer.end_token}
    last: list[tuple[str, bool]] = []
    for row, messages in spread(found.talks):
        try:
            turns = found.encoder.turns(row, messages, found.stage.loss_on)
        except RenderingError:
            continue
        last.append((row.id, all(t.loss_mask[-1] and t.actions[-1] in stops for t in turns)))
    if not last:
        return
    endless = [id_ for id_, whole in last if not whole]
    share = 1 - len(endless) / len(last)
    yield Number(f"stage.{found.name}", "rows_ending_with_end_token", share)
    token = found.renderer.tokenizer.convert_ids_to_tokens(found.renderer.end_token)
    if endless:
        yield Finding(
            "warning",
            f"stage.{found.name}: rows do not end with a token that sampling stops at",
            f"{share_of(len(endless), len(last))}: {some(endless)}; answers end with {token!r}",
            "let the template end every answer with it, or name the other token as eos_token_id in "
            "generation_config.json",
        )
    if found.renderer.adds_end:
        yield Finding(
            "note",
            f"stage.{found.name}: the template ends no answer, so {token!r} is added and trained",
            "the last token of each trained answer; prompts are written without it",
            "nothing; sampling stops at it",
        )


def token_share(found: Trained) -> float:
    """The share of the assistant's tokens that is trained, in rows from all over the data."""
    trained_tokens = all_tokens = 0
    for row, messages in spread(found.talks):
        try:
            every = found.encoder.turns(row, messages, "all")
            turns = found.encoder.turns(row, messages, found.stage.loss_on)
        except RenderingError:
            # Counted and shown by `renderings_alike`.
            continue
        all_tokens += sum(sum(turn.loss_mask) for turn in every)
        trained_tokens += sum(sum(turn.loss_mask) for turn in turns)
    return trained_tokens / all_tokens if all_tokens else 0.0


def special_tokens(found: Trained) -> Seen:
    """Answers that spell special tokens, which are trained as ordinary text."""
    codec = Codec(found.renderer.tokenizer)
    end = found.renderer.tokenizer.convert_ids_to_tokens(found.renderer.end_token)
    ending: list[str] = []
    spelled: dict[str, list[str]] = {}
    for row, messages in found.talks:
        said = [f"{m.reasoning}\n{m.content}" for m in spoken_by(messages) if m.loss]
        if any(text.rstrip().endswith(end) for text in said):
            ending.append(row.id)
        for token in {token for text in said for token, _ in codec.specials(text)}:
            if token not in (end, *found.renderer.kept):
                spelled.setdefault(token, []).append(row.id)
    if ending:
        yield Finding(
            "error",
            f"stage.{found.name}: answers end with {end!r} as text, before the token itself",
            f"{share_of(len(ending), len(found.talks))}: {some(ending)}; the model would learn to "
            "spell it in pieces",
            f'take it off: [data.{found.stage.data.partition(".")[0]}] cut_end = "{end}"',
        )
    if spelled:
        counts = ", ".join(f"{token!r} in {len(ids)}" for token, ids in sorted(spelled.items()))
        kept = ", ".join(f'"{token}"' for token in sorted({*spelled, *found.renderer.kept}))
        yield Finding(
            "warning",
            f"stage.{found.name}: answers spell special tokens, trained as ordinary text",
            f"{counts} of {len(found.talks)} rows",
            f"keep_special = [{kept}] in the stage and its evaluations trains the tokens "
            "themselves; else leave it so",
        )


def empty_blocks(found: Trained) -> Seen:
    """Answers without reasoning under a rendering that writes an empty think block for it."""
    silent = [m for m in found.learned if not split_thought(m)[0].strip()]
    if not found.handling.empty_block or not silent:
        return
    where = "closes the <think> of the prompt at once" if found.handling.prefilled else "is empty"
    yield Finding(
        "warning",
        f"stage.{found.name}: answers without reasoning teach the model not to think",
        f"{share_of(len(silent), len(found.learned))} trained messages; by "
        f"{found.renderer.name!r} the think block before them {where}",
        "give the answers their reasoning, train by a rendering that writes none (qwen3_fc), or "
        "leave it so if a model that does not think is wanted",
    )


def history(found: Trained) -> Seen:
    """Parts of earlier assistant messages that are dropped once more messages follow."""
    thoughtful = [m for m in found.earlier if split_thought(m)[0].strip()]
    if thoughtful and not found.handling.in_history:
        yield Finding(
            "note",
            f"stage.{found.name}: reasoning is left out of later prompts",
            f"{share_of(len(thoughtful), len(found.earlier))} earlier messages reason; "
            f"{found.renderer.name!r} forgets that after the next question",
            "nothing, if the benchmark's prompts forget it too",
        )
    beside = [m for m in found.earlier if m.tool_calls and split_thought(m)[1].strip()]
    if beside and found.renderer.name == "qwen3_fc":
        yield Finding(
            "warning",
            f"stage.{found.name}: text next to calls is trained and then lost",
            f"{share_of(len(beside), len(found.earlier))} earlier messages have both; BFCL's "
            "handler keeps the calls alone in its history",
            "leave the text out of such messages, or accept that later prompts miss it",
        )


def spoken_by(messages: Sequence[Message]) -> list[Message]:
    """The assistant's messages."""
    return [message for message in messages if message.role == "assistant"]
