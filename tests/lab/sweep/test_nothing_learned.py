"""Runs that learned nothing are named by `fill` and `matrix`, and cells that are their control."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from assay.data.files import write_checksums
from assay.lab.monitor.stage_health import unlearned
from assay.lab.sweep import missing_runs
from assay.lab.sweep.read_sweep import plan, read_sweep
from assay.runs.run_directory import RunDirectory
from assay.runs.run_files import Selection, write_selections
from tests.cli.conftest import answer, call
from tests.lab.pivot_lab import HARD, LAST, TEST, PivotLab, make_pivot_lab, ones, score
from tests.lab.sweep.test_missing_runs import STUB, SWEEP

BATCH = "stage.sft.batch"
DEMOS = Path(__file__).parents[3] / "experiments/demos"


def saved(run: RunDirectory, step: int, weights: str, stage: str = "sft") -> None:
    """A checkpoint whose optimizer is its own; its name stands for its weights."""
    folder = run.checkpoint(stage, step)
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_text(weights)
    (folder / "optimizer.pt").write_text(f"{run}{step}")
    write_checksums(folder)


def recorded(run: RunDirectory, stage: str = "sft", **metrics: float) -> None:
    lines = [{"stage": stage, "step": step, **metrics} for step in (1, 2, 3)]
    run.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))


def said(run: RunDirectory) -> list[tuple[str, str]]:
    return [(each.code, each.values["name"].partition(": ")[2]) for each in unlearned(run)]


def test_a_run_that_learned_something_says_nothing(lab: PivotLab) -> None:
    run = lab.run("sound")
    recorded(run, advantage_min=-1.0, advantage_max=0.0, grad_norm=0.1)
    saved(run, 20, "one")
    saved(run, 40, "two")
    assert said(run) == []


def test_an_advantage_or_a_gradient_of_nothing_in_every_step_is_told(lab: PivotLab) -> None:
    run = lab.run("silent")
    recorded(run, advantage_min=0.0, advantage_max=0.0, grad_norm=0.0)
    assert said(run) == [("unlearned_advantage", "sft")]
    recorded(run, grad_norm=0.0)
    assert said(run) == [("unlearned_gradient", "sft")]


def test_weights_that_stayed_are_told_by_their_checksums_and_no_file_is_read(lab: PivotLab) -> None:
    run = lab.run("still")
    saved(run, 20, "same")
    saved(run, 40, "same")
    for step in (20, 40):
        (run.checkpoint("sft", step) / "model.safetensors").unlink()
    assert said(run) == [("unlearned_weights", f"{LAST} = sft.step-000020")]


def test_a_start_that_the_gate_kept_is_told(lab: PivotLab) -> None:
    run = lab.run("kept")
    kept = Selection("base", "base", "dev", 0.5, looks=2)
    write_selections(run.path, "sft", [kept])
    assert said(run) == [("unlearned_gate", "sft.best = base")]


def test_a_cell_with_the_weights_of_its_control_is_the_same_and_not_undecided(
    lab: PivotLab,
) -> None:
    for batch, weights in ((2, "one"), (4, "one"), (8, "two")):
        run = lab.run(f"s.batch-{batch}", f"{BATCH}={batch}")
        score(run, LAST, ones(30, 60))
        saved(run, 40, weights)
        recorded(run, grad_norm=0.0 if batch == 4 else 1.0)
    file = lab.sweep(SWEEP.replace("[axes]", f'baseline.where = {{ "{BATCH}" = 2 }}\n[axes]'))
    found = answer(call("matrix", file, "--lab", lab.root, "--json"))
    assert [c["same_weights"] for c in found["result"]["cells"]] == [[], ["baseline"], []]
    counts = found["result"]["counts"]
    assert (counts["same_weights"], counts["undecided"]) == (1, 1)
    assert [note["code"] for note in found["result"]["notes"]] == ["unlearned_gradient"]
    assert any("gradient was 0" in line for line in found["warnings"])
    page = Path(found["result"]["page"])
    for text in (page.read_text(), page.with_suffix(".md").read_text()):
        assert re.search(r"= \S+ the same weights", text)
        assert "1 undecided, 0 not comparable; 1 are the weights of their control" in text
        assert "Nothing was learned, because the gradient was 0 in every step: s.batch-4/" in text


def test_fill_says_of_each_run_that_it_learned_nothing(
    lab: PivotLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missing_runs, "PROGRAM", STUB)
    file = lab.sweep(SWEEP)
    for batch in (2, 4, 8):
        run = lab.run(f"s.batch-{batch}", f"{BATCH}={batch}")
        for record in (TEST, HARD):
            for checkpoint in ("base", LAST):
                score(run, checkpoint, ones(30, 60), record)
        recorded(run, grad_norm=0.0 if batch == 4 else 1.0)
    found = answer(call("fill", file, "--devices", "cpu", "--lab", lab.root, "--json"))
    assert [each["code"] for each in found["result"]["nothing_learned"]] == ["unlearned_gradient"]
    (told,) = found["findings"]
    assert told["severity"] == "warning"
    assert "the gradient was 0 in every step: s.batch-4/" in told["what"]


def test_report_002s_sweep_shows_its_tables_and_what_two_epochs_pick_alike(tmp_path: Path) -> None:
    lab = make_pivot_lab(tmp_path)
    lab.base.write_text((DEMOS / "grpo.toml").read_text().replace("rows = 800", "rows = 80"))
    text = (DEMOS / "kl.toml").read_text().replace("grpo.toml", "base.toml")
    file = lab.sweep(text.replace("[100, 200, 400, 800]", "[10, 20, 40, 80]"))
    for planned in plan(read_sweep(file)):
        run = lab.run(planned.name, *planned.overrides, seed=42)
        recorded(run, grad_norm=0.0 if "coef-0.18" in run.name else 1.0, stage="grpo")
        for name, spec in planned.experiment.evaluate.items():
            record = replace(TEST, name=name, benchmark="demos/okvqa", options=dict(spec.options))
            for step in (0, 80, 160, 240):
                moved = {80: 4, 160: 4, 240: 6}.get(step, 0) * ("coef-0.12" in run.name)
                checkpoint = f"grpo.step-{step:06d}" if step else "base"
                score(run, checkpoint, [*ones(0, moved), *ones(50, 80 - moved)], record)
    found = answer(call("matrix", file, "--lab", lab.root, "--json"))
    page = Path(found["result"]["page"]).with_suffix(".md").read_text()
    # For each coefficient and epoch one table, sample sizes down and shots across.
    assert page.count("| rows \\\\ shots | 1 | 2 | 3 | 4 |") == 9
    for row in (
        "improved, by sign | 0 of 16 |",
        "declined, by sign | 12 of 16 |",
        "mean difference",
    ):
        assert row in page
    assert "| shots | epoch 1 | epoch 2 | epoch 3 |" in page and "| rows | epoch 1 |" in page
    first, second = (page.partition(f"coef = 0.12, epoch = {n}**")[2] for n in (1, 2))
    assert "every answer as" not in first.partition("**coef")[0]
    assert second.partition("**coef")[0].count("every answer as epoch 1") == 16
    third = page.partition("coef = 0.18, epoch = 1**")[2].partition("**coef")[0]
    assert "every answer as baseline, rce" in third and "the gradient was 0 in every step" in third
