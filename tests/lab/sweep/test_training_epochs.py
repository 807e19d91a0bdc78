"""The training tables, from the three epochs that report 002 prints: here they are steps."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay.data.row import Message, Row
from assay.lab.session.manifest import group_figures
from assay.lab.sweep.model import Matrix
from assay.pages.matrix_page import training_blocks
from assay.pages.words import words
from tests.lab.pivot_lab import PivotLab, make_pivot_lab, ones, score
from tests.pages.pages import printed

REPORT_002 = (
    # Train loss, val loss, PPO loss, KL, adv std, adv max
    (0.01162, 5.11661, 0.00034, 0.09400, 0.0063, 0.0072),
    (0.01059, 5.11663, 0.00083, 0.08131, 0.0062, 0.0090),
    (0.00982, 5.11607, 0.00092, 0.07414, 0.0062, 0.0090),
)
BETA = 0.12
Line = dict[str, Any]
STAGE = """
[stage.rl]
method = "grpo"
data = "sums"
reward = "accuracy"
steps = 6
prompts = 4
group = 8
kl = { coef = 0.12 }
checkpoint_every = 2
"""


def lines_of(steps: int = 2) -> list[Line]:
    """Two steps for each epoch, whose means are the report's figures."""
    found: list[Line] = []
    for _, val, policy, kl, std, most in REPORT_002:
        for part in range(steps):
            shift = (part - (steps - 1) / 2) * 0.002
            line = {
                "stage": "rl",
                "step": len(found) + 1,
                "seconds": 1.0,
                "loss": policy + BETA * (kl + shift),
                "policy_loss": policy,
                "kl_loss": kl + shift,
                "kl": 9.0,
                "kl_coef": BETA,
                "advantage_std": std,
                "advantage_max": most,
                "reward_mean": 0.5,
            }
            found.append(line | ({"validation_loss": val} if part == steps - 1 else {}))
    return found


SWEEP = """\
name = "t"
base = "base.toml"
on = ["test"]
[axes]
stage.rl.kl.coef = [0.12, 0.18]
"""


@pytest.fixture
def lab(tmp_path: Path) -> PivotLab:
    made = make_pivot_lab(tmp_path)
    text = made.base.read_text().partition("[stage.sft]")
    rest = text[2].partition("[evaluate.dev]")
    made.base.write_text(text[0] + STAGE + rest[1] + rest[2].replace("sft.", "rl."))
    return made


def trained(lab: PivotLab, coef: float, lines: list[Line]) -> None:
    """A run with recorded steps, 8 rows and 4 prompts a step: an epoch every two steps."""
    run = lab.run(f"t.coef-{coef}", f"stage.rl.kl.coef={coef}", rows=8)
    run.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    score(run, "rl.step-000006", ones(30, 60))


def shown(matrix: Matrix) -> str:
    """The training tables with what is said of them, as a terminal shows them."""
    return " ".join(printed(training_blocks(matrix, words("en")), "en").split())


def test_the_epochs_of_report_002_come_out_of_their_steps(lab):
    """Its reading of the falling KL, as drift away from the start, is refuted."""
    trained(lab, 0.12, lines_of())
    matrix = lab.matrix(SWEEP)
    (found,) = matrix.trainings
    for epoch, (loss, val, policy, kl, std, most) in zip(found.epochs, REPORT_002, strict=True):
        expected = {
            "loss": loss, "validation_loss": val, "policy_loss": policy, "kl": kl,
            "advantage_std": std, "advantage_max": most, "kl_coef": BETA, "reward_mean": 0.5,
        }  # fmt: skip
        assert epoch == pytest.approx(expected, rel=1e-3)
    text = shown(matrix)
    for figure in ("0.0813 (−13.5%)", "0.0741 (−8.8%)", "(+144.1%)", "moved back towards it"):
        assert figure.split(" (")[-1] in text
    assert "moved away from the" not in text


def test_a_rising_kl_moves_away(lab):
    lines = lines_of()
    for n, line in enumerate(lines):
        line["kl_loss"] = 0.001 * n
    trained(lab, 0.18, lines)
    assert "the policy moved away from the frozen weights" in shown(lab.matrix(SWEEP))


def test_shares_of_queries_and_of_candidates_are_counted_apart():
    rewards = [[0.0, 1.6, 0.0], [0.0, 0.0, 0.0], [2.0, 2.0, None]]
    rows = [
        Row(str(n), (Message("user", "?"),), extra={"candidates": [{"reward": r} for r in group]})
        for n, group in enumerate(rewards)
    ]
    assert group_figures(rows) == {
        "queries": 3,
        "candidates": 8,
        "mean_reward": pytest.approx(5.6 / 8),
        "positive_queries": 2,
        "positive_candidates": 3,
        "tied_queries": 2,
    }
    assert group_figures([Row("a", (Message("user", "?"),))]) == {}
