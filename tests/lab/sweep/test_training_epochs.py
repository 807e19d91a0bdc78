"""The training tables: means by epoch, the direction of KL, the data files.

Report 002 prints three epochs: its figures are here as steps, and its reading of KL is refuted.
"""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from assay.data.row import Message, Row
from assay.lab.setup.manifest import group_figures
from assay.lab.sweep.model import Matrix
from assay.lab.sweep.request import Request, make_matrix
from assay.pages.matrix_page import percent_change, training_blocks
from assay.pages.words import words
from assay.runs.run_directory import RunDirectory
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


@pytest.fixture
def lab(tmp_path: Path) -> PivotLab:
    made = make_pivot_lab(tmp_path)
    text = made.base.read_text().partition("[stage.sft]")
    rest = text[2].partition("[evaluate.dev]")
    made.base.write_text(text[0] + STAGE + rest[1] + rest[2].replace("sft.", "rl."))
    return made


def trained(lab: PivotLab, name: str, lines: list[Line], **data: Any) -> RunDirectory:
    """A run with recorded steps, 8 rows and 4 prompts a step: an epoch every two steps."""
    table = {"contents_sha256": "a" * 64, "train": {"rows": 8}, **data}
    run = lab.run(name, manifest={"data": {"sums": table}})
    run.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    score(run, "rl.step-000006", ones(30, 60))
    return run


def shown(matrix: Matrix, lang: str = "en") -> str:
    """The training tables with what is said of them, as a terminal shows them."""
    return " ".join(printed(training_blocks(matrix, words(lang)), lang).split())


def matrix_of(lab: PivotLab, *names: str) -> Matrix:
    return make_matrix(lab.root, names, Request(rows="name"))


def test_the_epochs_of_report_002_come_out_of_their_steps(lab):
    trained(lab, "kl-12", lines_of())
    (found,) = matrix_of(lab, "kl-12").trainings
    assert [epoch.steps for epoch in found.epochs] == [2, 2, 2]
    for epoch, (loss, val, policy, kl, std, most) in zip(found.epochs, REPORT_002, strict=True):
        expected = {
            "loss": loss, "validation_loss": val, "policy_loss": policy, "kl": kl,
            "advantage_std": std, "advantage_max": most, "kl_coef": BETA, "reward_mean": 0.5,
        }  # fmt: skip
        assert epoch.values == pytest.approx(expected, rel=1e-3)
    changes = [percent_change(*pair, "kl") for pair in pairwise(found.epochs)]
    assert changes == pytest.approx([-0.135, -0.088], abs=1e-3), "the report's own percentages"
    changes = [percent_change(*pair, "policy_loss") for pair in pairwise(found.epochs)]
    assert changes == pytest.approx([1.44, 0.11], abs=1e-2)


def test_a_falling_kl_is_a_policy_on_its_way_back(lab):
    """Report 002 reads it as drift away from the start."""
    trained(lab, "kl-12", lines_of())
    text = shown(matrix_of(lab, "kl-12"))
    assert "moved back towards it" in text and "moved away from the" not in text
    assert "0.094" in text and "0.07414" in text


def test_a_rising_kl_moves_away_and_a_kl_at_the_first_step_has_another_cause(lab):
    lines = lines_of()
    for n, line in enumerate(lines):
        line["kl_loss"] = 0.001 * n
    trained(lab, "up", lines)
    trained(lab, "kl-12", lines_of())
    up, _, down = shown(matrix_of(lab, "up", "kl-12")).partition("kl-12/")
    assert "the policy moved away from the frozen weights" in up
    assert "at the first step" in down and "at the first step" not in up


def test_runs_on_other_data_are_named_with_their_shares_at_both_levels(lab):
    """The two files of report 002, one of which has 5 of 800 queries with a positive."""
    old = {"queries": 800, "candidates": 8800, "mean_reward": 0.0020,
           "positive_queries": 5, "positive_candidates": 6, "tied_queries": 795}  # fmt: skip
    new = {**old, "mean_reward": 1.0264, "positive_queries": 664, "positive_candidates": 4690}
    trained(lab, "kl-12", lines_of(), groups=old)
    trained(lab, "kl-15", lines_of(), groups=new, contents_sha256="b" * 64)
    trained(lab, "kl-18", lines_of(), groups=new, contents_sha256="b" * 64)
    matrix = matrix_of(lab, "kl-12", "kl-15", "kl-18")
    assert [len(each.runs) for each in matrix.data_files] == [1, 2]
    text = shown(matrix)
    for cells in ("0.0020 5 of 800 (0.6%) 6 of 8800 (0.1%)", "They are not comparable"):
        assert cells in text
    assert "1.0264 664 of 800 (83.0%) 4690 of 8800 (53.3%)" in text
    asked = Request(rows="name", baseline="name=kl-12")
    compared = make_matrix(lab.root, ["kl-12", "kl-15"], asked).cells["kl-15", None].comparison
    assert compared is not None and compared.verdict == "not comparable"
    assert "data.sums.contents_sha256" in compared.confounds
    allowed = Request(rows="name", baseline="name=kl-12", allow=("data.sums",))
    compared = make_matrix(lab.root, ["kl-12", "kl-15"], allowed).cells["kl-15", None].comparison
    assert compared is not None and compared.verdict != "not comparable"


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
