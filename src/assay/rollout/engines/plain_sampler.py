"""Samples completions of any causal language model; the prompt of a group is computed once.

Groups of equal contexts run in batches until their last completion ends; finished rows leave. The
trained module itself answers, its adapter as it is, in the numerics of training. Tokens are drawn
as the `cpu` engine draws them, from the full softmax and the keys.
"""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import Cache, DynamicCache

from assay.data.episode import Context, Turn, tokens_of
from assay.errors import RunFailure
from assay.models.matmul import moved
from assay.models.plain_forward import alike, causal_of, logits_from, probe_tokens, score_padded
from assay.models.scoring import evaluating
from assay.rl.policy import SampleKey, Sampling, Stop
from assay.rollout.engines.cpu.kv_cache import Drawing, nothing_drawn
from assay.rollout.engines.cpu.sampler import DrawJob, Group, Watch, equal_groups, job_of, take
from assay.rollout.token_choice import draw_with_moments, uniforms

CACHES = ("past_key_values", "cache_params")
"""Names under which models take and return a cache that rows can be chosen from."""


@dataclass(frozen=True)
class Way:
    """How a model can be decoded."""

    cached: bool
    """Earlier tokens are kept in a cache; else all are computed anew for each token."""
    padded: bool
    """Rows of different lengths run together."""


@dataclass
class Decoding:
    """Rows under way: their tokens, and what the model keeps of them."""

    causal: Any
    cached: bool
    ids_RT: Tensor
    mask_RT: Tensor
    """0 where a row is padded on the left."""
    kept: dict[str, Any] = field(default_factory=dict)
    """The cache by the name that the model takes it under; empty before the first step."""

    def logits(self) -> Tensor:
        """Scores (R, V) after the last token of each row; computes what is not kept yet."""
        if not self.cached:
            return logits_from(self.causal, self.ids_RT, self._mask(), self.ids_RT.shape[1] - 1)[
                :, -1
            ]
        first = not self.kept
        options = self._options() | (self.kept or fresh_cache(self.causal))
        inputs = self.causal.prepare_inputs_for_generation(
            self.ids_RT,
            next_sequence_length=None if first else 1,
            is_first_iteration=first,
            **options,
        )
        output = self.causal(**inputs, return_dict=True)
        self.kept = {name: output[name] for name in CACHES if output.get(name) is not None}
        return output.logits[:, -1]

    def _mask(self) -> Tensor | None:
        return None if bool(self.mask_RT.all()) else self.mask_RT

    def _options(self) -> dict[str, Any]:
        takes = inspect.signature(self.causal.forward).parameters
        options: dict[str, Any] = {"use_cache": True, "attention_mask": self._mask()}
        if "position_ids" in takes:
            options["position_ids"] = (self.mask_RT.cumsum(dim=-1) - 1).clamp(min=0)
        if "logits_to_keep" in takes:
            options["logits_to_keep"] = 1
        return options

    def feed(self, tokens_R: Tensor) -> None:
        """Append a token to every row."""
        self.ids_RT = torch.cat([self.ids_RT, tokens_R[:, None]], dim=1)
        self.mask_RT = torch.cat([self.mask_RT, self.mask_RT.new_ones(len(tokens_R), 1)], dim=1)

    def select(self, rows_R: Tensor) -> None:
        """Go on with these rows, each as often as it is named."""
        self.ids_RT, self.mask_RT = self.ids_RT[rows_R], self.mask_RT[rows_R]
        for cache in self.kept.values():
            cache.reorder_cache(rows_R)


def fresh_cache(causal: Any) -> dict[str, Any]:
    """An empty cache, where the model takes Transformers' default one; else it makes its own."""
    takes = "past_key_values" in inspect.signature(causal.forward).parameters
    if not (takes and causal._supports_default_dynamic_cache()):
        return {}
    return {"past_key_values": DynamicCache(config=causal.config.get_text_config(decoder=True))}


def decoding(causal: Any, way: Way, contexts: Sequence[Sequence[int]]) -> Decoding:
    """A row for each context, padded on the left to the longest."""
    longest = max(map(len, contexts))
    ids = [[*[0] * (longest - len(context)), *context] for context in contexts]
    mask = [[0] * (longest - len(context)) + [1] * len(context) for context in contexts]
    device = causal.device
    return Decoding(
        causal, way.cached, torch.tensor(ids, device=device), torch.tensor(mask, device=device)
    )


def works(causal: Any, way: Way, contexts: Sequence[list[int]]) -> bool:
    """Whether a way gives what each whole sequence gives; it does not where the forward fails."""
    try:
        return (not way.cached or keeps_rows(causal)) and steps_alike(causal, way, contexts)
    except Exception:
        # Then rows go another way, in the end each whole and alone, which is known to work.
        return False


