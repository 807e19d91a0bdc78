"""A helper model in this process: answers by the sampling engine, scores over a prefix tree.

Its weights are laid out for inference once, or used as they are where the packed path does not
compute the model. Requests of several threads that wait at the same time are computed as one batch,
one batch at a time. Nothing is trained.
"""

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from assay.data.episode import tokens_of
from assay.data.message_parts import images_in, picture_of, unreadable
from assay.data.renderings.image_prompts import ImageRenderer
from assay.data.renderings.rendering import Renderer
from assay.data.renderings.template import RenderingError
from assay.data.row import ImagePart, Message
from assay.errors import InputError
from assay.lab.models.language_learner import make_renderer
from assay.models.inference import InferenceModel, inference_model
from assay.models.load import load_model
from assay.models.matmul import widened
from assay.models.precision import Precision
from assay.models.prefix_tree import Tokens, answer_hidden, answer_logps
from assay.models.supported import why_plain
from assay.models.vision_language import (
    ReadImage,
    Reading,
    Rows,
    VisionLanguage,
    image_features,
    prefill,
    read_picture,
    reading,
)
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.cpu.sampler import sample_turns
from assay.rollout.engines.plain_sampler import PlainSampler, drawn_tokens, stopped
from assay.rollout.token_choice import key_states
from assay.tasks.helper_model import (
    HelperAnswer,
    HelperFailed,
    NextWords,
    Question,
    Score,
    Scores,
)

Item = TypeVar("Item")
Result = TypeVar("Result")
PromptT = TypeVar("PromptT")


class JointCalls(Generic[Item, Result]):
    """A function over lists, called from several threads: calls that wait while another is
    computed are computed together after it.

    Were the callers to compute themselves, each would keep its own memory and threads of the
    products: 24 of them held 6.8 GB over all arms, and one thread holds 2.9.
    """

    def __init__(
        self,
        compute: Callable[[list[Item]], list[Result]],
        busy: threading.Lock,
        thread: ThreadPoolExecutor,
    ):
        """One list at a time is computed by those that share a lock and a thread."""
        self._compute, self._busy, self._thread = compute, busy, thread
        self._waiting: list[tuple[Sequence[Item], Future[list[Result]]]] = []
        self._list = threading.Lock()

    def __call__(self, items: Sequence[Item]) -> list[Result]:
        """The results of these items, in order. Raises what computing them raises."""
        future: Future[list[Result]] = Future()
        with self._list:
            self._waiting.append((items, future))
        with self._busy:
            if not future.done():
                self._run()
        return future.result()

    def _run(self) -> None:
        """Compute all calls that wait."""
        with self._list:
            calls, self._waiting = self._waiting, []
        try:
            every = [item for items, _ in calls for item in items]
            results = iter(self._thread.submit(self._compute, every).result())
        except BaseException as error:
            for _, future in calls:
                future.set_exception(error)
            return
        for items, future in calls:
            future.set_result([*islice(results, len(items))])


def too_long(name: str, problem: str) -> HelperFailed:
    """That there are more tokens than the model has positions."""
    failed = HelperFailed(f"{name}: {problem}")
    failed.too_long = True
    return failed


