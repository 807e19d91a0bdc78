"""What report 004 asks to be protected, on a selector's run: its gate, checkpoints and data."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.runs.checkpoints import read_selection
from assay.runs.run_directory import RunDirectory, runs_of
from tests.cli.conftest import call
from tests.from_files import start
from tests.lab.selector_task import make_colours_lab, use_words

EXPERIMENT = """\
name  = "first"
about = "RCE on stored selections, then GRPO that moves nothing"
model = "selector:pointer"
task  = "path:colours_task.py"
seeds = [7]

[selector]
hidden = 16

[data.train]
source = "colours:train"
split  = { dev = 0.25, by = "conversation" }

[stage.weigh]
method = "rce"
data   = "train"
candidates = "stored"
steps = 24
prompts = 16
checkpoint_every = 12
tau = 0.2
optimizer = { lr = 1e-2 }

[stage.still]
method = "grpo"
data   = "train"
steps  = 4
prompts = 4
group  = 4
reward = "share"
kl     = { coef = 0.15 }
checkpoint_every = 2
optimizer = { lr = 1e-30 }

[evaluate.dev]
data   = "train.dev"
reward = "share"
role   = "select"
checkpoints = ["weigh.all", "still.all"]

[evaluate.test]
benchmark = "colours/test"
role   = "report"
checkpoints = ["base", "weigh.last", "still.last"]
"""
START = "weigh.step-000024"


@pytest.fixture(scope="module", autouse=True)
def words(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        use_words(patch, tmp_path_factory.mktemp("words"))
        yield


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, words: None) -> Path:
    """A lab with 160 queries."""
    root = tmp_path_factory.mktemp("colours")
    make_colours_lab(root)
    task = root / "colours_task.py"
    task.write_text(task.read_text().replace("range(32))", "range(160))"))
    (root / "rl.toml").write_text(EXPERIMENT)
    start(root / "rl.toml", root=root)
    return root


@pytest.fixture(scope="module")
def run(lab: Path) -> RunDirectory:
    found, *_ = runs_of(lab, "first")
    return found


def test_the_gate_promotes_a_selector_that_is_shown_better(run):
    chosen = read_selection(run.path, "weigh")
    assert chosen is not None and chosen.promoted and chosen.start == "base"
    assert all(look.verdict == "better" for look in chosen.evidence)


def test_the_gate_keeps_the_start_of_a_stage_whose_checkpoints_are_the_same(run):
    chosen = read_selection(run.path, "still")
    assert chosen is not None and not chosen.promoted and chosen.checkpoint == START
    assert [look.difference for look in chosen.evidence] == [0.0, 0.0]


SAME = "pick the same demonstrations, in the same order, for 20 of 20 queries"


def test_identical_selections_are_said_to_be_unable_to_differ(lab, run):
    """Within a run, and between checkpoints that a comparison names; others are not said to be."""
    compared = call("compare", f"{run}@weigh.last", f"{run}@still.last", "--lab", lab)
    said = " ".join(compared.stdout.split())
    assert f"{SAME}: their scores cannot differ" in said
    reported = " ".join(call("report", run, "--full", "--lab", lab).stdout.split())
    assert f"weigh · step 24 and still · step 4 {SAME}" in reported
    assert f"base and still · step 4 {SAME}" not in reported
    assert SAME in (run.path / "report.html").read_text()


def checkpoints(lab: Path) -> dict[str, str]:
    files = [p for p in lab.glob("runs/*/*/checkpoints/**/*") if p.is_file()]
    return {str(p.relative_to(lab)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


@pytest.mark.slow
def test_no_command_overwrites_a_checkpoint(lab, run):
    before = checkpoints(lab)
    again = call("run", lab / "rl.toml", "--lab", lab)
    assert again.exit_code == 2 and "exists" in again.stderr
    for words in (
        ("run", lab / "rl.toml", "--new", "--set", "stage.weigh.tau=0.3"),
        ("run", lab / "rl.toml", "--or-resume", "--set", "stage.weigh.tau=0.3"),
        ("eval", f"{run}@weigh.step-12", "--benchmark", "colours/test"),
    ):
        result = call(*words, "--lab", lab)
        assert result.exit_code == 0, (words, result.output)
    after = checkpoints(lab)
    assert len(before) > 10 and {name: after.get(name) for name in before} == before
    assert len(after) == 2 * len(before), "the new run has checkpoints of its own"