def keeps_rows(causal: Any) -> bool:
    """Whether the model returns a cache from which rows can be chosen."""
    trial = decoding(causal, Way(True, False), [probe_tokens(causal, 5).tolist()])
    trial.logits()
    return bool(trial.kept) and all(isinstance(cache, Cache) for cache in trial.kept.values())


def steps_alike(causal: Any, way: Way, contexts: Sequence[list[int]]) -> bool:
    """Whether two steps, rows exchanged in between, give what each whole sequence gives alone."""
    trial = decoding(causal, way, contexts)
    rows = list(contexts)
    for fed in probe_tokens(causal, 2).tolist():
        logits_RV = trial.logits()
        for row, logits_V in zip(rows, logits_RV, strict=True):
            ids_1T = torch.tensor([row], device=causal.device)
            if not alike(logits_V, logits_from(causal, ids_1T, None, len(row) - 1)[0, -1]):
                return False
        trial.select(torch.arange(len(rows) - 1, -1, -1, device=causal.device))
        trial.feed(torch.full((len(rows),), fed, device=causal.device))
        rows = [[*row, fed] for row in reversed(rows)]
    return True


ROWS = 64
"""Completions decoded together."""
CACHE_BYTES = 2 << 30
"""Keys and values held at once, by the size of a dense model's, unless one group needs more."""

MOST_GAP, MEAN_GAP = 1e-3, 0.3
"""Between a log-prob that was recorded and that of the whole sequence: the largest in fp32, where
tiny models of 100 families show up to 5e-6, and the mean in bf16, whose rounding is below 0.1."""