class InProcess(ABC, Generic[PromptT]):
    """See `Model`. Requests that are too long for the model, or that its template cannot render,
    fail by themselves; the others of a batch do not."""

    def __init__(self, name: str, renderer: Renderer | ImageRenderer, end_tokens: frozenset[int]):
        """Answers and scores take turns."""
        self.name, self.renderer, self.end_tokens = name, renderer, end_tokens
        shared = threading.Lock(), ThreadPoolExecutor(1, "assay-helper")
        self._answer = JointCalls(self._answers, *shared)
        self._score = JointCalls(self._scores, *shared)

    @abstractmethod
    def prompt(self, messages: Sequence[Message], more: int) -> PromptT:
        """A conversation before `more` tokens. Raises HelperFailed."""

    @abstractmethod
    def answers(
        self, prompts: Sequence[PromptT], keys: Sequence[SampleKey], sampling: Sampling
    ) -> list[HelperAnswer]:
        """The answers to prompts."""

    @abstractmethod
    def scores(self, prompts: Sequence[PromptT], answers: Sequence[Tokens]) -> Scores:
        """The log-probabilities of answers."""

    def read(self, contexts: Sequence[Tokens], answers: Sequence[Tokens]) -> NextWords:
        """See `Model`."""
        problem = "a model that reads images tells no distribution over words"
        raise InputError(problem, field=f"model.{self.name}.source", fix="name one that reads text")

    def answer(self, batch: Sequence[Question]) -> list[HelperAnswer]:
        """See `Model`."""
        answers: dict[int, HelperAnswer] = {}
        prompts: dict[int, tuple[Sampling, PromptT, SampleKey]] = {}
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
                answers[n] = HelperAnswer("", failure=str(failed), too_long=failed.too_long)
        answers |= zip(prompts, self._answer([*prompts.values()]) if prompts else [], strict=True)
        return [question.call.ended(answers[n]) for n, question in enumerate(batch)]

    def _answers(self, calls: list[tuple[Sampling, PromptT, SampleKey]]) -> list[HelperAnswer]:
        """The answers to prompts, those with the same settings as one batch."""
        answers: dict[int, HelperAnswer] = {}
        for sampling in dict.fromkeys(each[0] for each in calls):
            places = [n for n, each in enumerate(calls) if each[0] == sampling]
            prompts, keys = [calls[n][1] for n in places], [calls[n][2] for n in places]
            answers |= zip(places, self.answers(prompts, keys, sampling), strict=True)
        return [answers[n] for n in range(len(calls))]

    def score(self, batch: Sequence[Score]) -> Scores:
        """See `Model`."""
        pairs = []
        for each in batch:
            end = self.renderer.answer_end if each.ended else ()
            text = (*self.renderer.text(each.answer), *end)
            pairs.append((self.prompt(each.messages, len(text)), text))
        scored = self._score(pairs)
        return Scores([logps for logps, _ in scored], sum(tokens for _, tokens in scored))

    def _scores(self, pairs: list[tuple[PromptT, Tokens]]) -> list[tuple[tuple[float, ...], int]]:
        """Log-probabilities; the tokens that were read for all stand with the first."""
        scores = self.scores([prompt for prompt, _ in pairs], [answer for _, answer in pairs])
        tokens = [scores.tokens, *[0] * (len(pairs) - 1)]
        return [*zip(scores.logps, tokens, strict=True)]

    def decoded(self, tokens: Sequence[int]) -> str:
        """The text of an answer, without its end."""
        kept = [token for token in tokens if token not in self.end_tokens]
        return self.renderer.tokenizer.decode(kept, skip_special_tokens=False)

    def text(self, tokens: Sequence[int], sampling: Sampling) -> str:
        """The same, cut before a stop string."""
        whole = self.decoded(tokens)
        return whole if sampling.stop is None else sampling.stop.cut(whole)


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
    Raises what `load_model` does, and RenderingError."""
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
            raise too_long(self.name, problem)
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
        return [
            HelperAnswer(
                self.text(turn.actions, sampling),
                turn.ended,
                len(tokens_of(turn.context)),
                len(turn.actions),
            )
            for turn in turns
        ]

    def scores(self, prompts: Sequence[Tokens], answers: Sequence[Tokens]) -> Scores:
        """See `InProcess`."""
        model = self.weights.model
        if isinstance(model, PlainSampler):
            return Scores(model.score(prompts, answers), sum(map(len, [*prompts, *answers])))
        scored = answer_logps(model, prompts, answers)
        return Scores(scored.logps, scored.computed)

    def read(self, contexts: Sequence[Tokens], answers: Sequence[Tokens]) -> NextWords:
        """See `Model`; the head's scores are made where they are read."""
        longest = max(len(c) + len(a) for c, a in zip(contexts, answers, strict=True))
        most = self.weights.positions
        if most is not None and longest > most:
            raise too_long(self.name, f"{longest} tokens are more than its {most}")
        model = self.weights.model
        assert not isinstance(model, PlainSampler), "refused by `teacher.check_teacher`"
        hidden_SD, computed = answer_hidden(model, contexts, answers)
        return NextWords(computed, hidden_SD, model.words, len(model.embedding_VD))


FEATURE_BYTES = 256 << 20
"""What the vision model made of images, kept for later prompts."""


@dataclass(frozen=True)
class Prompt:
    """The tokens of a conversation, and its images."""

    tokens: Tokens
    images: tuple[ReadImage, ...]


