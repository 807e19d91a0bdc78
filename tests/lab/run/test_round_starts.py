"""Rounds: each stage starts from a checkpoint that a rule chose, and the choice is on record."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch

from assay.errors import InputError
from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.judge.selection import longest_rise
from assay.lab.evaluate import checkpoint_selection
from assay.lab.evaluate.checkpoint_selection import by_reward_trend
from assay.lab.run.resume import resume
from assay.pages.run_page import write_report
from assay.pages.run_terminal import final_blocks
from assay.pages.story import lineage, origin_text
from assay.pages.words import words
from assay.runs.history import evaluation_records, measured_checkpoints
from assay.runs.metrics import read_metrics
from assay.runs.records import read_scores
from assay.runs.run_directory import RunDirectory, read_status, runs_of
from assay.runs.run_files import Selection, read_selection
from assay.runs.run_names import resolve_checkpoint
from tests.docs.pages import blocks
from tests.forked import forked
from tests.from_files import run_from, start
from tests.lab.run.test_restore import same
from tests.models.folders import tiny_model
from tests.pages.pages import printed
from tests.tiny_labs import make_lab, model_at

ROUNDS = blocks("rounds.md", "toml")[0]
TEST = """
[evaluate.test]
benchmark = "math/gsm8k"
options = { path = PATH, format = "messages" }
role   = "report"
checkpoints = ["base", "round1.dev_score", "round2.reward_trend", "round3.last"]
sampling = { max_tokens = 12 }
"""
SMALL = (
    *("stage.sft.steps=8", "stage.sft.checkpoint_every=4", "stage.sft.batch=4"),
    "stage.round1.start=sft.dev_score",  # four items promote nothing
    *(f"stage.round{n}.prompts=2" for n in (1, 2, 3)),
    *(f"stage.round{n}.group=4" for n in (1, 2, 3)),
    *("stage.round1.steps=4", "stage.round1.checkpoint_every=2"),
    *("stage.round2.steps=6", "stage.round2.checkpoint_every=3", "stage.round3.steps=2"),
    *(f"stage.round{n}.sampling.max_tokens={n + 9}" for n in (1, 2, 3)),
    "stage.round3.adapt={kind='lora', rank=2, alpha=4}",
    *("stage.sft.optimizer.lr=1e-2", "evaluate.dev.sampling.max_tokens=12"),
    # Differs between checkpoints and completions that get no sum right.
    *("evaluate.dev.reward=path:variety.py:variety", "stage.round1.optimizer.lr=1e-2"),
    "stage.round1.reward=path:variety.py:variety",
)
"""The page's example at the size of a test."""
VARIETY = """
def variety(prompt, completion, row):
    return len(set(completion)) / 12
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    folder = tmp_path_factory.mktemp("rounds")
    place = json.dumps(str(folder / "test.jsonl"))
    tables = ROUNDS + TEST.replace("PATH", place)
    edits = {"[data.sums]": "[data.train]"}
    (folder / "variety.py").write_text(VARIETY)
    return run_from(make_lab(folder, until="[stage.sft]", tables=tables, edits=edits), SMALL)


def selection(run: RunDirectory, stage: str, rule: str) -> Selection:
    found = read_selection(run.path, stage, rule)  # type: ignore[arg-type]
    assert found is not None
    return found


def test_the_best_dev_score_is_taken_and_marked_as_uncorrected(run: RunDirectory) -> None:
    found, gate = selection(run, "round1", "dev_score"), selection(run, "round1", "gate")
    (dev,) = [record for record in evaluation_records(run) if record.role == "select"]
    names = [gate.start, "round1.step-000002", "round1.step-000004"]
    scores = {name: read_scores(run, dev, name).mean for name in names}
    assert found.checkpoint == max(names, key=lambda name: scores[name])
    assert len(set(scores.values())) > 1, "there was something to choose"
    assert found.score == max(scores.values())
    assert found.evidence == gate.evidence and not found.corrected
    stored = json.loads((run.path / "selection.json").read_text())
    assert stored["round1.dev_score"]["corrected"] is False
    assert stored["round1"]["corrected"] is True


def test_the_rewards_choose_without_dev_items(run: RunDirectory) -> None:
    found = selection(run, "round2", "reward_trend")
    assert (found.evaluation, found.score, found.looks) == ("", None, 2)
    assert read_selection(run.path, "round2") is None, "no dev item was looked at"
    lines = [line for line in read_metrics(run.metrics) if line["stage"] == "round2"]
    rewards = [line["reward_mean"] for line in lines]
    rise = longest_rise([line["step"] for line in lines], rewards, [3, 6])
    assert found.checkpoint == (found.start if rise is None else f"round2.step-{rise.until:06d}")
    # The same steps with rewards that rise.
    rising = [{**line, "reward_mean": 0.1 * line["step"]} for line in lines]
    risen = by_reward_trend(rising, "round2", found.start, [3, 6])
    assert risen.checkpoint == "round2.step-000006" and not risen.corrected
    assert risen.rise is not None and (risen.rise.after, risen.rise.until) == (0, 6)
    assert risen.rise.slope == pytest.approx(0.1)


def test_each_round_starts_from_what_was_chosen_and_that_is_measured(run: RunDirectory) -> None:
    (test,) = [record for record in evaluation_records(run) if record.role == "report"]
    wanted = ["base"]
    for name in ("round1.dev_score", "round2.reward_trend"):
        reference = parse_checkpoint(name)
        assert reference is not None
        stage, rule = name.split(".")
        chosen = selection(run, stage, rule).checkpoint
        assert resolve_checkpoint(run, reference) == parse_checkpoint(chosen)
        wanted.append(chosen)
    assert set(measured_checkpoints(run, test)) == {*wanted, "round3.step-000002"}


OTHER = """
[stage.full]
method = "grpo"
data   = "train"
start  = "run:tiny@round1.dev_score"
steps  = 2
prompts  = 2
group    = 4
checkpoint_every = 1
sampling = { max_tokens = 12 }
reward   = "path:variety.py:variety"
optimizer = { lr = 1e-2 }

