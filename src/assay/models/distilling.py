"""A student's divergence from its teacher, straight from hidden states: no whole table of scores.

The generalised Jensen-Shannon divergence of GKD (arXiv 2306.13649, eq. 1) as TRL's
`generalized_jsd_loss` has it: `beta` 0 is KL(teacher || student), 1 is KL(student || teacher), and
between them D = beta KL(t || m) + (1 - beta) KL(s || m) with m = (1 - beta) s + beta t.

As `scoring.head_logps`, but every chunk holds the scores of both models, and what is
differentiated is the divergence alone. The teacher's hidden states were computed before; its head
runs here. R rows, K hidden states, S actions, V words, C categories.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from assay.models import scoring
from assay.models.layers import computed
from assay.models.matmul import moved, product, spans, widened
from assay.models.plain_forward import (
    causal_of,
)
from assay.models.scoring import (
    CACHED_ROWS,
    Reads,
    TreeRow,
    add_product,
    head_scores,
    hidden_row,
    lay_out,
    to_device,
)

FULL = -1e-7
"""The log of the most mass that k words are taken to have, as in TRL: what a server rounds may add
up to more than 1, and the rest would have none."""


@dataclass(frozen=True)
class Teacher:
    """What a student is compared with, and how."""

    beta: float
    temperature: float = 1.0
    """Of both softmaxes."""
    top_k: int | None = None
    """The teacher's likeliest words that are told apart; the others are one category. None: all."""
    words: Callable[[Tensor], Tensor] | None = None
    """The teacher's hidden states (K, D) to its scores (K, V); None for one that tells `top_k`
    words and their log-probs alone."""
    size: int | None = None
    """Words that both models have, where one pads its head with more; None: all."""


@dataclass(frozen=True)
class Compared:
    """What was found of a student's distribution at each of S actions, or K hidden states."""

    divergence_S: Tensor
    """With gradient."""
    exact_S: Tensor
    """Over all words; `divergence_S` where that is not known."""
    entropy_S: Tensor
    agrees_S: Tensor
    """1 where both models have the same likeliest word, else 0."""
    tail_S: Tensor
    """Mass of the words that the teacher does not tell apart."""

    def each(self, change: Callable[[Tensor], Tensor]) -> "Compared":
        """The same with every tensor changed."""
        return Compared(*(change(getattr(self, f.name)) for f in fields(self)))


def divergence(student_RC: Tensor, teacher_RC: Tensor, beta: float) -> tuple[Tensor, Tensor]:
    """D (R) of log-probs, and its derivatives (R, C) by the student's scores: p (g - sum p g) with
    g = dD / dp."""
    student_p, teacher_p = student_RC.exp(), teacher_RC.exp()
    if beta == 0:
        return expected(teacher_p, teacher_RC - student_RC), student_p - teacher_p
    if beta == 1:
        gap_RC = student_RC - teacher_RC
        divergence_R = expected(student_p, gap_RC)
        return divergence_R, student_p * (gap_RC - divergence_R[:, None])
    mixed_RC = torch.logaddexp(student_RC + math.log1p(-beta), teacher_RC + math.log(beta))
    gap_RC = student_RC - mixed_RC
    own_R = expected(student_p, gap_RC)
    divergence_R = beta * expected(teacher_p, teacher_RC - mixed_RC) + (1 - beta) * own_R
    return divergence_R, (1 - beta) * student_p * (gap_RC - own_R[:, None])


def expected(p_RC: Tensor, value_RC: Tensor) -> Tensor:
    """Means (R); what has no probability does not count, whatever its value (0 log 0 = 0)."""
    return torch.where(p_RC > 0, p_RC * value_RC, 0.0).sum(-1)


def grouped(logps_RV: Tensor, words_RK: Tensor) -> Tensor:
    """Log-probs (R, K + 1) of some words of each row, and of all others together."""
    rest_RV = logps_RV.scatter(-1, words_RK, -torch.inf)
    return torch.cat([logps_RV.gather(-1, words_RK), rest_RV.logsumexp(-1, keepdim=True)], -1)


def with_rest(logps_RK: Tensor) -> Tensor:
    """Log-probs (R, K + 1) of words that were told, and of all others together."""
    told_R1 = logps_RK.logsumexp(-1, keepdim=True).clamp(max=FULL)
    return torch.cat([logps_RK, torch.log(-torch.expm1(told_R1))], -1)


def divergence_of_groups(
    student_RV: Tensor, words_RK: Tensor, teacher_RC: Tensor, beta: float
) -> tuple[Tensor, Tensor]:
    """`divergence` where the teacher tells K words and the rest apart; the slope is by every score.

    It is never more than that of all words: what lies within the rest is not seen.
    """
    student_RC = grouped(student_RV, words_RK)
    divergence_R, slope_RC = divergence(student_RC, teacher_RC, beta)
    share_RV = (student_RV - student_RC[:, -1:]).exp()
    return divergence_R, (share_RV * slope_RC[:, -1:]).scatter(-1, words_RK, slope_RC[:, :-1])