@dataclass
class KeptImages:
    """Images by sha256 as the model takes them, the least recently used first."""

    loaded: VisionLanguage
    read: OrderedDict[str, tuple[ReadImage, Tensor | None]] = field(default_factory=OrderedDict)
    computed: int = 0
    """Images that went through the vision model so far."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def image(self, part: ImagePart) -> ReadImage:
        """Raises DataError for an image that cannot be read."""
        with self._lock:
            if part.sha256 not in self.read:
                self.read[part.sha256] = self._read(part), None
            self.read.move_to_end(part.sha256)
            return self.read[part.sha256][0]

    def _read(self, part: ImagePart) -> ReadImage:
        picture = picture_of(part)
        try:
            return read_picture(self.loaded, part.sha256, picture)
        except InputError as error:
            raise unreadable(part, error) from error

    def features(self, image: ReadImage) -> Tensor:
        """What stands for the image's tokens (I, D)."""
        with self._lock:
            features_ID = self.read.get(image.sha256, (image, None))[1]
            if features_ID is None:
                features_ID = image_features(self.loaded, image)
                self.computed += 1
                self.read[image.sha256] = image, features_ID
                held = sum(kept.nbytes for _, kept in self.read.values() if kept is not None)
                while held > FEATURE_BYTES and len(self.read) > 1:
                    _, (_, kept) = self.read.popitem(last=False)
                    held -= 0 if kept is None else kept.nbytes
            return features_ID


class VisionHelper(InProcess[Prompt]):
    """A model that reads images beside text; an image that cannot be read stops the run and names
    its row."""

    identity = ""

    def __init__(self, name: str, loaded: VisionLanguage):
        """Nothing of an image is kept yet."""
        super().__init__(name, loaded.renderer, loaded.end_tokens)
        self.loaded, self.images = loaded, KeptImages(loaded)

    @property
    def fingerprint(self) -> str:
        """The sha256 of the weights, and that of chat template and image processor."""
        return self.loaded.fingerprint

    def prompt(self, messages: Sequence[Message], more: int) -> Prompt:
        """See `InProcess`. Raises DataError."""
        images = tuple(self.images.image(part) for part in images_in(messages))
        try:
            tokens = self.loaded.renderer.prompt(messages, [image.written for image in images])
        except RenderingError as error:
            raise HelperFailed(f"{self.name}: {error}") from error
        most = self.loaded.longest
        if most is not None and len(tokens) + more > most:
            shown = f"{sum(image.tokens for image in images)} of {len(images)} images"
            problem = f"{len(tokens)} tokens ({shown}) and an answer of {more} are more than"
            raise HelperFailed(f"{self.name}: {problem} its {most}")
        return Prompt(tokens, images)

    def _reading(self, prompt: Prompt, answer: Tokens = ()) -> Reading:
        features = [self.images.features(image) for image in prompt.images]
        tokens = prompt.tokens + answer
        return reading(self.loaded, tokens, prompt.images, features, len(prompt.tokens) - 1)

    def answers(
        self, prompts: Sequence[Prompt], keys: Sequence[SampleKey], sampling: Sampling
    ) -> list[HelperAnswer]:
        """See `InProcess`; equal prompts are read once."""
        members: dict[Prompt, list[int]] = {}
        for n, prompt in enumerate(prompts):
            members.setdefault(prompt, []).append(n)
        read = [*members]
        written: dict[int, HelperAnswer] = {}
        for batch, reached in prefill(self.loaded, [self._reading(each) for each in read]):
            owners = [(n, row) for s, row in reached.done for n in members[read[batch[s]]]]
            if not owners:
                continue
            rows = reached.rows.chosen([row for _, row in owners])
            logits_RV = reached.logits_RKV[[row for _, row in owners], -1]
            if sampling.beams > 1:
                for (n, _), row in zip(owners, range(len(owners)), strict=True):
                    one = rows.chosen([row])
                    best = best_beam(one, logits_RV[row], sampling, self.loaded.end_tokens)
                    written[n] = self._written(prompts[n], best, sampling)
                continue
            states_R = key_states([keys[n] for n, _ in owners])
            actions = decoded(rows, logits_RV, states_R, sampling, self.loaded.end_tokens)
            for (n, _), each in zip(owners, actions, strict=True):
                written[n] = self._written(prompts[n], each, sampling)
        return [written[n] for n in range(len(prompts))]

    def _written(self, prompt: Prompt, actions: list[int], sampling: Sampling) -> HelperAnswer:
        text = self.text(actions, sampling)
        ended = "stop" if stopped(actions, self.loaded.end_tokens, sampling.stop) else "length"
        return HelperAnswer(text, ended, len(prompt.tokens), len(actions))

    def scores(self, prompts: Sequence[Prompt], answers: Sequence[Tokens]) -> Scores:
        """See `InProcess`; the last token of an answer is predicted, never read."""
        pairs = [*zip(prompts, answers, strict=True)]
        members: dict[tuple[Prompt, Tokens], list[int]] = {}
        for n, (prompt, answer) in enumerate(pairs):
            if answer:
                members.setdefault((prompt, answer[:-1]), []).append(n)
        read = [*members]
        logps: list[list[float]] = [[] for _ in pairs]
        computed = 0
        for batch, reached in prefill(self.loaded, [self._reading(*each) for each in read]):
            computed += reached.computed
            for row, piece in enumerate(reached.pieces):
                logps_KV = widened(reached.logits_RKV[row]).log_softmax(dim=-1)
                sequences = range(piece.first, piece.stop)
                for n in (n for s in sequences for n in members[read[batch[s]]]):
                    prompt, answer = pairs[n]
                    begin = len(prompt.tokens) - 1
                    for place in range(max(piece.start, begin), piece.end):
                        logp = logps_KV[place - piece.end, answer[place - begin]]
                        logps[n].append(float(logp))
        return Scores([tuple(each) for each in logps], computed)


