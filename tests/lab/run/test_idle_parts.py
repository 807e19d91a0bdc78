"""Real tiny runs whose algorithm lacks what makes it itself: every page of them says so."""

import json
from pathlib import Path

import pytest

from assay.cli.main import app
from assay.errors import Finding
from assay.lab.monitor.stage_health import stage_health
from assay.pages.run_page import write_report
from assay.runs.history import History
from assay.runs.run_directory import RunDirectory, runs_of
from assay.train import grpo
from tests.tiny_labs import make_lab

pytestmark = pytest.mark.slow
PARTS = "stage.rl.reward={ accuracy = 1.0, cosine = 0.5, bonus = { kind = 'text.length_bonus' } }"
SHORT = ("stage.sft.steps=5", "stage.sft.checkpoint_every=5", "stage.rl.prompts=4")
DESPITE = "--despite=a random model earns what form alone earns"


def run_of(folder: Path, *settings: str) -> RunDirectory:
    """The tiny lab, run by the command line."""
    file = make_lab(folder, until="[evaluate.dev]")
    sets = [part for each in (*SHORT, *settings) for part in ("--set", each)]
    app(["run", str(file), "--lab", str(file.parent), DESPITE, *sets], standalone_mode=False)
    return runs_of(file.parent, "tiny")[-1]


def found(run: RunDirectory) -> dict[str, Finding]:
    return {each.code: each for each in stage_health(History(run), "rl").findings}


def test_a_stage_too_short_for_its_guard_says_that_egpo_was_grpo(tmp_path, capsys) -> None:
    run = run_of(tmp_path, "stage.rl.algorithm=egpo", "stage.rl.steps=3", PARTS)
    said = "the bonus of EGPO was nothing: it trained as grpo"
    part = "a part of the reward was never earned: it trained as without it"
    ended = " ".join(capsys.readouterr().out.split())
    assert f"error: rl: {said} (bonus_to_advantage: at most 0.000" in ended
    assert f"error: rl: {part} (part/accuracy: exactly" in ended
    app(["report", "tiny", "--full", "--lab", str(run.root)], standalone_mode=False)
    report = " ".join(capsys.readouterr().out.split())
    assert said in report and "part/bonus: exactly 0 in all 3 steps" in report
    page = write_report(run)
    for text in (page.read_text(), page.with_suffix(".md").read_text()):
        assert said in text and part in text and "look at the rendering" in text
    app(["--json", "report", "tiny", "--lab", str(run.root)], standalone_mode=False)
    assert said in json.dumps(json.loads(capsys.readouterr().out))


def test_a_policy_that_never_leaves_its_reference_has_no_kl(tmp_path) -> None:
    """Updates that are too small for the weights' precision: the gradient is not 0, the KL is."""
    still = ("stage.rl.kl={ coef = 0.1 }", "stage.rl.optimizer={ lr = 1e-30, weight_decay = 0.0 }")
    assert found(run_of(tmp_path, *still, "stage.rl.steps=3"))["no_kl"].severity == "error"


def test_a_kl_of_a_policy_that_moves_is_none_of_it(tmp_path) -> None:
    assert "no_kl" not in found(run_of(tmp_path, "stage.rl.kl={ coef = 0.1 }"))


def test_a_punishment_that_is_lost_is_told_where_answers_were_cut(tmp_path, monkeypatch) -> None:
    settings = ("stage.rl.overlong={ buffer = 4 }", "stage.rl.sampling.max_tokens=3")
    run = run_of(tmp_path, *settings)
    assert "no_punishment" not in found(run)
    monkeypatch.setattr(grpo, "overlong_punishment", lambda *_: 0.0)
    run = run_of(tmp_path / "lost", *settings)
    assert found(run)["no_punishment"].severity == "error"


def test_parts_that_act_say_nothing_and_parts_without_occasion_are_notes(tmp_path) -> None:
    settings = (
        "stage.rl.algorithm=dapo",
        "stage.rl.dynamic={ max_batches = 3 }",
        "stage.rl.mask_truncated=true",
        "stage.rl.optimizer={ lr = 5e-3 }",
        "stage.rl.top_entropy_share=0.5",
        "stage.rl.entropy_coef=0.01",
    )
    health = stage_health(History(run_of(tmp_path, *settings)), "rl")
    states = {each.rule: each.state for each in health.states}
    assert states["no_entropy_bonus"] == states["no_entropy_cut"] == "ok"
    assert states["no_replacement"] in ("ok", "note") and states["no_mask"] in ("ok", "note")
