"""A helper model in this process: answers by the sampling engine, scores over a prefix tree.

Its weights are laid out for inference once, or used as they are where the packed path does not
compute the model. Requests of several threads that wait at the same time are computed as one batch,
one batch at a time. Nothing is trained.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, TypeVar

from assay.data.episode import tokens_of
from assay.data.renderings.image_prompts import ImageRenderer
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
from assay.tasks.helper_model import HelperAnswer, HelperFailed, Question, Score, Scores

Item = TypeVar("Item")
Result = TypeVar("Result")
Prompt = TypeVar("Prompt")


@dataclass
class _Call(Generic[Item, Result]):
    items: Sequence[Item]
    results: list[Result] | None = None
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


class JointCalls(Generic[Item, Result]):
    """A function over lists, called from several threads: calls that wait while another is
    computed are computed together after it."""

    def __init__(self, compute: Callable[[list[Item]], list[Result]], at_work: OneThread):
        """One list at a time is computed by those that share `at_work`."""
        self._compute, self._at_work = compute, at_work
        self._waiting: list[_Call[Item, Result]] = []
        self._list = threading.Lock()

    def __call__(self, items: Sequence[Item]) -> list[Result]:
        """The results of these items, in order. Raises what computing them raises."""
        call: _Call[Item, Result] = _Call(items)
        with self._list:
            self._waiting.append(call)
        with self._at_work.busy:
            if call.results is None and call.error is None:
                self._run()
        if call.error is not None:
            raise call.error
        assert call.results is not None
        return call.results

    def _run(self) -> None:
        """Compute all calls that wait."""
        with self._list:
            calls, self._waiting = self._waiting, []
        try:
            items = [item for call in calls for item in call.items]
            results = self._at_work.thread.submit(self._compute, items).result()
        except BaseException as error:
            for call in calls:
                call.error = error
            return
        for call in calls:
            call.results, results = results[: len(call.items)], results[len(call.items) :]


class TooLong(HelperFailed):
    """More tokens than the model has positions."""


class InProcess(ABC, Generic[Prompt]):
    """See `Model`. Requests that are too long for the model, or that its template cannot render,
    fail by themselves; the others of a batch do not."""

    def __init__(self, name: str, renderer: Renderer | ImageRenderer, end_tokens: frozenset[int]):
        """Answers and scores take turns."""
        self.name, self.renderer, self.end_tokens = name, renderer, end_tokens
        at_work = OneThread()
        self._answer = JointCalls(self._answers, at_work)
        self._score = JointCalls(self._scores, at_work)

    @abstractmethod
    def prompt(self, messages: Sequence[Message], more: int) -> Prompt:
        """A conversation before `more` tokens. Raises HelperFailed."""

    @abstractmethod
    def answers(
        self, prompts: Sequence[Prompt], keys: Sequence[SampleKey], sampling: Sampling
    ) -> list[HelperAnswer]:
        """The answers to prompts."""

    @abstractmethod
    def scores(self, prompts: Sequence[Prompt], answers: Sequence[Tokens]) -> Scores:
        """The log-probabilities of answers."""

    def ask(self, batch: Sequence[Question]) -> list[HelperAnswer]:
        """See `Model`."""
        answers: dict[int, HelperAnswer] = {}
        prompts: dict[int, tuple[Sampling, Prompt, SampleKey]] = {}
        for question in batch:
            question.call.attempt()
        for n, question in enumerate(batch):
            sampling = question.sampling
            if sampling.stop is not None:
                sampling = replace(sampling, stop=replace(sampling.stop, decode=self.decoded))
            try:
                prompt = self.prompt(question.messages, sampling.max_tokens)
                prompts[n] = sampling, prompt, question.key
            except HelperFailed as failed:
                too_long = isinstance(failed, TooLong)
                answers[n] = HelperAnswer("", failure=str(failed), too_long=too_long)
        answers |= zip(prompts, self._answer([*prompts.values()]) if prompts else [], strict=True)
        return [question.call.ended(answers[n]) for n, question in enumerate(batch)]

    def _answers(self, asked: list[tuple[Sampling, Prompt, SampleKey]]) -> list[HelperAnswer]:
        """The answers to prompts, those with the same settings as one batch."""
        answers: dict[int, HelperAnswer] = {}
        for sampling in dict.fromkeys(each[0] for each in asked):
            places = [n for n, each in enumerate(asked) if each[0] == sampling]
            prompts, keys = [asked[n][1] for n in places], [asked[n][2] for n in places]
            answers |= zip(places, self.answers(prompts, keys, sampling), strict=True)
        return [answers[n] for n in range(len(asked))]

    def score(self, batch: Sequence[Score]) -> Scores:
        """See `Model`."""
        asked = []
        for each in batch:
            end = self.renderer.answer_end if each.ended else ()
            text = (*self.renderer.text(each.answer), *end)
            asked.append((self.prompt(each.messages, len(text)), text))
        scored = self._score(asked)
        return Scores([logps for logps, _ in scored], sum(tokens for _, tokens in scored))

    def _scores(self, asked: list[tuple[Prompt, Tokens]]) -> list[tuple[tuple[float, ...], int]]:
        """Log-probabilities; the tokens that were read for all stand with the first."""
        scores = self.scores([prompt for prompt, _ in asked], [answer for _, answer in asked])
        tokens = [scores.tokens, *[0] * (len(asked) - 1)]
        return [*zip(scores.logps, tokens, strict=True)]

    def decoded(self, tokens: Sequence[int]) -> str:
        """The text of an answer, without its end."""
        kept = [token for token in tokens if token not in self.end_tokens]
        return self.renderer.tokenizer.decode(kept, skip_special_tokens=False)


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


class LocalHelper(InProcess[Tokens]):
    """A model that reads text."""

    def __init__(self, name: str, weights: Weights):
        """The weights are shared."""
        super().__init__(name, weights.renderer, weights.end_tokens)
        self.weights = weights

    @property
    def fingerprint(self) -> str:
        """The sha256 of the weights and that of the rendering."""
        return f"{self.weights.fingerprint} {self.weights.renderer.fingerprint}"

    @property
    def identity(self) -> str:
        """See `Model`."""
        return f"{self.fingerprint} {self.weights.numerics}"

    def prompt(self, messages: Sequence[Message], more: int) -> Tokens:
        """See `InProcess`."""
        try:
            prompt = self.weights.renderer.prompt(messages)
        except RenderingError as error:
            raise HelperFailed(f"{self.name}: {error}") from error
        most = self.weights.positions
        if most is not None and len(prompt) + more > most:
            problem = f"{len(prompt)} tokens and an answer of {more} are more than its {most}"
            raise TooLong(f"{self.name}: {problem}")
        return prompt

    def answers(
        self, prompts: Sequence[Tokens], keys: Sequence[SampleKey], sampling: Sampling
    ) -> list[HelperAnswer]:
        """See `InProcess`."""
        model = self.weights.model
        if isinstance(model, PlainSampler):
            turns = model.sample(prompts, keys, sampling)
        else:
            turns, _ = sample_turns(model, prompts, keys, sampling, self.end_tokens)
        answers = []
        for turn in turns:
            text = self.decoded(turn.actions)
            text = text if sampling.stop is None else sampling.stop.cut(text)
            counts = len(tokens_of(turn.context)), len(turn.actions)
            answers.append(HelperAnswer(text, turn.ended, *counts))
        return answers

    def scores(self, prompts: Sequence[Tokens], answers: Sequence[Tokens]) -> Scores:
        """See `InProcess`."""
        model = self.weights.model
        if isinstance(model, PlainSampler):
            return Scores(model.score(prompts, answers), sum(map(len, [*prompts, *answers])))
        scored = answer_logps(model, prompts, answers)
        return Scores(scored.logps, scored.computed)
