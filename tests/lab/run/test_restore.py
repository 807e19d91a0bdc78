"""A damaged file of a checkpoint is named, never trained on, and the checkpoint before serves."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from assay.errors import InputError
from assay.lab.monitor.observer import Silent
from assay.lab.run.resume import resume
from assay.pages.run_page import write_report
from assay.runs.run_directory import RunDirectory, never_begun, runs_of
from assay.runs.run_files import DamagedFile
from assay.runs.verify_files import verify_run
from tests.from_files import start
from tests.lab.run.test_kill import assert_same, everything

SHORT = ("stage.sft.steps=6", "stage.sft.checkpoint_every=2", "stage.rl.steps=3")
LESS = "[evaluate.sampled]"


@dataclass(frozen=True)
class Stopping(Silent):
    """Interrupts a run after a step of a stage; keeps what is noted."""

    stage_name: str = ""
    last: int = 0
    at: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def stage(self, name: str, method: str, step: int, steps: int) -> None:
        self.at.append(name)

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        if (self.at[-1], step) == (self.stage_name, self.last):
            raise KeyboardInterrupt


def interrupted(unbroken: RunDirectory, stage: str, step: int) -> RunDirectory:
    """Another run of the same experiment, as it was when it was stopped after a step of a stage:
    made for the first test that asks, put back for the others."""
    root, kept = unbroken.root, unbroken.root / "interrupted" / f"{stage}-{step}"
    if not kept.exists():
        with pytest.raises(KeyboardInterrupt):
            start(root / "tiny.toml", SHORT, root=root, new=True, observer=Stopping(stage, step))
        made = runs_of(root, "tiny")[-1]
        shutil.copytree(made.path, kept / made.id)
    (copy,) = kept.iterdir()
    run = RunDirectory(root, "tiny", copy.name)
    shutil.rmtree(run.path)
    shutil.copytree(copy, run.path)
    return run


def flip(file: Path) -> None:
    """Change one bit in the middle of a file."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def same(run: RunDirectory, unbroken: RunDirectory) -> None:
    """All that the run holds is what the unbroken one holds."""
    found = {n: v for n, v in everything(run.path).items() if not n.startswith("aside/")}
    assert_same(found, everything(unbroken.path))


@pytest.mark.parametrize(
    "name",
    [
        "model.safetensors",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("optimizer.pt", "checksums.json")),
    ],
)
def test_a_flipped_bit_is_named_and_the_checkpoint_before_leads_to_the_same_end(
    unbroken: RunDirectory, name: str
) -> None:
    run = interrupted(unbroken, "sft", 5)
    bad = run.checkpoint("sft", 4) / name
    flip(bad)
    told = Stopping()
    resume(run, observer=told)
    (warning,) = [note for note in told.notes if note.startswith("warning: sft.step-000004 is")]
    assert str(bad) in warning and "sft.step-000002" in warning
    aside = run.path / "aside/001"
    assert (aside / "checkpoints/sft/step-000004" / name).is_file()
    assert [p.name for p in aside.glob("evaluations/*/*")] == ["sft.step-000004.parquet"]
    assert verify_run(run).faults == (), "what is known to be damaged is no fault of the run"
    (noted,) = json.loads(run.manifest.read_text())["time"]["put_aside"]
    assert noted["damage"] == f"checkpoints/sft/step-000004/{name}"
    assert noted["checkpoints"] == ["sft.step-000004"] and noted["start"] == "sft.step-000002"
    for lang in ("en", "zh"):
        page = write_report(run, lang).read_text(encoding="utf-8")
        assert all(noted[key] in page for key in ("damage", "start", "folder"))
    same(run, unbroken)


@pytest.mark.slow
def test_a_damaged_last_checkpoint_of_a_stage_is_made_again_before_the_next_starts_from_it(
    unbroken: RunDirectory,
) -> None:
    run = interrupted(unbroken, "rl", 1)
    (run.checkpoint("sft", 6) / "model.safetensors").unlink()
    resume(run)
    same(run, unbroken)


def test_without_an_optimizer_state_before_it_a_damaged_checkpoint_stops_the_run(
    unbroken: RunDirectory,
) -> None:
    run = interrupted(unbroken, "sft", 5)
    bad = run.checkpoint("sft", 4) / "model.safetensors"
    flip(bad)
    (run.checkpoint("sft", 2) / "optimizer.pt").unlink()
    with pytest.raises(DamagedFile, match="--new") as found:
        resume(run)
    assert str(bad) in str(found.value) and "\n" not in str(found.value)
    assert run.checkpoint("sft", 4).is_dir() and not (run.path / "aside").exists()
    (run.checkpoint("sft", 4) / "optimizer.pt").unlink()
    with pytest.raises(InputError, match=r"optimizer\.pt is missing.*--new"):
        resume(run)


def test_a_start_that_changed_is_no_anchor_of_a_resumed_stage(unbroken: RunDirectory) -> None:
    """The reference of a KL is the start: it is as it was, or the stage does not go on."""
    run = interrupted(unbroken, "rl", 1)
    file = run.checkpoint("sft", 6) / "model.safetensors"
    save_file({name: tensor * 1.01 for name, tensor in load_file(file).items()}, file)
    told = Stopping()
    resume(run, observer=told)
    assert any(note.startswith("warning: sft.step-000006 is damaged: ") for note in told.notes)
    same(run, unbroken)


def test_a_run_that_never_had_a_manifest_is_replaced_also_after_a_vain_resume(
    unbroken: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("assay.lab.run.runner.write_manifest", killed)
    with pytest.raises(KeyboardInterrupt):
        start(unbroken.root / "tiny.toml", SHORT, root=unbroken.root, new=True)
    run = runs_of(unbroken.root, "tiny")[-1]
    with pytest.raises(KeyboardInterrupt):
        resume(run)
    write_report(run, "zh")
    assert never_begun(unbroken.root, "tiny") == [run]


@pytest.mark.slow
def test_a_finished_run_keeps_no_optimizer_state(unbroken: RunDirectory) -> None:
    assert not list(unbroken.path.rglob("optimizer.pt"))
    run = interrupted(unbroken, "rl", 1)
    assert len(list(run.path.rglob("optimizer.pt"))) == 2
    left = run.path / "samples" / "rl" / ".step-000002.parquet.0123456789abcdef.part"
    (run.checkpoints("rl") / ".step-000003.part").mkdir(parents=True)
    left.touch()
    resume(run)
    assert not list(run.path.rglob("optimizer.pt"))
    assert not list(run.path.rglob("*.part"))