[stage.adapter]
method = "sft"
data   = "train"
start  = "run:tiny@round3.last"
steps  = 1
batch  = 4
adapt  = { kind = "lora", rank = 2, alpha = 4 }
optimizer = { lr = 1e-2 }

[stage.further]
method = "sft"
data   = "train"
start  = "full.best"
steps  = 1
batch  = 4

[evaluate.dev]
data   = "train.dev"
reward = "path:variety.py:variety"
role   = "select"
checkpoints = ["full.all"]
sampling = { max_tokens = 12 }
"""


@pytest.fixture(scope="module")
def other(run: RunDirectory) -> RunDirectory:
    """Another experiment of the lab, whose stages start from the first one's checkpoints."""
    text = (run.root / "tiny.toml").read_text().partition("[stage.sft]")[0]
    file = run.root / "other.toml"
    file.write_text(text.replace('"tiny"', '"other"') + OTHER)
    return run_from(file)


def weights_of(run: RunDirectory, name: str) -> dict[str, torch.Tensor]:
    return model_at(run, name).state_dict()


def test_a_stage_starts_from_another_runs_weights(run: RunDirectory, other: RunDirectory) -> None:
    taken = selection(run, "round1", "dev_score").checkpoint
    for stage, name in (("full", taken), ("adapter", "round3.last")):
        theirs, ours = weights_of(run, name), weights_of(other, f"{stage}.step-0")
        assert theirs.keys() == ours.keys()
        assert all(torch.equal(theirs[key], ours[key]) for key in theirs)
        after = weights_of(other, f"{stage}.last")
        assert any(not torch.equal(after[key], ours[key]) for key in ours), "it was trained"
    # An adapter over an adapter of another run stands on what that one stands on.
    folders = other.checkpoint("adapter", 1), run.checkpoint("round3", 2)
    above, below = (json.loads((f / "adapter_config.json").read_text()) for f in folders)
    assert above["base_model_name_or_path"] == below["base_model_name_or_path"]


def test_the_manifest_says_which_checkpoint_it_was(run: RunDirectory, other: RunDirectory) -> None:
    stages = json.loads(other.manifest.read_text())["stages"]
    folder = run.checkpoint("round3", 2).relative_to(run.root).as_posix()
    assert stages["adapter"]["start"] == "run:tiny@round3.last"
    origin = stages["adapter"]["from"]
    assert (origin["run"], origin["checkpoint"]) == (str(run), folder)
    assert len(origin["sha256"]) == 64
    assert origin["sha256"] != stages["full"]["from"]["sha256"]
    assert "from" not in stages["further"], "its start is the run's own"


