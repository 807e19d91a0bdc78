"""A long chain of thought as SFT: rows far beyond the budget, checked, run, killed and resumed."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from pytest import MonkeyPatch

from assay.cli.main import app
from assay.experiment.checkpoint_reference import CheckpointReference
from assay.lab.check import work
from assay.lab.monitor.observer import Silent
from assay.lab.run.runner import start
from assay.lab.setup import language_learner
from assay.lab.setup.session import Session
from assay.lab.setup.stage_methods import build_method, largest_of
from assay.lab.setup.validate import read_whole
from assay.models.memory import StepLoad, estimate_memory, model_shape
from assay.runs.run_directory import RunDirectory, runs_of
from tests.forked import forked, kill
from tests.lab.run.test_kill import everything
from tests.tiny_labs import make_lab, model_of

TEMPLATE = (
    "{% if messages[0]['role'] != 'system' %}{{ 'system: Box the answer.\n' }}{% endif %}"
    "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)
"""It has a system text of its own and ends no answer."""
STAGE = """
[stage.sft]
method = "sft"
data   = "sums"
steps  = 5
batch  = 3
micro_tokens = 256
checkpoint_every = 1
rendering = "template_bare"
optimizer = { lr = 1e-3, schedule = "cosine", min_lr = 1e-4, warmup = 0.2 }

[data.asked]
source = "path:asked.jsonl"
format = "messages"

[evaluate.test]
data   = "asked"
reward = "contains"
role   = "report"
rendering = "template_bare"
checkpoints = ["sft.last"]
sampling = { max_tokens = 8 }
"""
LONGEST = 3000
"""Bytes, each a token, of the longest answer."""
WHOLE = len("user: 7 + 10 = ?\nassistant: ") + LONGEST + 1
"""Of its row, the end included."""
EDITS = {'task  = "math"': 'task  = "chat"', 'split  = { dev = 0.25, by = "conversation" }': ""}


def thought(length: int, answer: int) -> str:
    end = f" \\boxed{{{answer}}}"
    return ("Add the ones, then the tens; carry if need be. " * 99)[: length - len(end)] + end


def write_answers(lab: Path, lengths: Mapping[int, int]) -> None:
    """Sums 7 + n with answers of so many bytes."""
    lines = [
        {
            "id": f"7+{n}",
            "messages": [
                {"role": "user", "content": f"7 + {n} = ?"},
                {"role": "assistant", "content": thought(length, 7 + n)},
            ],
            "gold": str(7 + n),
        }
        for n, length in lengths.items()
    ]
    (lab / "sums.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (lab / "asked.jsonl").write_text(
        "".join(
            json.dumps(line | {"id": f"asked {line['id']}"}).replace("7 +", "8 +") + "\n"
            for line in lines[:3]
        )
    )


def make_long_lab(folder: Path, lengths: Mapping[int, int]) -> Path:
    made = make_lab(
        folder,
        until="[stage.sft]",
        tables=STAGE,
        edits=EDITS,
        template=TEMPLATE,
        positions=2 * LONGEST,
    )
    write_answers(folder, lengths)
    return made


MIXED = dict.fromkeys(range(1, 10), 40) | {10: LONGEST, 11: LONGEST // 2}


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    return make_long_lab(tmp_path, MIXED).parent


def session_of(lab: Path) -> Session:
    experiment = read_whole(lab / "tiny.toml", (), lab)
    return Session(experiment, RunDirectory(lab, experiment.name, "none"), 7, Silent())


def fit(lab: Path, free: float) -> tuple[tuple[str, ...], bool]:
    """What the stage says of its memory, and whether its layers are run again."""
    session = session_of(lab)
    stage = session.experiment.stage["sft"]
    given = session.stage_input(stage)
    with MonkeyPatch.context() as patch:
        patch.setattr(language_learner, "available_memory", lambda device: free)
        opened = session.learner.policy(session.run, stage)
    words = opened.fit(largest_of(stage, build_method(stage, given, 5), given.encoder))
    layers = opened.policy.module.base_model.layers  # type: ignore[union-attr]
    return tuple(words), layers[0].gradient_checkpointing  # type: ignore[union-attr]


def needed(lab: Path, tokens: int) -> float:
    """Free bytes with which a micro-batch of so many tokens just does not fit as it stands."""
    session = session_of(lab)
    shape = model_shape(model_of(session, CheckpointReference(None)).config)
    bf16 = session.precision.compute != session.precision.master
    load = StepLoad(tokens, logit_rows=tokens, bf16=bf16)
    return 0.97 * 1.25 * estimate_memory(shape, load).total


def test_the_longest_row_decides_whether_layers_are_run_again(lab: Path) -> None:
    """The mean row would fit many times over."""
    free = needed(lab, WHOLE)
    words, again = fit(lab, free)
    assert again and "activations are computed twice" in words[0]
    assert f"{WHOLE:,} in the longest row" in words[0]
    assert fit(lab, 1.1 * free) == ((), False)
    write_answers(lab, dict.fromkeys(MIXED, 40))
    assert fit(lab, free) == ((), False)


def short_of_memory(free: float, *words: str) -> None:
    """`assay WORDS` on a machine with so much memory."""
    with MonkeyPatch.context() as patch:
        for module in (language_learner, work):
            patch.setattr(module, "available_memory", lambda device: free)
        app(list(words))


@pytest.mark.slow
def test_a_long_stage_killed_and_resumed_ends_with_the_same_weights(lab: Path) -> None:
    free, log = needed(lab, WHOLE), lab / "log.txt"
    words = ("run", str(lab / "tiny.toml"), "--or-resume", "--lab", str(lab))
    first = forked(short_of_memory, free, *words, log=log, HF_HUB_OFFLINE="1")
    while first.is_alive() and not any(lab.glob("runs/tiny/*/checkpoints/sft/step-000002")):
        first.join(0.005)
    assert first.is_alive(), log.read_text()
    kill(first)
    second = forked(short_of_memory, free, *words, log=log, HF_HUB_OFFLINE="1")
    second.join(120)
    assert second.exitcode == 0, log.read_text()
    assert log.read_text().count("activations are computed twice") == 2
    (resumed,) = runs_of(lab, "tiny")
    # With memory enough for all activations the same numbers come out.
    start(lab / "tiny.toml", root=lab, new=True)
    kept = runs_of(lab, "tiny")[-1]
    assert kept.path != resumed.path
    assert everything(resumed.path) == everything(kept.path)
    steps = [json.loads(line) for line in kept.metrics.read_text().splitlines()]
    assert [step["learning_rate"] for step in steps] == pytest.approx(
        [1e-3, 1e-3, 8.68e-4, 5.5e-4, 2.32e-4], rel=1e-3
    )