def decoded(
    rows: Rows,
    logits_RV: Tensor,
    states_R: np.ndarray,
    sampling: Sampling,
    end_tokens: frozenset[int],
) -> list[list[int]]:
    """The tokens that continue each row, up to an end token, a stop string or `max_tokens`."""
    written: list[list[int]] = [[] for _ in states_R]
    live = list(range(len(written)))
    for place in range(sampling.max_tokens):
        at_R = np.full(len(live), place)
        token_R, *_ = drawn_tokens(logits_RV, states_R[live], at_R, sampling)
        for n, token in zip(live, token_R.tolist(), strict=True):
            written[n].append(token)
        going = [
            row for row, n in enumerate(live) if not stopped(written[n], end_tokens, sampling.stop)
        ]
        if not going or place + 1 == sampling.max_tokens:
            break
        if len(going) < len(live):
            rows, live = rows.chosen(going), [live[row] for row in going]
            token_R = token_R[going]
        logits_RV = rows.feed(token_R.to(torch.long))
    return written


def best_beam(
    rows: Rows, logits_V: Tensor, sampling: Sampling, end_tokens: frozenset[int]
) -> list[int]:
    """The likeliest continuation that a search of `sampling.beams` finds: sums of log-probs, no
    penalty for length, as Transformers' `num_beams` with `length_penalty = 0`.

    Of twice as many candidates at each step the unended ones live on; those among the first
    `beams` that end, or are cut at `max_tokens`, are answers.
    """
    width, last = sampling.beams, sampling.max_tokens - 1
    beams: list[tuple[float, list[int]]] = [(0.0, [])]
    ended: list[tuple[float, list[int]]] = []
    logits_BV = logits_V[None]
    for place in range(sampling.max_tokens):
        sums_B = torch.tensor([total for total, _ in beams], device=logits_BV.device)
        totals_BV = sums_B[:, None] + widened(logits_BV).log_softmax(-1)
        count = min((1 + max(1, len(end_tokens))) * width, totals_BV.numel())
        best = totals_BV.reshape(-1).topk(count)
        living: list[tuple[int, float, list[int]]] = []
        for rank, (total, at) in enumerate(zip(*map(Tensor.tolist, best), strict=True)):
            parent, token = divmod(at, totals_BV.shape[1])
            written = [*beams[parent][1], token]
            if token in end_tokens or place == last:
                ended += [(total, written)] if rank < width else []
            elif len(living) < width:
                living.append((parent, total, written))
        ended = sorted(ended, key=lambda each: -each[0])[:width]
        if not living or (len(ended) == width and living[0][1] <= ended[-1][0]):
            break
        beams = [(total, written) for _, total, written in living]
        rows = rows.chosen([parent for parent, _, _ in living])
        logits_BV = rows.feed(torch.tensor([written[-1] for _, written in beams]))
    return ended[0][1]
