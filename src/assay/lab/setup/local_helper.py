"""A helper model in this process: answers by the sampling engine, scores over a prefix tree.

Its weights are laid out for inference once, or used as they are where the packed path does not
compute the model. Requests of several threads that wait at the same time
are computed as one batch, one batch at a time. Nothing is trained.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, TypeVar

from assay.data.episode import tokens_of
from assay.data.renderings.rendering import Renderer
from assay.data.renderings.template import RenderingError
from assay.data.row import Message
from assay.lab.setup.language_learner import make_renderer
from assay.models.inference import InferenceModel, inference_model
from assay.models.load import load_model
from assay.models.precision import Precision
from assay.models.prefix_tree import Tokens, answer_logps
from assay.models.supported import why_plain
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.cpu.engine import sample_turns
from assay.rollout.engines.plain.plain_sampler import PlainSampler
from assay.tasks.helper_model import HelperAnswer, HelperFailed, Usage

Item = TypeVar("Item")
Found = TypeVar("Found")
Ask = tuple[Sampling, Tokens, SampleKey]


@dataclass
class _Call(Generic[Item, Found]):
    items: Sequence[Item]
    found: list[Found] | None = None
    error: BaseException | None = None


@dataclass(frozen=True)
class OneThread:
    """The thread that computes, for one caller at a time.

    Were the callers to compute themselves, each would keep its own memory and threads of the
    products: 24 of them held 6.8 GB in `assay ceiling`, and one holds 2.9.
    """

    busy: threading.Lock = field(default_factory=threading.Lock)
    thread: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, "assay-helper")
    )


class JointCalls(Generic[Item, Found]):
    """A function over lists, called from several threads: calls that wait while another is
    computed are computed together after it."""

    def __init__(self, compute: Callable[[list[Item]], list[Found]], at_work: OneThread):
        """One list at a time is computed by those that share `at_work`."""
        self._compute, self._at_work = compute, at_work
        self._waiting: list[_Call[Item, Found]] = []
        self._list = threading.Lock()

    def __call__(self, items: Sequence[Item]) -> list[Found]:
        """The results of these items, in order. Raises what computing them raises."""
        call: _Call[Item, Found] = _Call(items)
        with self._list:
            self._waiting.append(call)
        with self._at_work.busy:
            if call.found is None and call.error is None:
                self._run()
        if call.error is not None:
            raise call.error
        assert call.found is not None
        return call.found

    def _run(self) -> None:
        """Compute all calls that wait."""
        with self._list:
            calls, self._waiting = self._waiting, []
        try:
            items = [item for call in calls for item in call.items]
            found = self._at_work.thread.submit(self._compute, items).result()
        except BaseException as error:
            for call in calls:
                call.error = error
            return
        for call in calls:
            call.found, found = found[: len(call.items)], found[len(call.items) :]


class TooLong(HelperFailed):
    """More tokens than the model has positions."""


@dataclass(frozen=True)
class Weights:
    """A model's weights and tokenizer, ready to answer and to score."""

    model: InferenceModel | PlainSampler
    renderer: Renderer
    end_tokens: frozenset[int]
    fingerprint: str
    """sha256 of the weights."""
    positions: int | None
    """Tokens that the model can read at once; None where it does not say."""
    numerics: str = ""
    """The number format of its products, and its device."""


def load_weights(folder: Path, precision: Precision, rendering: str) -> Weights:
    """The model of a folder with products in `precision.compute`; the fp32 weights are let go.

    Raises what `load_model` does, and RenderingError.
    """
    loaded = load_model(folder, precision)
    config = loaded.model.config.get_text_config()
    plain = PlainSampler(loaded.model, loaded.end_tokens, precision.compute)
    return Weights(
        plain if why_plain(config) else inference_model(loaded.model, precision.compute),
        make_renderer(loaded.tokenizer, rendering),
        loaded.end_tokens,
        loaded.fingerprint,
        getattr(config, "max_position_embeddings", None),
        f"{precision.compute} {precision.device}",
    )


