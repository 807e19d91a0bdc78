"""A helper model in this process that reads images beside text: answers, and scores of answers.

Prompts are computed by `models.shared_prefill`: what the selections of a query begin with alike,
images included, goes through the layers once in a batch. What the vision model makes of an image is
kept for later prompts. Requests of several threads are joined as in `local_helper`. Nothing is
trained.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from assay.data.pictures import images_in, picture_of, unreadable
from assay.data.renderings.template import RenderingError
from assay.data.row import ImagePart, Message
from assay.errors import InputError
from assay.lab.setup.local_helper import InProcess
from assay.models.matmul import widened
from assay.models.prefix_tree import Tokens
from assay.models.shared_prefill import Reached, Reading, Rows, prefill, reading
from assay.models.vision_language import (
    ReadImage,
    VisionLanguage,
    image_features,
    read_picture,
)
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.plain.plain_sampler import drawn_tokens, stopped
from assay.rollout.token_choice import key_states
from assay.tasks.helper_model import HelperAnswer, HelperFailed, Scores

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
                self._let_go()
            return features_ID

    def _let_go(self) -> None:
        held = sum(kept.nbytes for _, kept in self.read.values() if kept is not None)
        while held > FEATURE_BYTES and len(self.read) > 1:
            _, (_, kept) = self.read.popitem(last=False)
            held -= 0 if kept is None else kept.nbytes


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
        found: dict[int, HelperAnswer] = {}
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
                    found[n] = self._written(prompts[n], best, sampling)
                continue
            states_R = key_states([keys[n] for n, _ in owners])
            actions = decoded(rows, logits_RV, states_R, sampling, self.loaded.end_tokens)
            for (n, _), each in zip(owners, actions, strict=True):
                found[n] = self._written(prompts[n], each, sampling)
        return [found[n] for n in range(len(prompts))]

    def _written(self, prompt: Prompt, actions: list[int], sampling: Sampling) -> HelperAnswer:
        text = self.decoded(actions)
        text = text if sampling.stop is None else sampling.stop.cut(text)
        ended = "stop" if stopped(actions, self.loaded.end_tokens, sampling.stop) else "length"
        return HelperAnswer(text, ended, len(prompt.tokens), len(actions))

    def scores(self, prompts: Sequence[Prompt], answers: Sequence[Tokens]) -> Scores:
        """See `InProcess`; the last token of an answer is predicted, never read."""
        asked = [*zip(prompts, answers, strict=True)]
        members: dict[tuple[Prompt, Tokens], list[int]] = {}
        for n, (prompt, answer) in enumerate(asked):
            if answer:
                members.setdefault((prompt, answer[:-1]), []).append(n)
        read = [*members]
        found: list[list[float]] = [[] for _ in asked]
        computed = 0
        for batch, reached in prefill(self.loaded, [self._reading(*each) for each in read]):
            computed += reached.computed
            for sequence, logps_KV, start, end in scored_places(reached):
                for n in members[read[batch[sequence]]]:
                    prompt, answer = asked[n]
                    begin = len(prompt.tokens) - 1
                    for place in range(max(start, begin), end):
                        logp = logps_KV[place - end, answer[place - begin]]
                        found[n].append(float(logp))
        return Scores([tuple(each) for each in found], computed)


def scored_places(reached: Reached) -> Iterator[tuple[int, Tensor, int, int]]:
    """(sequence, log-probs (K, V), start, end) for every sequence of every piece."""
    for row, piece in enumerate(reached.pieces):
        logps_KV = widened(reached.logits_RKV[row]).log_softmax(dim=-1)
        for sequence in range(piece.first, piece.stop):
            yield sequence, logps_KV, piece.start, piece.end


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
        token_R, _ = drawn_tokens(logits_RV, states_R[live], place, sampling)
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
