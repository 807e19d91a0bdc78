"""A run with a reward table: its parts are checked, scored, recorded, measured and replayed."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from assay.errors import Finding
from assay.experiment.read_file import read_experiment
from assay.lab.check.gold_trials import gold_answers
from assay.lab.check.subject import Number, Subject
from assay.lab.monitor.observer import Silent
from assay.lab.session.session import Session
from assay.runs.metrics import read_metrics
from assay.runs.run_directory import RunDirectory, read_manifest
from tests.from_files import run_from
from tests.tiny_labs import make_lab

TABLES = """
[stage.rl]
method = "grpo"
data   = "sums"
steps  = 1
prompts  = 2
group    = 4
sampling = { max_tokens = 4 }

[stage.rl.reward]
correct = { kind = "math.accuracy", value = 100, when = { unfinished = 0 } }
unfinished = { kind = "text.truncated", value = -1 }
loops = { kind = "text.repetition", weight = 0.5, options = { size = 1 } }
read = { kind = "math.accuracy", weight = 0 }

[stage.rl.reward.mute]
kind = "text.always"
value = -3
when = { read = { outcome = ["no answer", "unparsable"] } }
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    folder = tmp_path_factory.mktemp("lab")
    return run_from(make_lab(folder, until="[stage.sft]", tables=TABLES))


def test_every_sample_earns_what_its_parts_come_to(run: RunDirectory) -> None:
    lines = pq.read_table(run.samples("rl", 1)).to_pylist()
    for line in lines:
        parts = json.loads(line["parts"])
        worth = 100 * parts["correct"] - parts["unfinished"] + 0.5 * parts["loops"]
        worth -= 3 * parts["mute"]
        assert parts["mute"] == parts["mute/met"] == 1.0 - parts["read/format"]
        assert line["reward"] == pytest.approx(worth)
        assert parts["correct/met"] == 1 - parts["unfinished"] == float(line["ended"] != "length")
        distinct, tokens = len({*line["tokens"]}), len(line["tokens"])
        assert parts["loops"] == pytest.approx(-(1 - distinct / tokens))
    assert any(json.loads(line["parts"])["mute"] for line in lines)
    (metrics,) = read_metrics(run.metrics)
    shares = [json.loads(line["parts"])["unfinished"] for line in lines]
    assert metrics["part/unfinished"] == pytest.approx(sum(shares) / len(shares))
    assert {"part/correct", "part/correct/met", "part/loops"} <= metrics.keys()
    noted = read_manifest(run)["stages"]["rl"]["reward"]
    assert noted["unfinished"]["version"] == noted["correct"].pop("version") == 1
    assert noted["correct"] == {
        "kind": "math.accuracy",
        "weight": 1.0,
        "value": 100.0,
        "when": {"unfinished": 0.0},
    }


def test_check_tries_each_part_and_asks_nobody_to_earn_a_punishment(tmp_path: Path) -> None:
    experiment = read_experiment(make_lab(tmp_path, until="[stage.sft]", tables=TABLES))
    session = Session(experiment, RunDirectory(tmp_path, "tiny", "x"), 7, Silent())
    seen = list(gold_answers(Subject(session)))
    numbers = {n.name: n.value for n in seen if isinstance(n, Number)}
    assert numbers["gold_full_share: correct"] == 1.0
    findings = [f.what for f in seen if isinstance(f, Finding)]
    assert not [what for what in findings if "unfinished" in what]