@dataclass(frozen=True)
class LocalHelper:
    """See `HelperModel`. Requests that are too long for the model, or that its template cannot
    render, fail by themselves; the others of a batch do not."""

    name: str
    weights: Weights
    sampling: Sampling
    usage: Usage = field(default_factory=Usage)
    _ask: JointCalls[Ask, HelperAnswer] = field(init=False, repr=False)
    _score: JointCalls[tuple[Tokens, Tokens], tuple[float, ...]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Answers and scores take turns."""
        at_work = OneThread()
        object.__setattr__(self, "_ask", JointCalls(self._answers, at_work))
        object.__setattr__(self, "_score", JointCalls(self._scores, at_work))

    @property
    def fingerprint(self) -> str:
        """The sha256 of the weights and that of the rendering."""
        return f"{self.weights.fingerprint} {self.weights.renderer.fingerprint}"

    @property
    def identity(self) -> str:
        """See `Reproducible`."""
        return f"{self.fingerprint} {self.weights.numerics}"

    def answer(
        self,
        conversations: Sequence[Sequence[Message]],
        sampling: Sampling,
        keys: Sequence[SampleKey],
    ) -> list[HelperAnswer]:
        """See `HelperModel`."""
        if sampling.stop is not None:
            sampling = replace(sampling, stop=replace(sampling.stop, decode=self._decoded))
        answers: dict[int, HelperAnswer] = {}
        asked: dict[int, Ask] = {}
        for n, (messages, key) in enumerate(zip(conversations, keys, strict=True)):
            try:
                asked[n] = sampling, self._prompt(messages, sampling.max_tokens), key
            except TooLong as failed:
                answers[n] = HelperAnswer("", failure=str(failed), too_long=True)
            except HelperFailed as failed:
                answers[n] = HelperAnswer("", failure=str(failed))
        answers |= zip(asked, self._ask([*asked.values()]) if asked else [], strict=True)
        found = [answers[n] for n in range(len(conversations))]
        self.usage.answered(found)
        return found

    def score(
        self,
        conversations: Sequence[Sequence[Message]],
        answers: Sequence[str],
        ended: bool = False,
    ) -> list[tuple[float, ...]]:
        """See `HelperModel`."""
        end = self.weights.renderer.answer_end if ended else ()
        texts = [(*self.weights.renderer.text(answer), *end) for answer in answers]
        try:
            prompts = [
                self._prompt(messages, len(text))
                for messages, text in zip(conversations, texts, strict=True)
            ]
        except HelperFailed:
            self.usage.scored(len(texts), 0, failures=1)
            raise
        return self._score([*zip(prompts, texts, strict=True)])

    def _prompt(self, messages: Sequence[Message], more: int) -> Tokens:
        """A conversation's tokens, before `more`. Raises HelperFailed."""
        try:
            prompt = self.weights.renderer.prompt(messages)
        except RenderingError as error:
            raise HelperFailed(f"{self.name}: {error}") from error
        most = self.weights.positions
        if most is not None and len(prompt) + more > most:
            problem = f"{len(prompt)} tokens and an answer of {more} are more than its {most}"
            raise TooLong(f"{self.name}: {problem}")
        return prompt

    def _answers(self, asked: list[Ask]) -> list[HelperAnswer]:
        """The answers to prompts, those with the same settings as one batch."""
        found: dict[int, HelperAnswer] = {}
        for sampling in dict.fromkeys(each[0] for each in asked):
            places = [n for n, each in enumerate(asked) if each[0] == sampling]
            prompts, keys = [asked[n][1] for n in places], [asked[n][2] for n in places]
            weights = self.weights
            if isinstance(weights.model, PlainSampler):
                turns = weights.model.sample(prompts, keys, sampling)
            else:
                turns, _ = sample_turns(weights.model, prompts, keys, sampling, weights.end_tokens)
            for n, turn in zip(places, turns, strict=True):
                text = self._decoded(turn.actions)
                text = text if sampling.stop is None else sampling.stop.cut(text)
                counts = len(tokens_of(turn.context)), len(turn.actions)
                found[n] = HelperAnswer(text, turn.ended, *counts)
        return [found[n] for n in range(len(asked))]

    def _decoded(self, tokens: Sequence[int]) -> str:
        kept = [token for token in tokens if token not in self.weights.end_tokens]
        return self.weights.renderer.tokenizer.decode(kept, skip_special_tokens=False)

    def _scores(self, asked: list[tuple[Tokens, Tokens]]) -> list[tuple[float, ...]]:
        prompts, answers = [prompt for prompt, _ in asked], [answer for _, answer in asked]
        model = self.weights.model
        if isinstance(model, PlainSampler):
            self.usage.scored(len(asked), sum(len(prompt) + len(text) for prompt, text in asked))
            return model.score(prompts, answers)
        scored = answer_logps(model, prompts, answers)
        self.usage.scored(len(asked), scored.computed)
        return scored.logps
