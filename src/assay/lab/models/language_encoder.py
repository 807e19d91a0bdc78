"""Rows as token ids: the `Encoder` of a language model, on all cores where rows take long."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from multiprocessing import get_context
from typing import Any, TypeVar

from assay.agents.task import AgentEpisode
from assay.data.episode import Context, Turn, tokens_of
from assay.data.files import canonical_json
from assay.data.renderings.packed_rows import Packed, close_store, prepared
from assay.data.renderings.rendering import Loss, RenderedConversation, Renderer
from assay.data.renderings.template import RenderingError, with_options
from assay.data.row import Message, Row
from assay.errors import InputError
from assay.lab.monitor.observer import Observer
from assay.rl.policy import Stop
from assay.rl.thought import CLOSING, OPENING, Thinking
from assay.sandbox.call_process import PR_SET_PDEATHSIG, process_control
from assay.tasks.rendered_dialogue import RenderedDialogue
from assay.tasks.task import Asked, Dialogue

Value = TypeVar("Value")

RENDERING = "rows written as tokens"
ALONE = 1.0
"""Seconds from which on a rendering takes long."""
TOGETHER = 16
"""Rows that a process renders before it tells."""
_WORK: list[Callable[[int], Any]] = []
"""What forked processes do."""


def on_all_cores(work: Callable[[int], Any], places: range, cores: int) -> Iterator[Any]:
    """What `work` gives for each place, in order, by forked processes. It ends early where one was
    killed: the caller does the rest."""
    close_store()  # no connection may be forked
    # Whoever forks says so to the tokenizers' library; its texts come one at a time.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    _WORK[:] = [work]
    with (
        suppress(BrokenProcessPool),
        ProcessPoolExecutor(cores, get_context("fork"), _begin) as pool,
    ):
        yield from pool.map(_work, places, chunksize=TOGETHER)


def _begin() -> None:
    process_control(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _work(place: int) -> Any:
    return _WORK[0](place)


@dataclass(frozen=True)
class LanguageEncoder:
    """See `lab.models.learner.Encoder`; contexts are token ids, actions tokens."""

    renderer: Renderer
    end_tokens: frozenset[int]
    stop: Stop | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """What every row gives the chat template; a row may give more."""
    _by_options: dict[str, Renderer] = field(default_factory=dict, repr=False)
    _written: dict[bytes, Packed] = field(default_factory=dict, repr=False)
    """What is rendered: lengths, checks, fingerprints and stages read the same tokens."""
    _ids: dict[int, int] = field(default_factory=dict, repr=False)
    """One object for each token id of prompts, which stages and evaluations hold all at once."""

    def stopping_at(self, strings: tuple[str, ...]) -> "LanguageEncoder":
        """See `Encoder`."""
        return replace(self, stop=Stop(strings, replace(self, stop=None).decode))

    @property
    def name(self) -> str:
        """The rendering's name, with `auto` resolved."""
        return self.renderer.name

    @property
    def fingerprint(self) -> str:
        """The rendering's fingerprint."""
        return self.renderer.fingerprint

    @property
    def maker(self) -> Any:
        """All that tokens depend on beside the row and code; None where that is not known."""
        more = dict(self.options), self.stop and self.stop.strings
        return [self.renderer.maker, *more] if self.renderer.maker else None

    @property
    def thinking(self) -> Thinking:
        """The marks of chains of thought in this tokenizer's text."""
        added = self.renderer.tokenizer.added_tokens_decoder.items()
        tags = (OPENING, CLOSING)
        control = frozenset(id_ for id_, t in added if t.special and t.content not in tags)
        return Thinking(replace(self, stop=None).decode, control)

    def prompt(self, row: Row, question: Asked) -> tuple[int, ...]:
        """The rendered conversation with its generation prompt. Raises RenderingError."""
        with naming(row):
            asked = question.messages, question.tools
            made = prepared(self.renderer_of(row), *asked, True, self._written)
        return tuple(map(self._ids.setdefault, made.tokens, made.tokens))

    def turns(self, row: Row, messages: Sequence[Message], loss_on: Loss) -> tuple[Turn, ...]:
        """See `Renderer.turns`. Raises RenderingError."""
        with naming(row):
            whole = self.conversation(row, messages)
            return self.renderer_of(row).turns(messages, row.tools, loss_on, whole)

    def conversation(self, row: Row, messages: Sequence[Message]) -> RenderedConversation:
        """See `Renderer.conversation`. Raises RenderingError."""
        return prepared(self.renderer_of(row), messages, row.tools, False, self._written)

    def doubtful(self, row: Row, messages: Sequence[Message]) -> bool:
        """Whether an earlier answer of a conversation may be one that cannot be trained. Raises
        RenderingError."""
        return bool(self.conversation(row, messages).doubtful)

    def ahead(
        self, rows: Sequence[Row], encode: Callable[[Row], Value], observer: Observer
    ) -> Iterator[Value]:
        """What `encode` makes of each row: on all cores where one takes long. What it raises is
        raised in the row's place."""
        begun, cores = time.monotonic(), len(os.sched_getaffinity(0))

        def work(place: int) -> tuple[list[Value], list[tuple[bytes, Packed]]]:
            before = len(self._written)
            try:
                values = [encode(rows[place])]
            except InputError:
                values = []
            return values, [*islice(reversed(self._written.items()), len(self._written) - before)]

        made: Iterator[tuple[list[Value], list[tuple[bytes, Packed]]]] = iter(())
        for done, row in enumerate(rows):
            seconds = time.monotonic() - begun
            if cores > 1 and seconds > ALONE and seconds * (len(rows) - done) > ALONE * done:
                made, cores = on_all_cores(work, range(done, len(rows)), cores), 1
            values, written = next(made, ([], ()))
            self._written.update(written)
            yield values[0] if values else encode(row)
            observer.work(RENDERING, done + 1, len(rows))

    def renderer_of(self, row: Row) -> Renderer:
        """The renderer with the template options of a row. Raises RenderingError where those of the
        table are others."""
        more = {k: v for k, v in row.template_options.items() if k not in self.options}
        for name in row.template_options.keys() & self.options.keys():
            if row.template_options[name] != self.options[name]:
                problem = f"{name} is {row.template_options[name]!r} in the row or its data set, "
                problem += f"{self.options[name]!r} here"
                raise RenderingError(problem, field="template_options", fix="say it in one place")
        if more and not self.renderer.reads_template:
            raise no_options(self.name, f"the row's {next(iter(more))}")
        key = canonical_json(more)
        if key not in self._by_options:
            tokenizer = with_options(self.renderer.tokenizer, more, strict=False)
            self._by_options[key] = replace(self.renderer, tokenizer=tokenizer)
        return self._by_options[key] if more else self.renderer

    def environment(self, row: Row, dialogue: Dialogue) -> RenderedDialogue | AgentEpisode:
        """The dialogue in tokens."""
        if isinstance(dialogue, AgentEpisode):
            return dialogue.in_tokens(self.renderer_of(row), self.decode)
        return RenderedDialogue(dialogue, self.renderer_of(row), self.decode)

    def decode(self, actions: Sequence[int]) -> str:
        """The text without end tokens, cut before a stop string, everything else kept."""
        kept = [token for token in actions if token not in self.end_tokens]
        text = self.renderer.tokenizer.decode(kept, skip_special_tokens=False)
        return text if self.stop is None else self.stop.cut(text)

    def size(self, context: Context) -> int:
        """Its token count."""
        return len(tokens_of(context))

    def plain(self, context: Context) -> list[int]:
        """Its token ids."""
        return list(tokens_of(context))

    def text(self, context: Context) -> str:
        """The prompt, control tokens included."""
        return self.renderer.tokenizer.decode(tokens_of(context), skip_special_tokens=False)


@contextmanager
def naming(row: Row) -> Iterator[None]:
    """Inside, a RenderingError says which row it is about."""
    try:
        yield
    except RenderingError as error:
        problem = f"row {row.id}: {error.problem}"
        file = row.origin or None
        InputError.__init__(error, problem, file=file, field=error.field, fix=error.fix)
        raise


def no_options(name: str, option: str) -> RenderingError:
    """The error of template options for a rendering that reads no template."""
    problem = f"{name!r} reads no template, and so not {option}"
    return RenderingError(problem, field="template_options", fix="use rendering = 'template'")
