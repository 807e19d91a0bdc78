"""Exported folders train in TRL, ms-swift and verl themselves, on this machine's CPU.

Each is a tiny lab's stage with a random model. What is held: the tool takes the folder as it is,
learns from the rewards that Assay gives, and writes a model; losses of SFT are as Assay defines
them.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer

from assay.data.episode import tokens_of
from assay.data.formats.plain_text import PlainText
from assay.data.splits import visits
from assay.engines.environments import installed
from assay.experiment.stage_tables import SftStage
from assay.lab.models.learner import gold_turns
from assay.lab.monitor.observer import Silent
from assay.lab.session.session import Session
from assay.lab.session.validate import read_whole
from assay.runs.history import History
from assay.runs.run_directory import RunDirectory, all_runs
from assay.train.update import make_optimizer
from assay.trainers.register import TRAINERS
from tests.cli.conftest import answer, call
from tests.models.edits import edit_json
from tests.tiny_labs import make_lab

pytestmark = pytest.mark.slow

OWN = """
def odd(row, completion):
    return float(sum(completion.tokens) % 2)
"""
SETTINGS = (
    'stage.rl.start="base"',
    "stage.rl.steps=2",
    "stage.rl.sampling.max_tokens=64",  # some of a random model's answers end
    'stage.rl.reward="path:mine.py:odd"',
    "stage.rl.kl={ coef = 0.01 }",
    "stage.sft.steps=4",
    "stage.sft.checkpoint_every=4",
)
ON_CPU = {"trl": ("--use_cpu", "true"), "swift": (), "verl": ()}


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    root = make_lab(tmp_path, until="[evaluate.dev]").parent
    (root / "mine.py").write_text(OWN)
    return root


def exported(lab: Path, tool: str, stage: str) -> Path:
    """The folder; skips where the tool is not installed."""
    if installed(tool) is None:
        pytest.skip(f"assay engines add {tool}")
    settings = [option for each in SETTINGS for option in ("--set", each)]
    arguments = ("export", lab / "tiny.toml", lab / "out", "--lab", lab, "--to", tool)
    done = call(*arguments, "--stage", stage, "--json", *settings)
    assert done.exit_code == 0, done.stderr
    assert answer(done)["result"]["proof"]["difference"] == ""
    return lab / "out"


def trained(folder: Path, tool: str) -> str:
    """What run.sh printed; it has to end well."""
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    own = {"PYTHON": str(installed(tool)), "ASSAY_PYTHON": sys.executable}
    done = subprocess.run(
        ["bash", "run.sh", *ON_CPU[tool]],
        cwd=folder,
        env=clean | own | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=1500,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout + done.stderr


def history(folder: Path) -> list[dict[str, Any]]:
    """What Transformers' Trainer logged."""
    (file,) = (folder / "output").glob("checkpoint-*/trainer_state.json")
    return json.loads(file.read_text())["log_history"]


def taken_over(lab: Path, folder: Path, tool: str) -> History:
    """What `assay import` makes of the folder; its samples are counted and judged as the tool says,
    and its last checkpoint holds the tool's weights, bit for bit."""
    done = call("import", folder, "--from", tool, "--lab", lab, "--name", "taken")
    assert done.exit_code == 0, done.stderr
    (run,) = (each for each in all_runs(lab) if each.name == "taken")
    history = History(run)
    lines = history.lines("rl")
    assert [line["step"] for line in lines] == [1, 2] == history.sampled("rl")
    for line in lines:
        samples = list(history.samples("rl", line["step"], tokens=True))
        assert len(samples) == line["completions"] == 8
        assert sum(s.reward or 0 for s in samples) / 8 == pytest.approx(line["reward_mean"])
        assert sum(len(s.tokens) for s in samples) / 8 == pytest.approx(line["length_mean"])
        assert all(s.prompt for s in samples)
    kept = load_file(run.checkpoint("rl", 2) / "model.safetensors")
    theirs = own_weights(folder / "output", tool)
    assert kept.keys() == theirs.keys()
    assert all(torch.equal(kept[name], theirs[name].float()) for name in kept)
    return history


def own_weights(output: Path, tool: str) -> dict[str, torch.Tensor]:
    """The last checkpoint as the tool wrote it."""
    if tool != "verl":
        return load_file(output / "checkpoint-2" / "model.safetensors")
    file = output / "global_step_2" / "actor" / "model_world_size_1_rank_0.pt"
    state = torch.load(file, map_location="cpu", weights_only=False)
    found = {n: getattr(tensor, "_local_tensor", tensor) for n, tensor in state.items()}
    return {name: tensor for name, tensor in found.items() if name != "lm_head.weight"}


