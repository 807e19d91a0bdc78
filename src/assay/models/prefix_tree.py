"""Log-probs of answers after contexts, what sequences begin with alike being computed once.

Sequences are laid out as a prefix tree in one packed row: every run of tokens that some of them
share is one branch, at any depth, so contexts with one beginning and answers to one context cost
their own tokens only. No gradients: training rows are laid out in `scoring`.

Suffixes: T packed tokens, K positions that are read, N ancestors of a branch, V words.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from assay.data.episode import common
from assay.models.attention import Span, by_key_head, cut, place, scaled, weigh
from assay.models.inference import InferenceModel
from assay.models.matmul import batched, moved, spans, widened
from assay.models.scoring import CACHED_ROWS, CHUNK_BYTES

Tokens = tuple[int, ...]
PACK_TOKENS = 8192
"""Tokens of one forward pass at most, unless a single sequence has more."""


@dataclass(frozen=True)
class Scored:
    """What `answer_logps` found."""

    logps: list[tuple[float, ...]]
    """For each pair, the log-prob of each token of its answer."""
    computed: int
    """Tokens that went through the layers."""


@dataclass(frozen=True)
class BranchFamily:
    """Branches with one parent, laid end to end: each sees its ancestors and itself, causally."""

    start: int
    """Index in T of the first branch's first token."""
    lengths: tuple[int, ...]
    above_N: Tensor
    """Indices in T of the ancestors' tokens, from the root down."""

    @property
    def spans(self) -> tuple[Span, ...]:
        """The branches, cut up for attention; counted from `start`."""
        return cut(self.lengths)


@dataclass(frozen=True)
class BranchPlan:
    """See `AttentionPlan`: attention over a prefix tree."""

    families: Sequence[BranchFamily]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """See `AttentionPlan.attend`; B is 1 and T covers all families in order."""
        _, heads, tokens, size = query.shape
        query_HTD, key_JTD, value_JTD = scaled(query[0], scale, value.dtype), key[0], value[0]
        output = value.new_empty(tokens, heads, size).transpose(0, 1)
        for family in self.families:
            shared = [x[:, family.above_N] for x in (key_JTD, value_JTD)]
            for span in family.spans:
                here = slice(family.start + span.first, family.start + span.stop)
                own = slice(family.start + span.seen, here.stop)
                keys, values = (
                    torch.cat([above, x[:, own]], dim=1)
                    for above, x in zip(shared, (key_JTD, value_JTD), strict=True)
                )
                rows = by_key_head(query_HTD[:, here], len(key_JTD))
                weights = weigh(rows, keys, moved(span.unseen_MN, keys.device))
                place(batched(weights, values), output[:, here])
        return output[None]


@dataclass
class PrefixTree:
    """Sequences laid out in one packed row."""

    tokens: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    families: list[BranchFamily] = field(default_factory=list)
    rows: dict[Tokens, np.ndarray] = field(default_factory=dict)
    """For each sequence, the index in T of each of its tokens."""


def lay_branches(sequences: Sequence[Tokens]) -> PrefixTree:
    """The prefix tree of sorted, distinct sequences."""
    tree = PrefixTree()
    # (first, stop) of sequences that begin with the same tokens, and where those lie in T.
    waiting: list[tuple[int, int, np.ndarray]] = [(0, len(sequences), np.arange(0))]
    for first, stop, above in waiting:
        start, lengths = len(tree.tokens), []
        for low, high in alike(sequences, first, stop, len(above)):
            shared = common(sequences[low], sequences[high - 1])
            here = np.arange(len(tree.tokens), len(tree.tokens) + shared - len(above))
            tree.tokens += sequences[low][len(above) : shared]
            tree.positions += range(len(above), shared)
            lengths.append(len(here))
            path = np.concatenate([above, here])
            if len(sequences[low]) == shared:
                tree.rows[sequences[low]] = path
                low += 1
            if low < high:
                waiting.append((low, high, path))
        tree.families.append(BranchFamily(start, tuple(lengths), torch.from_numpy(above)))
    return tree


def alike(
    sequences: Sequence[Tokens], first: int, stop: int, depth: int
) -> Iterator[tuple[int, int]]:
    """(first, stop) of neighbours with the same token at `depth`."""
    while first < stop:
        after = first + 1
        while after < stop and sequences[after][depth] == sequences[first][depth]:
            after += 1
        yield first, after
        first = after


