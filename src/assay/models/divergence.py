"""How far a student's next-word distributions are from a teacher's, and where that falls.

The generalised Jensen-Shannon divergence of GKD (arXiv 2306.13649, eq. 1) as TRL's
`generalized_jsd_loss` has it: `beta` 0 is KL(teacher || student), 1 is KL(student || teacher), and
between them D = beta KL(t || m) + (1 - beta) KL(s || m) with m = (1 - beta) s + beta t. Pure
functions of tables of log-probs; models are not known here. R rows, V words, C categories.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

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
