"""Distillation: who answers a visit, what is learned of the teacher, and that no split matters."""

import dataclasses
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from assay.data.episode import Episode, Reward, Turn
from assay.data.row import Message, Row
from assay.models import scoring
from assay.models.distilling import Lesson, Teacher, divergence, head_divergence
from assay.models.precision import choose_precision
from assay.models.scoring import Reads
from assay.rl.policy import Sampling
from assay.rollout.policies.language import LanguagePolicy
from assay.train.likelihood import Distill
from assay.train.sampled_groups import PromptStream, SingleTurn
from assay.train.update import constant
from tests.few import few
from tests.tiny import tiny_model
from tests.train.test_gkd import BETAS, our_update, teller
from tests.train.test_methods import run

ROWS = tuple(Row(f"q{n}", (Message("user", str(n)),), gold=None) for n in range(12))


def tiny_policy(seed: int = 0) -> LanguagePolicy:
    return LanguagePolicy(tiny_model(seed=seed), choose_precision("fp32", "cpu"), frozenset({1}))


def distill(lmbda: float = 0.5, teacher: Teacher | None = None, group: int = 2) -> Distill:
    """Twelve prompts of three tokens, learned from a tiny teacher."""
    contexts = {row.id: (7, 20 + n, 9) for n, row in enumerate(ROWS)}
    sampling = Sampling(1.0, 6)
    source = SingleTurn(contexts, sampling, 0, lambda pairs: [Reward(1.0) for _ in pairs], str)
    stored = {
        row.id: Episode(row.id, row.id, (Turn(contexts[row.id], (40 + n, 1), (True, True)),))
        for n, row in enumerate(ROWS)
    }
    prompts = PromptStream(ROWS, source, prompts=4, group=group, seed=0)
    tell = teller(tiny_model(seed=1))
    wanted = teacher or Teacher(1.0, top_k=50)
    return Distill(prompts, stored, lmbda, wanted, tell, str, constant(1.0))


@pytest.mark.parametrize(("lmbda", "own"), [(1.0, 1.0), (0.0, 0.0)])
def test_at_its_ends_lmbda_leaves_all_visits_to_one_side(lmbda: float, own: float) -> None:
    _, recorder = run(distill(lmbda), 2, lr=0.0, policy=tiny_policy())
    assert [line["on_policy_share"] for line in recorder.lines] == [own, own]
    assert ("completions" in recorder.lines[0]) == bool(own)
    assert len(recorder.lines) == 2 and all(line["tokens"] > 0 for line in recorder.lines)


def test_who_answers_a_visit_depends_on_the_row_and_the_visit_alone() -> None:
    method = distill(0.5)
    jobs = [(row, number) for number in range(100) for row in ROWS]
    drawn = {(row.id, number): method.samples((row, number)) for row, number in jobs}
    assert all(method.samples((row, n)) == drawn[row.id, n] for row, n in reversed(jobs))
    assert all(drawn[row.id, 2 * n] == drawn[row.id, 2 * n + 1] for row in ROWS for n in range(50))
    share = sum(drawn.values()) / len(drawn)
    assert abs(share - 0.5) < 4 * math.sqrt(0.25 / (len(drawn) / 2))
    more = dataclasses.replace(method, lmbda=0.7)
    assert all(more.samples((row, n)) for row, n in jobs if drawn[row.id, n])


@few("beta", [0.5, 1.0], fast=1)
def test_the_student_comes_closer_to_its_teacher_on_its_own_samples(beta: float) -> None:
    _, recorder = run(distill(1.0, Teacher(beta)), 12, lr=3e-3, policy=tiny_policy())
    found = [line["own_divergence"] for line in recorder.lines]
    assert sum(found[-3:]) < 0.8 * sum(found[:3])


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("top_k", [None, 5])
def test_a_student_that_is_its_teacher_has_no_loss_and_no_gradient(
    beta: float, top_k: int | None
) -> None:
    totals, grads = our_update(Teacher(beta, top_k=top_k), seed=0)
    far, slopes = our_update(Teacher(beta, top_k=top_k), seed=1)
    assert abs(totals.loss) < 1e-5 * far.loss
    for name, grad in grads.items():
        assert grad.norm() < 1e-4 * slopes[name].norm()
    assert totals.sums["teacher_agreement"] == totals.sums["tokens"]


