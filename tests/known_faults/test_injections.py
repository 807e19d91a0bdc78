"""Faults that cost others weeks, built into the real code: what Assay says of each."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from assay.errors import RunFailure
from assay.lab.monitor.observer import Silent
from assay.lab.monitor.stage_health import stage_health
from assay.lab.run import merged_export
from assay.rl import losses
from assay.rl.losses import Clip, PolicyLoss, TokenBatch, TokenLoss
from assay.runs.history import History
from assay.runs.run_directory import runs_of
from tests.cli.conftest import assert_one_line, call
from tests.from_files import start
from tests.lab.evaluate.test_fallback_share import EVALUATION
from tests.lab.run.test_restore import Stopping
from tests.lab.sound_lab import found
from tests.lab.tool_lab import look, make_tool_lab
from tests.tiny_labs import make_lab


def test_a_loss_that_does_not_depend_on_the_policy_stops_its_run_at_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def constant(batch: TokenBatch, clip: Clip) -> TokenLoss:
        fixed = losses.ppo_clip(replace(batch, logps_S=batch.logps_S.detach()), clip)
        return replace(fixed, loss_S=fixed.loss_S + 0.0 * batch.logps_S)

    monkeypatch.setitem(losses.LOSSES, "ppo_clip", PolicyLoss(constant, "token"))
    file = make_lab(tmp_path, until="[evaluate.dev]", edits={"steps  = 40": "steps  = 2"})
    with pytest.raises(RunFailure, match="step 1: the gradient is exactly 0") as stopped:
        start(file, root=tmp_path)
    assert stopped.value.exit_code == 1
    (run,) = runs_of(tmp_path, "tiny")
    assert History(run).lines("rl")[-1]["step"] == 1


def test_a_reward_that_no_completion_earns_is_found_in_the_first_steps(tmp_path: Path) -> None:
    edits = {"steps  = 40": "steps  = 1", "accuracy = 1.0, cosine = 0.5": "accuracy = 1.0"}
    file = make_lab(tmp_path, until="[evaluate.dev]", edits=edits)
    (run,) = start(file, root=tmp_path)
    (told,) = [e for e in stage_health(History(run), "rl").findings if e.code == "no_signal"]
    assert told.severity == "error" and len(History(run).lines("rl")) == 4


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="the device's memory is counted apart")
@pytest.mark.parametrize("size", [0, 24])
def test_memory_that_grows_with_every_step_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    kept = list[bytes]()
    monkeypatch.setattr(Silent, "step", lambda *_: kept.append(b"x" * (size << 20)))
    edits = {"steps  = 40": "steps  = 30", "checkpoint_every = 8": "checkpoint_every = 30"}
    file = make_lab(tmp_path, until="[stage.rl]", edits=edits)
    (run,) = start(file, root=tmp_path)
    codes = {each.code for each in stage_health(History(run), "sft").findings}
    assert (len(kept), "growing_memory" in codes) == (30, bool(size))


def test_answers_that_the_token_limit_cut_are_warned_of_beside_the_score(tmp_path: Path) -> None:
    tables = EVALUATION.format(path=tmp_path / "test.jsonl")
    file, told = make_lab(tmp_path, until="[stage.sft]", tables=tables), Stopping()
    start(file, root=tmp_path, observer=told, despite="answers do not fit")
    (warning,) = [note for note in told.notes if note.startswith("warning: base on test: ")]
    assert "4 of 4 answers (100.0%, more than 10%) count as wrong because they were cut" in warning


TENSOR = "model.layers.0.mlp.up_proj.weight"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lab whose run has trained two steps."""
    root = tmp_path_factory.mktemp("trained")
    file = make_lab(root, until="[stage.rl]", edits={"steps  = 40": "steps  = 2"})
    start(file, root=root)
    return root


@pytest.mark.parametrize("fault", ["lost", "one tensor lost"])
def test_an_export_that_is_another_model_than_its_checkpoint_is_refused(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    whole = merged_export.save_weights

    def without(model, part: Path) -> None:
        whole(model, part)
        file = part / "model.safetensors"
        state = load_file(file)
        if fault == "lost":
            base = load_file(trained / "model" / "model.safetensors")
            state = {name: base[name].to(tensor.dtype) for name, tensor in state.items()}
        else:
            del state[TENSOR]
        save_file(state, file, metadata={"format": "pt"})

    monkeypatch.setattr(merged_export, "save_weights", without)
    done = call("export", "--lab", trained, "tiny@sft.last", tmp_path / "out")
    assert_one_line(done, "read back as another model than the checkpoint", code=1)
    assert (f": 1 of 21 tensors, {TENSOR};" in done.stderr) == (fault != "lost")
    assert list(tmp_path.iterdir()) == []


ENDED = """                {{- '<|im_end|>\\n' }}
            {%- elif message.role == "tool" %}"""


def test_a_separator_that_one_side_lacks_is_named_by_its_token(tmp_path: Path) -> None:
    lab = make_tool_lab(tmp_path).parent
    template = lab / "model" / "chat_template.jinja"
    text = template.read_text()
    assert ENDED in text
    without = ENDED.replace(
        "'<|im_end|>\\n'", "'<|im_end|>' + ('' if joined is defined else '\\n')"
    )
    template.write_text(text.replace(ENDED, without))
    both = ("stage.sft.rendering=template", "evaluate.dev.rendering=template")
    report = look(lab, *both, "stage.sft.template_options={ joined = true }")
    finding = found(report, "stage.sft is trained by 'template', evaluate.dev asks by")
    assert report.failed and finding.severity == "error"
    assert r"is '<|im_start|>' in one and '\n' in the other" in finding.evidence