def packs(sequences: Sequence[Tokens]) -> Iterator[Sequence[Tokens]]:
    """Sorted sequences in parts whose prefix trees have at most PACK_TOKENS tokens."""
    first = used = 0
    for number, sequence in enumerate(sequences):
        shared = common(sequences[number - 1], sequence) if number > first else 0
        if number > first and used + len(sequence) - shared > PACK_TOKENS:
            yield sequences[first:number]
            first, used, shared = number, 0, 0
        used += len(sequence) - shared
    if first < len(sequences):
        yield sequences[first:]


def answer_logps(
    model: InferenceModel, contexts: Sequence[Tokens], answers: Sequence[Tokens]
) -> Scored:
    """Log-probs of each answer's tokens after its context, at temperature 1.

    In at least float32 from the model's own scores. Contexts must not be empty.
    """
    values: list[tuple[float, ...]] = [()] * len(contexts)
    computed = 0
    for tree, places in laid_answers(contexts, answers):
        computed += len(tree.tokens)
        reads = [rows for _, rows in places]
        targets = [token for n, _ in places for token in answers[n]]
        logps = read_logps(model, tree, np.concatenate(reads), targets).tolist()
        for n, _ in places:
            values[n], logps = tuple(logps[: len(answers[n])]), logps[len(answers[n]) :]
    return Scored(values, computed)


def laid_answers(
    contexts: Sequence[Tokens], answers: Sequence[Tokens]
) -> Iterator[tuple[PrefixTree, list[tuple[int, np.ndarray]]]]:
    """Prefix trees of sequences, each with the places of its pairs: which one, and the index in T
    of what predicts each token of its answer."""
    pairs = list(zip(contexts, answers, strict=True))
    # The last token of an answer is predicted, never fed.
    members: dict[Tokens, list[int]] = {}
    for n, (context, answer) in enumerate(pairs):
        if answer:
            members.setdefault(context + answer[:-1], []).append(n)
    for pack in packs(sorted(members)):
        tree = lay_branches(pack)
        places = [(n, tree.rows[sequence]) for sequence in pack for n in members[sequence]]
        yield tree, [(n, rows[len(contexts[n]) - 1 :]) for n, rows in places]


def answer_hidden(
    model: InferenceModel, contexts: Sequence[Tokens], answers: Sequence[Tokens]
) -> tuple[Tensor, int]:
    """The hidden states (S, D), for `InferenceModel.words`, that predict the tokens of all answers,
    on the CPU; and how many tokens went through the layers."""
    hidden: dict[int, Tensor] = {}
    computed = 0
    for tree, places in laid_answers(contexts, answers):
        computed += len(tree.tokens)
        keep_K, kept_S = np.unique(
            np.concatenate([rows for _, rows in places]), return_inverse=True
        )
        hidden_SD = tree_hidden(model, tree, keep_K).cpu()[torch.from_numpy(kept_S)]
        lengths = [len(answers[n]) for n, _ in places]
        hidden |= zip((n for n, _ in places), hidden_SD.split(lengths), strict=True)
    return torch.cat([hidden[n] for n in sorted(hidden)]), computed


def tree_hidden(model: InferenceModel, tree: PrefixTree, keep_K: np.ndarray) -> Tensor:
    """The hidden states (K, D) behind the last layer at some tokens of a tree."""
    device = model.device
    tokens_T, positions_T, keep = (
        moved(torch.as_tensor(values), device) for values in (tree.tokens, tree.positions, keep_K)
    )
    plan = BranchPlan(
        [BranchFamily(f.start, f.lengths, moved(f.above_N, device)) for f in tree.families]
    )
    with torch.no_grad():
        return model.hidden(tokens_T, positions_T, plan)[keep]


def read_logps(
    model: InferenceModel, tree: PrefixTree, rows_S: np.ndarray, targets: Sequence[int]
) -> Tensor:
    """Log-probs (S) of words, each read at a token of the tree."""
    keep_K, kept_S = np.unique(rows_S, return_inverse=True)
    hidden_KD = tree_hidden(model, tree, keep_K)
    kept, words = (moved(torch.as_tensor(values), model.device) for values in (kept_S, targets))
    logps_S = torch.empty(len(words))
    with torch.no_grad():
        rows = max(1, CHUNK_BYTES // (len(model.embedding_VD) * 4))
        for first, stop in spans(len(hidden_KD), rows):
            logits_KV = model.words(hidden_KD[first:stop])
            normaliser_K = torch.cat(
                [
                    widened(logits_KV[a:b]).logsumexp(dim=-1)
                    for a, b in spans(stop - first, CACHED_ROWS)
                ]
            )
            here_S = (kept >= first) & (kept < stop)
            at = kept[here_S] - first
            picked_S = widened(logits_KV[at, words[here_S]]) - normaliser_K[at]
            logps_S[here_S.cpu()] = picked_S.float().cpu()
    return logps_S