@pytest.mark.parametrize("top_k", [None, 5])
@pytest.mark.parametrize("beta", [0.1, 1.0])
def test_chunks_and_micro_batches_do_not_change_the_gradient(
    monkeypatch: pytest.MonkeyPatch, beta: float, top_k: int | None
) -> None:
    whole, expected = our_update(Teacher(beta, 0.7, top_k))
    for name in ("KEPT_BYTES", "CHUNK_BYTES"):
        monkeypatch.setattr(scoring, name, 300 * 4 * 4)  # two rows of both models
    apart, found = our_update(Teacher(beta, 0.7, top_k), micro_tokens=8)
    assert apart.loss == pytest.approx(whole.loss, rel=1e-5)
    assert found.keys() == expected.keys()
    for name, grad in found.items():
        torch.testing.assert_close(grad, expected[name], rtol=1e-4, atol=1e-8)


def tables(seed: int, scale: float = 3.0) -> tuple[Tensor, Tensor]:
    """Scores of a student and of a teacher over nine words at four places."""
    random = torch.Generator().manual_seed(seed)
    student, teacher = torch.randn(2, 4, 9, generator=random, dtype=torch.float64) * scale
    return student, teacher


@given(seed=st.integers(0, 99))
def test_the_divergences_are_those_of_the_paper(seed: int) -> None:
    student, teacher = (table.log_softmax(-1) for table in tables(seed, 1.0))

    def kl(one: Tensor, other: Tensor) -> Tensor:
        return (one.exp() * (one - other)).sum(-1)

    torch.testing.assert_close(divergence(student, teacher, 0.0)[0], kl(teacher, student))
    torch.testing.assert_close(divergence(student, teacher, 1.0)[0], kl(student, teacher))
    half = divergence(student, teacher, 0.5)[0]
    torch.testing.assert_close(half, divergence(teacher, student, 0.5)[0])
    assert bool((half <= math.log(2)).all())
    for beta, end in ((1e-5, kl(teacher, student)), (1 - 1e-5, kl(student, teacher))):
        near = divergence(student, teacher, beta)[0] / min(beta, 1 - beta)
        torch.testing.assert_close(near, end, rtol=0.01, atol=1e-3)


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_a_word_that_a_model_cannot_say_counts_as_nothing_where_it_has_no_weight(beta):
    student = torch.tensor([[0.5, 0.25, 0.25]]).log()
    teacher = torch.tensor([[0.5, 0.5, 0.0]]).log()
    if beta == 1:  # KL(student || teacher) of a word of the student's that the teacher never says
        student, teacher = teacher, student
    kl = 0.5 * math.log(2)
    half = 0.125 * math.log(0.25 / 0.125) + 0.25 * math.log(0.5 / 0.375)
    half += 0.125 * math.log(0.25 / 0.375)
    expected = {0.0: kl, 1.0: kl, 0.5: half}[beta]
    assert divergence(student, teacher, beta)[0].item() == pytest.approx(expected, abs=1e-6)


def test_a_head_padded_with_unused_words_changes_nothing() -> None:
    student, teacher = tables(3)
    padding = torch.randn(4, 5, dtype=torch.float64)
    at = torch.arange(4)

    def found(words: Any, told: Tensor) -> Tensor:
        lesson = Lesson(Teacher(0.5, words=words, size=9), told)
        head = torch.eye(9, dtype=torch.float64)
        reads = Reads(at, at, 1.0, True)
        return head_divergence(student, head, None, reads, lesson)[1].divergence_S

    wide = torch.cat([teacher, padding], 1)
    torch.testing.assert_close(found(lambda s: s, teacher), found(lambda s: s, wide))
