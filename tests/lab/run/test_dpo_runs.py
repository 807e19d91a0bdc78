"""DPO stages through `assay run`: pairs of stored candidates, against the weights at the start,
killed and resumed to the last bit, refused where they have nothing to prefer."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay.lab.run.runner import start
from assay.runs.run_directory import RunDirectory
from tests.labs import make_lab

DPO = """
[data.groups]
source = "path:groups.jsonl"
format = "messages"

[stage.prefer]
method = "dpo"
data   = "groups"
epochs = 2
batch  = 4
beta   = 0.5
scores = "score"
pairs  = { per_group = 2 }
checkpoint_every = 2
optimizer = { lr = 1e-2 }
"""


def write_groups(file: Path) -> None:
    """Five groups of three answers, of which one group's are equally good."""
    lines = []
    for n in range(5):
        texts = [f"{n + 4}", f"{n}", f"about {n}"]
        rewards = [1.0, 0.5, 0.0] if n else [0.5, 0.5, 0.5]
        lines.append(
            {
                "id": f"{n}+4",
                "messages": [{"role": "user", "content": f"{n} + 4 = ?"}],
                "candidates": [
                    {"text": text, "reward": reward}
                    for text, reward in zip(texts, rewards, strict=True)
                ],
            }
        )
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def make_dpo_lab(folder: Path, tables: str = DPO) -> Path:
    file = make_lab(folder, until="[stage.sft]", tables=tables)
    write_groups(folder / "groups.jsonl")
    return file


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    file = make_dpo_lab(tmp_path_factory.mktemp("dpo"))
    (found,) = start(file, root=file.parent)
    return found


def lines(run: RunDirectory, stage: str = "prefer") -> list[dict[str, Any]]:
    every = map(json.loads, run.metrics.read_text().splitlines())
    return [line for line in every if line["stage"] == stage]


def test_an_epoch_is_a_pass_over_the_pairs_and_groups_of_equal_scores_give_none(run):
    found = lines(run)
    assert len(found) == 4, "two epochs of 8 pairs, 4 a step"
    assert {line["pairs"] for line in found} == {4.0}
    assert {line["signal_share"] for line in found} == {0.8}
    assert "api_error_share" not in found[0] and "reward_mean" not in found[0]


def test_the_first_margin_is_0_and_training_widens_it(run):
    first, *_, last = lines(run)
    assert abs(first["reward_margin"]) < 1e-4 and abs(first["kl"]) < 1e-6
    assert first["loss"] == pytest.approx(0.6931, abs=1e-4) == first["preference_loss"]
    assert last["reward_margin"] > 0.1 and last["loss"] < 0.69 and last["kl"] > 0
    assert last["reward_accuracy"] > 0.5
