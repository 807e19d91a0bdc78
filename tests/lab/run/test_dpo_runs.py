"""DPO stages through `assay run`: pairs of stored candidates, against the weights at the start,
killed and resumed to the last bit, refused where they have nothing to prefer."""

import itertools
import json
import os
import signal
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from assay.experiment.read_file import read_experiment
from assay.lab.monitor.observer import Silent
from assay.lab.session.session import Session
from assay.lab.session.stage_methods import build_method
from assay.runs.metrics import read_metrics
from assay.runs.run_directory import RunDirectory, runs_of
from assay.train.likelihood import Dpo
from tests.cli.conftest import answer, assert_one_line, call
from tests.forked import forked
from tests.from_files import run_from, start
from tests.lab.run.test_kill import assert_same, everything
from tests.tiny_labs import make_lab

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
        candidates = [{"text": t, "reward": r} for t, r in zip(texts, rewards, strict=True)]
        asked = [{"role": "user", "content": f"{n} + 4 = ?"}]
        lines.append({"id": f"{n}+4", "level": -n, "messages": asked, "candidates": candidates})
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def make_dpo_lab(folder: Path, tables: str = DPO) -> Path:
    file = make_lab(folder, until="[stage.sft]", tables=tables)
    write_groups(folder / "groups.jsonl")
    return file


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return run_from(make_dpo_lab(tmp_path_factory.mktemp("dpo")))


def test_an_epoch_is_a_pass_over_the_pairs_and_groups_of_equal_scores_give_none(run):
    found = read_metrics(run.metrics)
    assert len(found) == 4, "two epochs of 8 pairs, 4 a step"
    assert {line["pairs"] for line in found} == {4.0}
    assert {line["signal_share"] for line in found} == {0.8}
    assert "reward_mean" not in found[0] and not list(run.path.rglob("samples"))


def test_the_first_margin_is_0_and_training_widens_it(run):
    first, *_, last = read_metrics(run.metrics)
    assert abs(first["reward_margin"]) < 1e-4 and abs(first["kl"]) < 1e-6
    assert first["loss"] == pytest.approx(0.6931, abs=1e-4) == first["preference_loss"]
    assert last["reward_margin"] > 0.1 and last["loss"] < 0.69 and last["kl"] > 0
    assert last["reward_accuracy"] > 0.5 and first["chosen_logp"] < 0 > first["rejected_logp"]


@pytest.mark.slow
@pytest.mark.parametrize("adapt", ["", 'adapt = { kind = "lora", rank = 2 }\n'])
def test_killed_and_resumed_a_stage_of_pairs_ends_bit_identical(run, tmp_path, adapt):
    """The reference is made again from the start of the stage, and not from where it stands."""
    make_dpo_lab(tmp_path, DPO + adapt)
    whole = run if not adapt else start(tmp_path / "tiny.toml", root=tmp_path)[0]
    before = everything(whole.path)
    if adapt:
        (tmp_path / "runs").rename(tmp_path / "unbroken")
        (tmp_path / "lab.sqlite").unlink()
    for kill_at in (2, 4):
        killed = ran(tmp_path, kill_at)
        assert killed.exitcode == -signal.SIGKILL, (tmp_path / "log.txt").read_text()
    assert ran(tmp_path, 0).exitcode == 0, (tmp_path / "log.txt").read_text()
    (found,) = runs_of(tmp_path, "tiny")
    assert_same(everything(found.path), before)


def assay_until(kill_at: int, *words: str) -> None:
    """`assay WORDS` in this process, which is killed before the metrics of its nth step."""
    from assay.cli.main import app
    from assay.lab.run import recorder

    written, seen = recorder.append_metrics, itertools.count(1)

    def append(*given: object, **values: object) -> None:
        if next(seen) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        written(*given, **values)  # type: ignore[arg-type]

    recorder.append_metrics = append
    app(list(words))


def ran(folder: Path, kill_at: int) -> BaseProcess:
    words = ("run", str(folder / "tiny.toml"), "--or-resume", "--lab", str(folder))
    process = forked(assay_until, kill_at, *words, log=folder / "log.txt")
    process.join(120)
    return process


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["stage.prefer.score_range=[0.0, 0.75]"], "by scores from 0 to 0.75, and 1+4#0 has 1"),
        (["stage.prefer.pairs.least_gap=2.0"], "no group of 5 has two candidates whose scores"),
        (['stage.prefer.adapt={ kind = "lora", dropout = 0.1 }'], "the reference has no dropout"),
        (["stage.prefer.data=sums"], "no candidates"),
        (["stage.prefer.data=both"], "the pairs of a mixture stand in no shares"),
    ],
)
def test_what_a_stage_of_pairs_cannot_be_is_refused_in_one_line(tmp_path, changes, said):
    more = """
[data.both]
mix = { sums = 0.5, groups = 0.5 }

[guard.low]
metric = "reward_margin"
below = -100.0
"""
    file = make_dpo_lab(tmp_path, DPO + more)
    words = [word for change in changes for word in ("--set", change)]
    assert_one_line(call("run", file, "--lab", tmp_path, *words), said)
    assert not (tmp_path / "runs").exists()


def test_a_check_counts_the_pairs_and_the_reference_and_measures_the_longest(run):
    checked = call("check", run.root / "tiny.toml", "--lab", run.root, "--json")
    assert checked.exit_code == 0, checked.output
    result = answer(checked)["result"]
    numbers = result["numbers"]["stage.prefer"]
    assert numbers["pairs"] == 8 and numbers["groups with pairs"] == 4
    session = Session(read_experiment(run.root / "tiny.toml"), run, 7, Silent())
    stage = session.experiment.stage["prefer"]
    method = build_method(stage, session.stage_input(stage), 1)
    assert isinstance(method, Dpo)
    gaps = [pair.gap for pair in method.pairs]
    assert numbers["score gap, mean"] == pytest.approx(sum(gaps) / 8)
    assert numbers["longest_row_tokens"] > numbers["longest candidate, tokens"] > 0
    assert 0 < numbers["seconds_low"] < numbers["seconds_high"]
    findings = [each["what"] for each in answer(checked)["findings"]]
    assert any("scores do not differ give no pair" in what for what in findings)
