"""What a run answered becomes rows: word for word, with its rewards, from unchanged prompts."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from assay.errors import InputError
from assay.experiment.data_tables import DataSpec, PassRate, RunSamples
from assay.experiment.read_file import read_experiment
from assay.lab.data.prepare import asked_rows, load_rows, rows_by_id
from assay.lab.data.run_rows import records_of, with_pass_rates
from assay.runs.metrics import read_metrics
from assay.runs.run_directory import RunDirectory, read_manifest, runs_of
from assay.tasks.task import task
from tests.from_files import start
from tests.sample_lines import read_samples

SKILL = task("math")


@pytest.fixture(scope="module")
def lab(sampled: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(sampled, tmp_path_factory.mktemp("lab"), dirs_exist_ok=True))


def run_of(lab: Path) -> RunDirectory:
    (run,) = runs_of(lab, "tiny")
    return run


def spec(**samples: Any) -> DataSpec:
    return DataSpec(source="run:tiny", samples=RunSamples(**samples))


def lines(lab: Path, *steps: int) -> list[dict[str, Any]]:
    return [line for step in steps for line in read_samples(run_of(lab).samples("rl", step))]


def test_every_completion_is_a_row_that_ends_with_it(lab: Path) -> None:
    rows = load_rows(spec(stage="rl"), SKILL, lab).rows
    recorded = lines(lab, 1, 2, 3)
    assert len(rows) == len(recorded) == 48
    known = rows_by_id(read_experiment(lab / "tiny.toml"), "sums", lab)
    for row, line in zip(rows, recorded, strict=True):
        source = known[line["row_id"]]
        assert row.prompt == source.prompt and row.messages[-1].content == line["text"]
        assert row.extra["reward"] == line["reward"] and row.extra["step"] == line["step"]
        assert row.gold is None and row.extra["gold"] == source.gold
        assert row.conversation == source.id and row.id == line["sample_id"]
    first, *_ = load_rows(spec(stage="rl", steps=(2,)), SKILL, lab).rows
    assert first.id == lines(lab, 2)[0]["sample_id"]


def test_a_group_is_a_row_with_its_completions_as_candidates(lab: Path) -> None:
    rows = load_rows(spec(stage="rl", each="group"), SKILL, lab).rows
    assert len(rows) == 12 == len({row.id for row in rows})
    recorded = lines(lab, 1)[:4]
    assert rows[0].extra["candidates"] == [
        {
            "text": line["text"],
            "reward": line["reward"],
            "parts": json.loads(line["parts"]),
            "tokens": line["tokens"],
            "prompt_sha256": line["prompt_sha256"],
        }
        for line in recorded
    ]
    mean = sum(line["reward"] for line in recorded) / 4
    assert rows[0].extra["reward_mean"] == pytest.approx(mean)
    assert rows[0].gold is not None


def test_answers_of_an_evaluation_are_rows_too(lab: Path) -> None:
    found = load_rows(spec(evaluation="often", checkpoint="rl.last"), SKILL, lab).rows
    record = next(run_of(lab).evaluations.glob("often-*/rl.step-000003.parquet"))
    table = pq.read_table(record).to_pylist()
    assert [row.messages[-1].content for row in found] == [line["output"] for line in table]
    assert [row.extra["reward"] for row in found] == [line["score"] for line in table]


def test_pass_rates_are_the_share_of_rewards_that_pass(lab: Path) -> None:
    known = tuple(rows_by_id(read_experiment(lab / "tiny.toml"), "sums", lab).values())
    recorded = lines(lab, 1, 2, 3)
    middle = sorted(line["reward"] for line in recorded)[24]
    table = PassRate(run="tiny", stage="rl", passes=middle)
    answers = records_of(lab, "tiny", table)
    given = (table, answers, asked_rows(answers, table, lab))
    rows = with_pass_rates(known, *given)
    for row in rows:
        of = [line["reward"] >= middle for line in recorded if line["row_id"] == row.id]
        assert row.extra.get("pass_rate") == (sum(of) / len(of) if of else None)
    assert len({row.extra.get("pass_rate") for row in rows}) > 2
    with pytest.raises(InputError, match="measured none of these rows"):
        with_pass_rates([replace(known[0], id="else")], *given)
    measured = {line["row_id"] for line in recorded}
    changed = next(row for row in known if row.id in measured)
    changed = replace(changed, messages=(replace(changed.messages[0], content="?"),))
    with pytest.raises(InputError, match=r"is another one than tiny/.* measured"):
        with_pass_rates([changed], *given)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ({"stage": "rl", "steps": (4,)}, r"no samples of step 4 of 'rl' \(it has steps 1 to 3\)"),
        ({"evaluation": "oftn", "checkpoint": "rl.last"}, "no evaluation 'oftn' .*'often'"),
    ],
)
def test_what_a_run_has_not_recorded_is_said(lab: Path, samples: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as found:
        load_rows(spec(**samples), SKILL, lab)
    assert "\n" not in str(found.value)


def test_prompts_are_not_read_from_a_file_that_has_changed(lab: Path) -> None:
    file = lab / "sums.jsonl"
    before = file.read_bytes()
    file.write_bytes(before + b'{"messages": [{"role": "user", "content": "?"}]}\n')
    try:
        with pytest.raises(InputError, match=r"sums\.jsonl has changed since tiny/.* read it"):
            load_rows(spec(stage="rl"), SKILL, lab)
    finally:
        file.write_bytes(before)


SECOND = """
name = "second"
model = "path:model"
task = "math"

[data.best]
source = "run:tiny"
samples = { stage = "rl" }
where = [{ field = "extra.step", equals = 1 }]
order = { by = "extra.reward", descending = true }

[data.groups]
source = "run:tiny"
samples = { stage = "rl", steps = [1, 3], each = "group" }
where = [{ field = "extra.reward_std", above = 0.0 }]

[data.hard]
source = "path:sums.jsonl"
format = "messages"
pass_rate = { run = "tiny", stage = "rl" }
where = [{ field = "extra.pass_rate", exists = true }]
order = { by = "extra.pass_rate" }

[stage.sft]
method = "sft"
data = "best"
steps = 1
batch = 4
optimizer = { lr = 1e-3 }

[stage.rce]
method = "rce"
candidates = "stored"
data = "groups"
steps = 1
prompts = 2
"""


def test_a_run_trains_on_what_another_answered_and_says_which(lab: Path) -> None:
    (lab / "second.toml").write_text(SECOND)
    (run,) = start(lab / "second.toml", root=lab)
    assert [line["stage"] for line in read_metrics(run.metrics)] == ["sft", "rce"]
    data = read_manifest(run)["data"]
    assert data["best"]["run"] == data["groups"]["run"] == str(run_of(lab))
    assert data["best"]["file_sha256"] != data["groups"]["file_sha256"]
    assert data["hard"]["pass_rate"]["run"] == str(run_of(lab))
    assert data["hard"]["pass_rate"]["file_sha256"] == data["best"]["file_sha256"]
