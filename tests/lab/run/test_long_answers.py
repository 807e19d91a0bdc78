"""A long chain of thought as SFT: rows far beyond the budget of a micro-batch."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from pytest import MonkeyPatch

from assay.experiment.checkpoint_reference import CheckpointReference
from assay.lab.models import language_learner
from assay.lab.monitor.observer import Silent
from assay.lab.session.session import Session
from assay.lab.session.stage_methods import build_method, largest_of
from assay.lab.session.validate import read_whole
from assay.models.memory import StepLoad, estimate_memory, model_shape
from assay.runs.run_directory import RunDirectory
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