@dataclass(frozen=True)
class Lesson:
    """What the teacher says at K hidden states of the student."""

    teacher: Teacher
    hidden_KD: Tensor | None = None
    words_KN: Tensor | None = None
    logps_KN: Tensor | None = None
    """Of a teacher that tells its N likeliest words."""
    factor: float = 1.0
    """What the student's scores are multiplied by."""

    def rows(self, at: slice | Tensor) -> "Lesson":
        """Of some of the hidden states."""
        return self._each(lambda told: told[at])

    def on(self, device: torch.device) -> "Lesson":
        """The same on the student's device."""
        return self._each(lambda told: moved(told, device))

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Lesson":
        told = (self.hidden_KD, self.words_KN, self.logps_KN)
        hidden, words, logps = (None if each is None else change(each) for each in told)
        return Lesson(self.teacher, hidden, words, logps, self.factor)


def compare(
    logits_CV: Tensor, lesson: Lesson, reads: Reads, compared: Compared, logps_S: Tensor, first: int
) -> None:
    """Fill `compared` and `logps_S` at the rows from `first` of a chunk of scores, and turn the
    scores into the divergence's derivatives by them, in place."""
    teacher, here = lesson.teacher, lesson.rows(slice(first, first + len(logits_CV)))
    warmth = teacher.temperature / lesson.factor
    told_CV = None
    if teacher.words is not None:
        assert here.hidden_KD is not None
        with torch.no_grad():
            told_CV = teacher.words(here.hidden_KD)[:, : logits_CV.shape[1]]
    for a, b in spans(len(logits_CV), CACHED_ROWS):
        scores = widened(logits_CV[a:b])
        student = (scores / warmth).log_softmax(-1)
        at = slice(first + a, first + b)
        chosen_S = (reads.kept_S >= at.start) & (reads.kept_S < at.stop)
        rows_S = reads.kept_S[chosen_S] - at.start
        own = student
        if reads.temperature != warmth:
            own = (scores / reads.temperature).log_softmax(-1)
        logps_S[chosen_S] = own[rows_S, reads.targets_S[chosen_S]]
        compared.entropy_S[at] = -(own.exp() * own).sum(-1)
        if told_CV is None:
            assert here.words_KN is not None and here.logps_KN is not None
            words, pair = here.words_KN[a:b], with_rest(here.logps_KN[a:b])
            distance, slope = divergence_of_groups(student, words, pair, teacher.beta)
            compared.exact_S[at] = distance
            compared.tail_S[at], likeliest = pair[:, -1].exp(), words[:, 0]
        else:
            whole = (widened(told_CV[a:b]) / teacher.temperature).log_softmax(-1)
            distance, slope = divergence(student, whole, teacher.beta)
            compared.exact_S[at], likeliest = distance, whole.argmax(-1)
            if teacher.top_k is not None:
                words = whole.topk(teacher.top_k).indices
                pair = grouped(whole, words)
                distance, slope = divergence_of_groups(student, words, pair, teacher.beta)
                compared.tail_S[at] = pair[:, -1].exp()
        compared.divergence_S[at] = distance
        compared.agrees_S[at] = (student.argmax(-1) == likeliest).to(student.dtype)
        logits_CV[a:b].copy_(slope.div_(warmth))


def nothing(like: Tensor, rows: int) -> Compared:
    """Zeros to be filled, in the type of a softmax over scores `like`."""
    empty = widened(like.new_empty(0))
    return Compared(*(empty.new_zeros(rows) for _ in fields(Compared)))