@pytest.mark.parametrize("tool", ["trl", "swift"])
def test_grpo_trains_on_the_rewards_that_assay_gives(lab: Path, tool: str) -> None:
    folder = exported(lab, tool, "rl")
    trained(folder, tool)
    steps = [each for each in history(folder) if "reward" in each]
    assert len(steps) == 2 and all(0 <= float(each["reward"]) <= 1 for each in steps)
    assert any(0 < float(each["reward"]) < 1 for each in steps)
    assert any(float(each["grad_norm"]) > 0 for each in steps)
    # The end of an answer is part of what is judged and learned, and nothing comes behind it.
    ends = {*json.loads((folder / "reward.json").read_text())["end_tokens"]}
    made = TRAINERS[tool].output(folder / "output", 1).steps(ended=True)
    answers = [each.tokens for step in made for each in step.answers]
    assert any(tokens[-1] in ends for tokens in answers)
    assert not any(ends & {*tokens[:-1]} for tokens in answers)
    rewards = [line["reward_mean"] for line in taken_over(lab, folder, tool).lines("rl")]
    assert rewards == pytest.approx([float(each["reward"]) for each in steps])


def test_grpo_trains_in_verl_without_a_gpu(lab: Path) -> None:
    folder = exported(lab, "verl", "rl")
    trained(folder, "verl")
    lines = (folder / "output" / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line)["data"] for line in lines]
    rewards = [each["critic/score/mean"] for each in steps]
    assert len(steps) == 2 and all(0 <= each <= 1 for each in rewards)
    assert any(each["actor/grad_norm"] > 0 for each in steps)
    # The rollout samples from the weights that are trained, and both compute in float32.
    assert all(each["rollout_corr/log_ppl_abs_diff"] < 1e-4 for each in steps)
    taken = [line["reward_mean"] for line in taken_over(lab, folder, "verl").lines("rl")]
    assert taken == pytest.approx(rewards)


def losses_by_hand(lab: Path) -> list[float]:
    """Four steps of Assay's SFT in a loop of its own: the rows in their order, the mean over the
    trained tokens, the gradient's norm, AdamW. As both tools do, it also trains what the template
    writes behind an answer, which their exports list as a difference."""
    overrides = [each for each in SETTINGS if each.startswith("stage.sft")]
    experiment = read_whole(lab / "tiny.toml", overrides, lab)
    session = Session(experiment, RunDirectory(lab, "tiny", "x"), experiment.seeds[0], Silent())
    stage, given = experiment.stage["sft"], session.stage_input(experiment.stage["sft"])
    assert isinstance(stage, SftStage)
    tokenizer = AutoTokenizer.from_pretrained(lab / "model")
    tail = tokenizer.encode(PlainText(given.encoder.name, tokenizer).tail, add_special_tokens=False)
    model = AutoModelForCausalLM.from_pretrained(lab / "model", dtype=torch.float32)
    optimizer = make_optimizer(model.parameters(), lr=stage.optimizer.lr)
    losses = []
    for step in range(4):
        rows = visits(given.rows, given.seed, step * stage.batch, stage.batch, given.order)
        parts, count = [], 0
        for _, row in rows:
            (turn,) = gold_turns(given.encoder, given.task, row)
            context, answer = tokens_of(turn.context), (*turn.actions, *tail)
            logits = model(torch.tensor([[*context, *answer]])).logits[0, len(context) - 1 : -1]
            parts.append(cross_entropy(logits, torch.tensor(answer), reduction="sum"))
            count += len(answer)
        loss = torch.stack(parts).sum() / count
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), stage.optimizer.clip_norm)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(("tool", "dropout"), [("trl", 0.0), ("trl", 0.3), ("swift", 0.3)])
def test_losses_of_sft_are_those_of_assays_definitions(
    lab: Path, tool: str, dropout: float
) -> None:
    edit_json(lab / "model" / "config.json", attention_dropout=dropout)
    folder = exported(lab, tool, "sft")
    about = json.loads((folder / "translation.json").read_text())
    assert "(end of answers)" in [each["key"] for each in about["differences"]]
    trained(folder, tool)
    theirs = [float(each["loss"]) for each in history(folder) if "loss" in each]
    done = call("import", folder, "--from", tool, "--lab", lab, "--name", "taken", "--json")
    result = answer(done)["result"]
    assert "stage.sft.start" not in result["unknown"] and "start" not in result["differences"]
    (run,) = (each for each in all_runs(lab) if each.name == "taken")
    assert [line["nll"] for line in History(run).lines("sft")] == pytest.approx(theirs, abs=1e-7)
    assert theirs == pytest.approx(losses_by_hand(lab), rel=2e-3)
