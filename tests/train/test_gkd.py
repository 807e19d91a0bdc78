"""Losses and gradients of distillation are those of TRL's GKDTrainer on the same batch.

`python -m tests.train.test_gkd` runs TRL and records what it answers.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from assay.data.episode import Episode, Turn
from assay.engines.environments import ask
from assay.models.distilling import Lesson, Teacher, head_divergence
from assay.models.inference import inference_model
from assay.models.precision import choose_precision
from assay.models.prefix_tree import answer_hidden
from assay.models.scoring import Reads
from assay.rl.objectives import DistillObjective
from assay.rl.packed import Packed
from assay.rollout.policies.language import LanguagePolicy
from assay.tasks.helper_model import NextWords
from assay.train.likelihood import Tell, packed_batch, with_teacher
from assay.train.update import Totals, accumulate
from tests.tiny import VOCABULARY, tiny_model

SCRIPT = Path(__file__).with_name("gkd_in_trl.py")
RECORD = SCRIPT.with_name("gkd_by_trl.json")
BETAS = (0.0, 0.1, 0.5, 1.0)
PROMPTS = [[5, 9, 17], [5, 9, 17, 33, 4], [8]]
ANSWERS = [[40, 41, 42, 7], [43, 1], [44, 45, 46, 47, 48, 1]]


def batch() -> dict[str, Any]:
    """Prompts padded on the left and answers on the right, as TRL's collator has them."""
    before, after = max(map(len, PROMPTS)), max(map(len, ANSWERS))
    rows = list(zip(PROMPTS, ANSWERS, strict=True))
    left = [[0] * (before - len(p)) for p, _ in rows]
    right = [[0] * (after - len(a)) for _, a in rows]
    sides = list(zip(left, rows, right, strict=True))
    return {
        "ids": [[*lo, *p, *a, *hi] for lo, (p, a), hi in sides],
        "attention": [[0] * len(lo) + [1] * len(p + a) + [0] * len(hi) for lo, (p, a), hi in sides],
        "labels": [[-100] * before + a + [-100] * len(hi) for _, (_, a), hi in sides],
    }


def tables() -> list[dict[str, Any]]:
    """Scores of both models over seven words at three places."""
    random = torch.Generator().manual_seed(3)
    draw = [(2 * torch.randn(3, 7, generator=random)).tolist() for _ in range(2)]
    cases = [(beta, warmth, 0) for beta in BETAS for warmth in (1.0, 0.6, 2.0)]
    cases += [(beta, 1.0, top) for beta in BETAS for top in (1, 4)]
    names = ("beta", "temperature", "top_k")
    scores = {"student": draw[0], "teacher": draw[1]}
    return [{**scores, **dict(zip(names, case, strict=True))} for case in cases]


def asked(folder: Path) -> dict[str, Any]:
    for seed, name in ((0, "student"), (1, "teacher")):
        tiny_model(seed=seed).save_pretrained(folder / name)
    places = {name: str(folder / name) for name in ("student", "teacher")}
    return {**places, **batch(), "betas": BETAS, "tables": tables()}


def teller(teacher: PreTrainedModel) -> Tell:
    """Asks a teacher as a helper model in this process is asked."""
    model = inference_model(teacher, torch.float32)

    def tell(contexts: Any, answers: Any) -> NextWords:
        hidden_SD, read = answer_hidden(model, contexts, answers)
        return NextWords(read, hidden_SD, model.words, VOCABULARY)

    return tell


def our_batch(teacher: Teacher, tell: Tell) -> Packed:
    rows = list(zip(PROMPTS, ANSWERS, strict=True))
    turns = [Turn(tuple(p), tuple(a), (True,) * len(a)) for p, a in rows]
    episodes = [Episode(f"{n}#0", f"{n}", (turn,)) for n, turn in enumerate(turns)]
    return with_teacher(packed_batch(episodes, 1.0), teacher, tell)


def our_update(
    teacher: Teacher, *, seed: int = 1, micro_tokens: int = 2048
) -> tuple[Totals, dict[str, Tensor]]:
    """What is found of the batch here, and the student's gradient."""
    student, other = tiny_model(seed=0), tiny_model(seed=seed)
    policy = LanguagePolicy(student, choose_precision("fp32", "cpu"), frozenset({1}))
    totals = accumulate(policy, our_batch(teacher, teller(other)), DistillObjective(), micro_tokens)
    return totals, {n: p.grad for n, p in student.named_parameters() if p.grad is not None}


def compare(answer: dict[str, Any]) -> None:
    """Compare everything that TRL answered with what is computed here."""
    for told in answer["models"]:
        totals, grads = our_update(Teacher(told["beta"]))
        assert totals.loss == pytest.approx(told["loss"], rel=2e-6)
        norms = {name: float(grad.norm()) for name, grad in grads.items()}
        assert norms == pytest.approx(told["norms"], rel=2e-5)
    for case, told in zip(tables(), answer["tables"], strict=True):
        student_SV = torch.tensor(case["student"], dtype=torch.float64, requires_grad=True)
        names = case["beta"], case["temperature"], case["top_k"] or None
        teacher = Teacher(*names, words=lambda scores_SV: scores_SV)
        lesson = Lesson(teacher, torch.tensor(case["teacher"], dtype=torch.float64))
        at_S = torch.arange(3)
        head = torch.eye(student_SV.shape[1], dtype=torch.float64)
        reads = Reads(at_S, at_S, 1.0, True)
        found_S = head_divergence(student_SV, head, None, reads, lesson)[1].divergence_S
        found_S.mean().backward()
        assert float(found_S.detach().mean()) == pytest.approx(told["loss"], rel=1e-12)
        assert student_SV.grad is not None
        torch.testing.assert_close(student_SV.grad, torch.tensor(told["gradient"]).double())


def test_losses_and_gradients_are_those_that_trl_was_recorded_with():
    compare(json.loads(RECORD.read_text()))


@pytest.mark.slow
def test_losses_and_gradients_are_those_of_trl(tmp_path: Path):
    answer = ask("trl", SCRIPT, asked(tmp_path))
    compare(answer)
    recorded = json.loads(RECORD.read_text())
    losses = [[each["loss"] for each in found["models"]] for found in (answer, recorded)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        answer = ask("trl", SCRIPT, asked(Path(place)))
    RECORD.write_text(json.dumps(answer) + "\n")
