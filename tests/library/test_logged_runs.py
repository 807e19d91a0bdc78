"""A trained run sends metrics, dev scores and verdicts to sinks, which change nothing."""

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import assay
from assay.data.files import sha256_file
from assay.lab.monitor import sender
from assay.lab.monitor.sinks import SINKS
from assay.runs.verify_files import verify_run
from tests.lab.monitor.sinks.logged_run import Kept
from tests.tiny_labs import make_lab

SHORT: dict[str, Any] = {"stage.sft.steps": 3, "stage.sft.checkpoint_every": 2}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiment with one stage of SFT, dev items and a report."""
    file = make_lab(tmp_path_factory.mktemp("logged"), until="[evaluate.sampled]")
    text = file.read_text()
    rl = text[text.index("[stage.rl]") : text.index("[evaluate.dev]")]
    file.write_text(text.replace(rl, "").replace('"sft.best", "rl.last"', '"sft.last"'))
    return file


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the sinks `kept` and `broken` get."""
    found: list[tuple[Any, ...]] = []

    def kept(given: Any) -> Kept:
        return Kept(given, found, lambda: "")

    def broken(given: Any) -> Kept:
        raise ConnectionError("nobody answers")

    monkeypatch.setitem(SINKS, "kept", kept)
    monkeypatch.setitem(SINKS, "broken", broken)
    monkeypatch.setattr(sender, "FIRST_PAUSE", 0.01)
    return found


def sent(calls: list[tuple[Any, ...]], metric: str) -> list[tuple[int, float]]:
    """Step and value of a metric, as they came."""
    found = [call[1:] for call in calls if call[0] == "metrics"]
    return [(step, values[metric]) for step, values in found if metric in values]


def run(lab: Path, name: str, **more: Any) -> assay.Run:
    overrides = {**SHORT, "name": name, **more}
    return assay.run(lab, overrides=overrides, root=lab.parent, progress=False)


def test_sinks_get_everything_and_change_no_weight_and_no_fingerprint(
    lab: Path, calls: list[tuple[Any, ...]]
):
    plain = run(lab, "plain")
    made = run(lab, "sent", log={"to": ["broken", "kept"]})
    assert made.status == "finished" and made.scores == plain.scores
    for before, after in zip(plain.checkpoints.values(), made.checkpoints.values(), strict=True):
        names = [path / "model.safetensors" for path in (before, after)]
        assert sha256_file(names[0]) == sha256_file(names[1]) and load_file(names[0])
    ours, theirs = ({**r.facts.manifest, "name": "", "time": ""} for r in (plain, made))
    assert ours == theirs and not verify_run(made.directory).faults

    assert sent(calls, "sft/nll") == list(enumerate(made.metrics["sft"]["nll"], 1))
    dev = dict(sent(calls, "dev/score"))
    assert dev == {look.step: look.score for look in made.facts.dev_scores("sft")}
    assert [call for call in calls if call[0] == "scores"] == [("scores", 3, made.scores)]
    assert calls[-1] == ("close", "finished")

    again = assay.open_run("sent", root=lab.parent)
    assert "broken" in made.page.read_text() or "broken" in again._repr_html_()

    calls.clear()
    added = {**SHORT, "name": "plain", "log": {"to": ["kept"]}}
    left = assay.run(lab, overrides=added, root=lab.parent, or_resume=True, progress=False)
    assert left.did == "left alone" and str(left) == str(plain) and not calls


def test_a_log_table_that_cannot_be_followed_is_refused_before_the_run(
    lab: Path, calls: list[tuple[Any, ...]]
):
    def refused(**log: Any) -> str:
        with pytest.raises(assay.InputError) as caught:
            run(lab, "refused", log=log)
        return str(caught.value)

    assert "log.to: unknown sink 'wandbb' (did you mean 'wandb'?" in refused(to=["wandbb"])
    assert "log.to: must not be empty" in refused(to=[])
    assert "log.entiti: unknown key" in refused(to=["wandb"], entiti="us")
    assert not (lab.parent / "runs" / "refused").exists()
