"""What report 004 asks to be protected, on a selector's run: its gate, checkpoints and data."""

import hashlib
import json
from pathlib import Path

import pytest

from assay.lab.run.runner import start
from assay.runs.checkpoints import read_selection
from assay.runs.run_directory import RunDirectory, runs_of
from tests.cli.conftest import answer, call
from tests.lab.selector import make_picks_lab, picks_row

EXPERIMENT = """\
name  = "first"
about = "RCE on stored selections, then GRPO that moves nothing"
model = "linear:features.json"
task  = "path:picks_task.py"
seeds = [7]

[data.train]
source = "picks:train"
split  = { dev = 0.25, by = "conversation" }

[data.beams]
source = "path:FILE"
format = "messages"

[stage.weigh]
method = "rce"
data   = "beams"
candidates = "stored"
epochs = 4
prompts = 8
checkpoint_every = 6
tau = 0.2
optimizer = { lr = 1e-1 }

[stage.still]
method = "grpo"
data   = "train"
steps  = 4
prompts = 4
group  = 4
reward = "hits"
kl     = { coef = 0.15 }
checkpoint_every = 2
optimizer = { lr = 1e-30 }

[evaluate.dev]
data   = "train.dev"
reward = "hits"
role   = "select"
checkpoints = ["weigh.all", "still.all"]

[evaluate.test]
benchmark = "picks/test"
role   = "report"
checkpoints = ["base", "weigh.last", "still.last"]
"""
START = "weigh.step-000012"


def write_lab(root: Path) -> Path:
    """A lab with 160 queries, and two files of stored selections that differ in one reward."""
    make_picks_lab(root)
    task = root / "picks_task.py"
    task.write_text(task.read_text().replace("range(24))", "range(160))"))
    lines = []
    for index in range(24):
        row = picks_row(index, "beam")
        asked = [{"role": m.role, "content": m.content} for m in row.messages]
        lines.append({"id": row.id, "messages": asked, **row.extra})
    for file in ("rl.jsonl", "rl_other.jsonl"):
        (root / file).write_text("".join(json.dumps(line) + "\n" for line in lines))
        lines[3]["candidates"][1]["reward"] = 1.0
    for file in ("rl.jsonl", "rl_other.jsonl"):
        (root / file).with_suffix(".toml").write_text(EXPERIMENT.replace("FILE", file))
    return root


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = write_lab(tmp_path_factory.mktemp("picks"))
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


SAME = "pick the same demonstrations, in the same order, for 12 of 12 queries"


def test_identical_selections_are_said_to_be_unable_to_differ(lab, run):
    """Within a run, and between checkpoints that a comparison names; others are not said to be."""
    compared = call("compare", f"{run}@weigh.last", f"{run}@still.last", "--lab", lab)
    said = " ".join(compared.stdout.split())
    assert f"{SAME}: their scores cannot differ" in said and "entropy" in said
    reported = " ".join(call("report", run, "--full", "--lab", lab).stdout.split())
    assert f"weigh · step 12 and still · step 4 {SAME}" in reported
    assert f"base and still · step 4 {SAME}" not in reported
    assert SAME in (run.path / "report.html").read_text()


def checkpoints(lab: Path) -> dict[str, str]:
    files = [p for p in lab.glob("runs/*/*/checkpoints/**/*") if p.is_file()]
    return {str(p.relative_to(lab)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


@pytest.fixture(scope="module")
def both(lab: Path) -> list[str]:
    """The run, and a later one of the same name on the other file, whose making changes nothing of
    it."""
    before = checkpoints(lab)
    again = call("run", lab / "rl.toml", "--lab", lab)
    assert again.exit_code == 2 and "exists" in again.stderr
    made = call("run", lab / "rl_other.toml", "--new", "--lab", lab)
    assert made.exit_code == 0, made.output
    after = checkpoints(lab)
    assert len(before) > 10 and {name: after.get(name) for name in before} == before
    assert len(after) == 2 * len(before), "the new run has checkpoints of its own"
    return [str(run) for run in runs_of(lab, "first")]


@pytest.mark.slow
def test_no_command_overwrites_a_checkpoint(lab, both):
    before = checkpoints(lab)
    commands = [
        ("run", lab / "rl_other.toml", "--or-resume"),
        ("eval", f"{both[0]}@weigh.step-6", "--benchmark", "picks/test"),
    ]
    for command in commands:
        result = call(*command, "--lab", lab)
        assert result.exit_code == 0, (command, result.output)
    assert checkpoints(lab) == before


def test_runs_on_different_files_are_compared_only_where_that_is_allowed_by_name(lab, both):
    arms = [f"{run}@weigh.last" for run in both]
    refused = answer(call("compare", *arms, "--json", "--lab", lab))["result"]
    assert refused["lines"][1]["to_control"]["comparison"]["verdict"] == "not comparable"
    paths = [each["path"] for each in refused["differences"] if each["kind"] == "confound"]
    assert paths == ["data.beams.file_sha256"]
    words = ("--allow", "data.beams.file_sha256", "--json")
    allowed = answer(call("compare", *arms, *words, "--lab", lab))["result"]
    assert allowed["lines"][1]["to_control"]["comparison"]["verdict"] != "not comparable"
    assert allowed["allowed"] == paths