class HeadDivergence(torch.autograd.Function):
    """Fills the figures of K hidden states; the divergence is differentiable once."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_KD: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        reads: Reads,
        lesson: Lesson,
        dtype: torch.dtype,
    ) -> tuple[Tensor, ...]:
        """Log-probs (S), then the fields of `Compared` (K)."""
        hidden, weight = hidden_KD.to(dtype), weight_VD.to(dtype)
        bias = None if bias_V is None else bias_V.to(dtype)
        compared = nothing(hidden, len(hidden))
        logps_S = compared.exact_S.new_empty(len(reads.kept_S))
        keeps = len(hidden) <= chunk_rows(weight, scoring.KEPT_BYTES)
        rows = chunk_rows(weight, scoring.KEPT_BYTES if keeps else scoring.CHUNK_BYTES)
        slope_KV = None
        for first, stop in spans(len(hidden), rows):
            slope_KV = None  # free the last chunk before the next is made
            slope_KV = head_scores(hidden[first:stop], weight, bias)
            compare(slope_KV, lesson, reads, compared, logps_S, first)
        kept = any(ctx.needs_input_grad) and keeps
        ctx.slope, ctx.again = (slope_KV if kept else None), not kept
        ctx.reads, ctx.lesson, ctx.dtype = reads, lesson, dtype
        ctx.save_for_backward(hidden_KD, weight_VD, bias_V)
        others = [getattr(compared, f.name) for f in fields(Compared)[1:]]
        ctx.mark_non_differentiable(logps_S, *others)
        return logps_S, compared.divergence_S, *others

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # type: ignore[override]
        """Gradients of hidden states, weight and bias."""
        hidden_KD, weight_VD, bias_V = ctx.saved_tensors
        hidden, weight = hidden_KD.to(ctx.dtype), weight_VD.to(ctx.dtype)
        bias = None if bias_V is None else bias_V.to(ctx.dtype)
        grad_hidden, grad_weight = torch.empty_like(hidden), None
        grad_bias = None if bias_V is None else torch.zeros_like(bias_V)
        again = nothing(hidden, len(hidden)), grads[0].new_empty(len(ctx.reads.kept_S))
        rows = chunk_rows(weight, scoring.CHUNK_BYTES if ctx.again else scoring.KEPT_BYTES)
        for first, stop in spans(len(hidden), rows):
            slope = head_scores(hidden[first:stop], weight, bias) if ctx.again else ctx.slope
            if slope is None:
                raise RuntimeError("the scores were used up by an earlier backward pass")
            if ctx.again:
                compare(slope, ctx.lesson, ctx.reads, *again, first)
            ctx.slope = None
            slope.mul_(grads[1][first:stop, None])
            grad_hidden[first:stop] = product(slope, weight)
            if ctx.needs_input_grad[1]:
                grad_weight = add_product(grad_weight, slope, hidden[first:stop], weight_VD.dtype)
            if grad_bias is not None:
                grad_bias += slope.sum(dim=0)
            del slope
        return grad_hidden.to(hidden_KD.dtype), grad_weight, grad_bias, None, None, None


def chunk_rows(weight_VD: Tensor, size: int) -> int:
    """Hidden states whose scores by both models take `size` bytes."""
    return max(1, scoring.chunk_rows(weight_VD, size) // 2)


def head_divergence(
    hidden_KD: Tensor, weight_VD: Tensor, bias_V: Tensor | None, reads: Reads, lesson: Lesson
) -> tuple[Tensor, Compared]:
    """Log-probs (S) of the actions without gradient, and what is found of the distributions that
    they are drawn from (S)."""
    dtype = hidden_KD.dtype
    if torch.is_autocast_enabled(hidden_KD.device.type):
        dtype = torch.get_autocast_dtype(hidden_KD.device.type)
    inputs: Any = (hidden_KD, weight_VD, bias_V, reads, lesson, dtype)
    logps_S, *parts = HeadDivergence.apply(*inputs)  # type: ignore[misc]
    return logps_S, Compared(*parts).each(lambda value_K: value_K[reads.kept_S])


Turns = tuple[Sequence[tuple[int, ...]], Tensor, Tensor]
"""Contexts, and their actions (S) with offsets (N + 1), as `scoring.score_actions` takes them."""


def compare_actions(
    model: Any, turns: Turns, lesson: Lesson, temperature: float
) -> tuple[Tensor, Compared]:
    """Log-probs (S) of actions at the temperature that they were sampled at, without gradient, and
    what is found of the student there; the lesson is over S. See `scoring.score_actions`."""
    contexts, actions_S, offsets_N1 = turns
    causal = causal_of(model)
    row = to_device(lay_out(contexts, actions_S, offsets_N1), causal.device)
    targets_S = moved(actions_S, causal.device)[row.order_S]
    # Actions that one hidden state predicts have one context, so the teacher says the same of each.
    of_K = torch.empty_like(row.keep_K).scatter_(0, row.kept_S, row.order_S)
    lesson = lesson.rows(of_K.cpu()).on(causal.device)
    logps_S, compared = computed(causal, compare_row)(row, targets_S, lesson, temperature)
    back_S = torch.empty_like(row.order_S)
    back_S[row.order_S] = torch.arange(len(back_S), device=back_S.device)
    return logps_S[back_S], compared.each(lambda value_S: value_S[back_S])


def compare_row(
    causal: Any, row: TreeRow, targets_S: Tensor, lesson: Lesson, temperature: float
) -> tuple[Tensor, Compared]:
    """`compare_actions` of a row, in its own order, with a lesson over K."""
    hidden_KD, head, factor = hidden_row(causal, row)
    weight_VD, bias_V = head.weight, head.bias
    if lesson.teacher.size is not None and lesson.teacher.size < len(weight_VD):
        weight_VD = weight_VD[: lesson.teacher.size]
        bias_V = None if bias_V is None else bias_V[: lesson.teacher.size]
    reads = Reads(row.kept_S, targets_S, temperature / factor, True)
    return head_divergence(hidden_KD, weight_VD, bias_V, reads, replace(lesson, factor=factor))
