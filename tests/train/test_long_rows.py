"""SFT on rows of unequal length: packed as if alone, never cut, without square matrices."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from assay.data.episode import Episode, Turn, tokens_of
from assay.models import scoring
from assay.models.adapt import save_activations
from assay.models.attention import ROWS
from assay.models.precision import choose_precision
from assay.rl.packed import Packed
from assay.rollout.policies.language import LanguagePolicy
from assay.train.likelihood import NLL, likelihood_batch
from assay.train.update import accumulate, largest_micro_batch, micro_batches
from tests.tiny import VOCABULARY, tiny_model
from tests.train.test_update import Priced

FP32 = choose_precision("fp32", "cpu")
LENGTHS = [(3, 9), (40, 60), (1, 1), (17, 2), (2, 33), (90, 70)]
"""Tokens of prompts and answers."""


def row(number: int, prompt: int, answer: int) -> Episode:
    draw = torch.Generator().manual_seed(number)
    ids = torch.randint(2, VOCABULARY, (prompt + answer,), generator=draw).tolist()
    turn = Turn(tuple(ids[:prompt]), tuple(ids[prompt:]), (True,) * answer)
    return Episode(str(number), str(number), (turn,))


def rows(lengths: Sequence[tuple[int, int]] = LENGTHS) -> list[Episode]:
    return [row(n, *each) for n, each in enumerate(lengths)]


def gradients(policy: LanguagePolicy) -> dict[str, Tensor]:
    return {n: p.grad for n, p in policy.module.named_parameters() if p.grad is not None}


def alone(episodes: Sequence[Episode], family: str) -> tuple[float, dict[str, Tensor]]:
    """Loss and gradients by Transformers' own forward, one row at a time."""
    model: Any = tiny_model(family)
    tokens = sum(len(t.actions) for e in episodes for t in e.turns)
    total = 0.0
    for turn in (e.turns[0] for e in episodes):
        ids = torch.tensor([*tokens_of(turn.context), *turn.actions])
        logits = model(input_ids=ids[None, :-1]).logits[0, len(tokens_of(turn.context)) - 1 :]
        loss = F.cross_entropy(logits, torch.tensor(turn.actions), reduction="sum") / tokens
        loss.backward()
        total += float(loss.detach())
    return total, {n: p.grad for n, p in model.named_parameters() if p.grad is not None}


def cut(packed: Packed, budget: int) -> list[Packed]:
    return list(micro_batches(Priced(), packed, NLL.atom, budget))  # type: ignore[arg-type]


def tokens_in(micro: Packed) -> int:
    return sum(len(tokens_of(c)) for c in set(micro.contexts)) + len(micro.actions_S)


def test_a_row_beyond_the_budget_has_a_micro_batch_of_its_own_and_all_its_tokens() -> None:
    packed = likelihood_batch(rows([(4, 5), (30, 300), (6, 7), (8, 9)]))
    micros = cut(packed, 64)
    assert [tokens_in(micro) for micro in micros] == [9, 330, 30]
    assert torch.equal(torch.cat([m.actions_S for m in micros]), packed.actions_S)
    assert torch.equal(torch.cat([m.weight_S for m in micros]), packed.weight_S)


sizes = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=7)


@given(lengths=sizes, budget=st.integers(1, 200), together=st.integers(1, 4), alike=st.booleans())
def test_no_micro_batch_is_larger_than_the_largest(
    lengths: list[tuple[int, int]], budget: int, together: int, alike: bool
) -> None:
    """Whichever rows meet in an update; `alike` rows have one prompt."""
    episodes = [
        row(0 if alike else n, lengths[0][0] if alike else prompt, answer)
        for n, (prompt, answer) in enumerate(lengths)
    ]
    turns = [(t.context, len(t.actions)) for e in episodes for t in e.turns]
    bound = largest_micro_batch(turns, len, together=together, budget=budget)  # type: ignore[arg-type]
    for first in range(len(episodes)):
        packed = likelihood_batch(episodes[first : first + together])
        for micro in cut(packed, budget):
            assert tokens_in(micro) <= bound.tokens
            assert len(micro.actions_S) <= bound.scored or alike


class Largest(TorchDispatchMode):
    """Notes the most bytes of any tensor that an operation gave."""

    most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        found = [t.numel() * t.itemsize for t in tree_leaves(result) if isinstance(t, Tensor)]
        self.most = max([self.most, *found])
        return result


@pytest.mark.parametrize("recompute", [False, True])
def test_a_long_row_makes_no_matrix_of_its_length_squared_or_times_the_vocabulary(
    monkeypatch: pytest.MonkeyPatch, recompute: bool
) -> None:
    for name in ("KEPT_BYTES", "CHUNK_BYTES"):
        monkeypatch.setattr(scoring, name, 64 * 4 * VOCABULARY)
    length = 3000
    model = tiny_model()
    policy = LanguagePolicy(model.train(), FP32, frozenset({1}))
    if recompute:
        save_activations(model)
    with Largest() as seen:
        accumulate(policy, likelihood_batch([row(0, 10, length - 10)]), NLL, 64)
    # Scores of a block of queries of all heads are more than a layer's widest values.
    assert 4 * length * 96 < seen.most <= 4 * 4 * ROWS * length
    assert seen.most < 4 * length * length / 10 and seen.most < 4 * length * VOCABULARY


def test_a_long_row_has_the_same_gradient_in_chunks_and_with_layers_run_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    packed = likelihood_batch([row(0, 20, 700)])
    found = []
    for recompute, rows_of_a_chunk in ((False, 10**6), (True, 10**6), (True, 33)):
        for name in ("KEPT_BYTES", "CHUNK_BYTES"):
            monkeypatch.setattr(scoring, name, rows_of_a_chunk * 4 * VOCABULARY)
        policy = LanguagePolicy(tiny_model().train(), FP32, frozenset({1}))
        if recompute:
            save_activations(policy.module)
        accumulate(policy, packed, NLL, 64)
        found.append(gradients(policy))
    kept, again, chunked = found
    assert all(torch.equal(kept[name], again[name]) for name in kept)
    for name in kept:
        torch.testing.assert_close(chunked[name], kept[name], atol=1e-6, rtol=1e-4)