class PlainSampler:
    """See `rollout.engines.register.Sampler`."""

    def __init__(
        self,
        module: nn.Module,
        end_tokens: frozenset[int],
        compute: torch.dtype | None = None,
    ):
        """Products run in `compute`, under autocast where it is not the module's type."""
        self.module = module
        self.end_tokens = end_tokens
        self.compute = compute or next(module.parameters()).dtype
        self.prefilled_tokens = 0
        """Prompt tokens computed so far; a context of several completions counts once."""
        self._way: Way | None = None
        self._unproven = True

    def refresh(self, module: nn.Module) -> None:
        """The weights changed; nothing is kept of the former ones."""
        self.module = module

    def sleep(self) -> None:
        """No weights of its own are held."""

    @contextmanager
    def conversations(self) -> Iterator[None]:
        """Later turns are computed anew, so nothing bounds the tokens."""
        yield

    @property
    def way(self) -> Way:
        """How the model is decoded."""
        if self._way is None:
            with evaluating(self.module):
                causal = causal_of(self.module)
                long, short = probe_tokens(causal, 9).tolist(), probe_tokens(causal, 5).tolist()
                with torch.no_grad():
                    cached = works(causal, Way(True, False), [short, long[-5:]])
                    padded = works(causal, Way(cached, True), [short, long])
                self._way = Way(cached, padded)
        return self._way

    def sample(
        self,
        contexts: Sequence[Context],
        keys: Sequence[SampleKey],
        sampling: Sampling,
        policy_version: int = 0,
        watch: Watch | None = None,
        drawn: Sequence[int] | None = None,
    ) -> list[Turn]:
        """One turn per context, in order; it ends with an end token or a stop string ("stop"), at
        `max_tokens` or where `watch` ends it ("length"). `drawn` as `cpu.sampler.sample_turns`."""
        way = self.way
        job = job_of(keys, drawn, sampling, self.end_tokens, policy_version, watch)
        prompts = [tokens_of(context) for context in contexts]
        turns: dict[int, Turn] = {}
        with evaluating(self.module), torch.no_grad(), computing_in(self.module, self.compute):
            for groups in batched(prompts, way.padded, self._rows(prompts, sampling)):
                self._answer(groups, job, turns)
            if self._unproven and turns:
                turn = max(turns.values(), key=length_of)
                self._unproven = not proven(self.module, self.compute, turn, sampling)
        return [turns[n] for n in range(len(prompts))]

    def score(
        self, contexts: Sequence[tuple[int, ...]], answers: Sequence[tuple[int, ...]]
    ) -> list[tuple[float, ...]]:
        """Log-probs of each answer's tokens after its context, which is not empty."""
        lengths = [len(answer) for answer in answers]
        actions_S = torch.tensor([token for answer in answers for token in answer]).long()
        offsets_N1 = torch.tensor([0, *lengths]).cumsum(0)
        with evaluating(self.module), torch.no_grad(), computing_in(self.module, self.compute):
            logps_S, _ = score_padded(self.module, contexts, actions_S, offsets_N1)
        return [tuple(piece.tolist()) for piece in logps_S.cpu().split(lengths)]

    def _rows(self, contexts: Sequence[tuple[int, ...]], sampling: Sampling) -> int:
        """How many completions are decoded together."""
        text = causal_of(self.module).config.get_text_config()
        width = 2 if self.compute == torch.bfloat16 else 4
        token = 2 * text.num_hidden_layers * text.hidden_size * width
        longest = max(map(len, contexts), default=0) + sampling.max_tokens
        return max(1, min(ROWS, CACHE_BYTES // (token * longest)))

    def _answer(self, groups: Sequence[Group], job: DrawJob, turns: dict[int, Turn]) -> None:
        """Sample all completions of some groups."""
        rows = decoding(causal_of(self.module), self.way, [context for context, _ in groups])
        self.prefilled_tokens += sum(len(context) for context, _ in groups)
        logits_RV = rows.logits()
        device = logits_RV.device
        owner = [number for number, (_, members) in enumerate(groups) for _ in members]
        contexts = {n: context for context, members in groups for n in members}
        drawing = Drawing(**nothing_drawn(len(owner), job.sampling.max_tokens))
        drawing.turn_B = np.array([*contexts])
        drawing.states_B = job.states_N[drawing.turn_B]
        live = torch.tensor(owner, device=device)
        rows.select(live)
        logits_RV = logits_RV[live]
        while True:
            every_R = np.arange(len(drawing.turn_B))
            for _, n, turn in take(job, drawing, lambda _, n: contexts[n], every_R, logits_RV):
                turns[n] = turn
            alive_A = drawing.alive_A
            if not len(alive_A):
                return
            if len(alive_A) < len(every_R):
                rows.select(torch.from_numpy(alive_A).to(device))
                drawing.keep_rows(alive_A, drawing.turn_B[alive_A])
            last_R = drawing.tokens_BC[np.arange(len(alive_A)), drawing.drawn_B - 1]
            rows.feed(torch.from_numpy(last_R).to(device))
            logits_RV = rows.logits()


def proven(module: nn.Module, compute: torch.dtype, turn: Turn, sampling: Sampling) -> bool:
    """Compare the log-probs of a turn with those of its whole sequence; for use inside
    `computing_in`. False where a part of the vocabulary was drawn from, so that they differ.

    Raises RunFailure.
    """
    if sampling.top_p != 1 or sampling.top_k:
        return False
    context, actions_S = tokens_of(turn.context), torch.tensor(turn.actions)
    # Greedy tokens carry their log-prob at temperature 1.
    temperature, offsets_N1 = sampling.temperature or 1.0, torch.tensor([0, len(actions_S)])
    expected_S, _ = score_padded(module, [context], actions_S, offsets_N1, temperature=temperature)
    gap_S = (expected_S.cpu() - torch.tensor(turn.behaviour_logps)).abs()
    rough = compute == torch.bfloat16
    gap = float(gap_S.mean() if rough else gap_S.max())
    if not gap <= (MEAN_GAP if rough else MOST_GAP) / min(temperature, 1.0):
        name = type(causal_of(module)).__name__
        raise RunFailure(
            f"Transformers' cache of {name} gives other log-probs than the whole sequence of "
            f"{length_of(turn)} tokens, {gap:.2g} apart; use another model, or the pinned "
            "version of transformers"
        )
    return True


def length_of(turn: Turn) -> int:
    """Tokens of the whole sequence."""
    return len(tokens_of(turn.context)) + len(turn.actions)


def drawn_tokens(
    logits_RV: Tensor, states_R: np.ndarray, at_R: np.ndarray, sampling: Sampling
) -> tuple[Tensor, ...]:
    """The tokens (R) at these places of their completions, and what `draw_with_moments` tells of
    them."""
    uniform_R = moved(torch.from_numpy(uniforms(states_R, at_R)), logits_RV.device)
    return draw_with_moments(logits_RV, sampling, uniform_R)


def stopped(actions: Sequence[int], ends: frozenset[int], stop: Stop | None) -> bool:
    """Whether a completion ends with its last action: an end token, or a stop string."""
    return actions[-1] in ends or (stop is not None and stop.ends(actions))


def batched(contexts: Sequence[tuple[int, ...]], padded: bool, most: int) -> Iterator[list[Group]]:
    """Groups of equal contexts, together as far as they may be and as `most` rows allow."""
    groups = sorted(equal_groups(contexts, most), key=lambda group: len(group[0]))
    batch: list[Group] = []
    for group in groups:
        rows = sum(len(members) for _, members in batch) + len(group[1])
        other = batch and not padded and len(batch[0][0]) != len(group[0])
        if batch and (rows > most or other):
            yield batch
            batch = []
        batch.append(group)
    if batch:
        yield batch


def computing_in(module: nn.Module, compute: torch.dtype) -> AbstractContextManager[object]:
    """Inside, products run in `compute`."""
    master = next(module.parameters())
    if compute == master.dtype:
        return nullcontext()
    return torch.autocast(master.device.type, compute)