def test_the_gate_measures_a_start_in_another_run(run: RunDirectory, other: RunDirectory) -> None:
    found = selection(other, "full", "gate")
    assert found.start == "full.step-000000"
    (dev,) = evaluation_records(other)
    assert measured_checkpoints(other, dev) == [f"full.step-00000{n}" for n in range(3)]
    (first,) = [record for record in evaluation_records(run) if record.role == "select"]
    taken = selection(run, "round1", "dev_score")
    theirs = read_scores(run, first, taken.checkpoint)
    assert read_scores(other, dev, found.start).scores.tolist() == theirs.scores.tolist()
    # Where the gate keeps it, the next stage stands on the other run as well.
    kept = weights_of(other, found.checkpoint)
    assert all(torch.equal(kept[k], v) for k, v in weights_of(other, "full.best").items())


def test_another_model_is_refused_with_both_fingerprints(
    run: RunDirectory, other: RunDirectory, tmp_path: Path
) -> None:
    text = (other.root / "other.toml").read_text()
    shutil.copytree(run.root, tmp_path / "lab")
    lab = tmp_path / "lab"
    tiny_model(intermediate_size=48).save_pretrained(lab / "model")
    (lab / "again.toml").write_text(text.replace('"other"', '"again"'))
    began = json.loads(run.manifest.read_text())["base_weights"]["sha256"]
    with pytest.raises(InputError, match=f"stage.full.start: .*{began}.*this model has [0-9a-f]"):
        start(lab / "again.toml", root=lab)
    assert runs_of(lab, "again") == []


def killed_while_choosing(root: str, stage: str) -> None:
    """A run that a SIGKILL ends after a stage's last step and before its choice is written."""
    write = checkpoint_selection.write_selections

    def last(path: Path, name: str, chosen: list[Selection]) -> None:
        if name == stage:
            os.kill(os.getpid(), signal.SIGKILL)
        write(path, name, chosen)

    checkpoint_selection.write_selections = last  # type: ignore[assignment]
    start(Path(root) / "tiny.toml", SMALL, root=Path(root), new=True)


@pytest.mark.slow
def test_killed_between_training_and_choosing_it_chooses_the_same(
    run: RunDirectory, tmp_path: Path
) -> None:
    # A copy: a later run of the name would be what others in the lab start from.
    lab = tmp_path / "lab"
    shutil.copytree(run.root, lab)
    process = forked(killed_while_choosing, str(lab), "round1", log=tmp_path / "log.txt")
    process.join()
    assert process.exitcode == -signal.SIGKILL, (tmp_path / "log.txt").read_text()[-2000:]
    broken = runs_of(lab, "tiny")[-1]
    assert broken != run and read_status(broken.path).status == "interrupted"
    chosen = json.loads((broken.path / "selection.json").read_text())
    assert set(chosen) == {"sft", "sft.dev_score"}
    resume(broken)
    same(broken, run)


def test_the_lineage_leads_through_runs_to_the_first_stage(
    run: RunDirectory, other: RunDirectory
) -> None:
    nodes = lineage(other)
    labels = [node.label for node in nodes]
    assert set(labels) >= {"full", "adapter", "further", "round3"}
    for at, node in enumerate(nodes):
        assert node.start.stage is None or node.start.stage in labels[:at]
        assert node.run == (run if node.label.startswith(("round", "sft")) else other)
    full = nodes[labels.index("full")]
    assert "not corrected for looks" in origin_text(full, words())
    assert not selection(run, "round1", "dev_score").corrected


def test_the_page_lists_the_lineage_and_marks_what_is_uncorrected(
    run: RunDirectory, other: RunDirectory
) -> None:
    for lang, uncorrected in (("en", "not corrected for looks"), ("zh", "未按查看次数校正")):
        page = write_report(run, lang).read_text()
        table = page.partition(' id="lineage"')[2].partition(' id="')[0]
        assert "round2 · GRPO" in table and uncorrected in table
    shown = printed(final_blocks(other))
    assert f"run {run}" in shown and "not corrected for looks" in shown
