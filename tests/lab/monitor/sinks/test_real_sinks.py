"""The sinks against the real packages, writing on this machine, read back with their own readers.

Each needs the extra of its name and is skipped without it; see docs/progress.md.
"""

import json
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.compare.judged_table import ScoreRow
from assay.lab.monitor import sender
from assay.runs.run_directory import RunDirectory
from tests.lab.monitor.sinks.logged_run import ALL, expected, logged, make_run, state

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

Point = tuple[int, str, float]
BLOCK, WHOLE, LAST = 32_768, 1, 4
"""Of a log of LevelDB: bytes of a block, kinds of a record that end one."""
ROWS = [
    ScoreRow("test", "math/gsm8k", "base", 0.25, 0.1, 0.4, 8, 1, 0),
    ScoreRow(
        "test", "math/gsm8k", "sft.step-000004", 0.5, 0.3, 0.7, 8, 1, 0, "base", "undecided", 0.25
    ),
]


@pytest.fixture(autouse=True)
def scored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run has these scores: the records that they come from are tested elsewhere."""
    monkeypatch.setattr(sender, "reported_rows", lambda run: iter(ROWS))


def two_processes(root: Path, **log: Any) -> RunDirectory:
    """A run that stopped after step 2 of its second stage and went on from step 1."""
    made = (_, run) = make_run(root, **log)
    logged(made, ALL[:6])
    logged(made, ALL[5:])
    (sink,) = log["to"]
    assert state(run, sink).problem == "" and state(run, sink).step == 8
    return run


def losses(found: Sequence[Point]) -> list[Point]:
    return sorted(each for each in found if each[1].endswith("/nll"))


def test_tensorboard_reads_back_what_metrics_jsonl_holds(tmp_path: Path):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = two_processes(tmp_path, to=["tensorboard"])
    (folder,) = (tmp_path / "log" / "tensorboard" / "logged").iterdir()
    read = events.EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    read.Reload()
    found = [(e.step, t, e.value) for t in read.Tags()["scalars"] for e in read.Scalars(t)]
    wanted = [(step, name, float(np.float32(value))) for step, name, value in expected(run)]
    assert losses(found) == sorted(wanted)
    assert (8, "test/sft.step-000004/score", 0.5) in found
    text = {tag: read.Tensors(tag)[-1].tensor_proto.string_val[0] for tag in read.Tags()["tensors"]}
    assert b"undecided" in text["verdicts/text_summary"]
    assert b'"sha": "ab"' in text["config/text_summary"]


def test_steps_of_a_killed_process_are_not_doubled_in_tensorboard(tmp_path: Path):
    """It died between the writing of step 3 and the note that step 3 was written."""
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    made = (_, run) = make_run(tmp_path, to=["tensorboard"])
    logged(made, ALL[:3])
    found = json.loads((run.path / "sinks.json").read_text())
    found["sinks"]["tensorboard"]["step"] = 2
    (run.path / "sinks.json").write_text(json.dumps(found))
    logged(made, ALL[3:4])
    (folder,) = (tmp_path / "log" / "tensorboard" / "logged").iterdir()
    read = events.EventAccumulator(str(folder))
    read.Reload()
    assert [event.step for event in read.Scalars("warm/nll")] == [1, 2, 3, 4]


def test_mlflow_keeps_metrics_parameters_and_verdicts_in_one_run(tmp_path: Path):
    mlflow = pytest.importorskip("mlflow")
    run = two_processes(tmp_path, to=["mlflow"], project="sums")
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'log' / 'mlflow' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("sums")
    (kept,) = client.search_runs([experiment.experiment_id])
    assert kept.info.run_name == "logged#42" and kept.data.tags["assay.run"] == str(run)
    history = [
        (point.step, name, point.value)
        for name in ("warm/nll", "sft/nll")
        for point in client.get_metric_history(kept.info.run_id, name)
    ]
    assert losses(history) == sorted(expected(run))
    assert kept.data.params["experiment.stage.sft.steps"] == "4"
    assert kept.data.params["fingerprints.data.rows.sha"] == "ab"
    assert kept.data.metrics["test/sft.step-000004/score"] == 0.5
    assert kept.data.tags["test/sft.step-000004/verdict"] == "undecided"


def wandb_records(file: Path) -> Iterator[Any]:
    """The records of a .wandb file: a log of LevelDB behind a header of seven bytes."""
    messages = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    content, place, parts = file.read_bytes(), 7, b""
    while place + 7 <= len(content):
        if BLOCK - place % BLOCK < 7:
            place += BLOCK - place % BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", content, place)
        parts += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (WHOLE, LAST):
            record = messages.Record()
            record.ParseFromString(parts)
            yield record
            parts = b""


def test_wandb_files_hold_every_step_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_API_KEY", "x" * 40)
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = two_processes(tmp_path, to=["wandb"], project="sums")
    files = sorted(tmp_path.glob("log/wandb/offline-run-*/*.wandb"))
    assert len(files) == 2, "one for each process; the server puts them together by their id"
    found: list[Point] = []
    ids, summary, config = set(), {}, {}
    for record in (record for file in files for record in wandb_records(file)):
        items = {i.key or ".".join(i.nested_key): i.value_json for i in record.history.item}
        step = record.history.step.num
        found += [(step, k, float(v)) for k, v in items.items() if k.endswith("/nll")]
        if record.run.run_id:
            ids.add((record.run.run_id, record.run.project, record.run.display_name))
            config |= {i.key: json.loads(i.value_json) for i in record.run.config.update}
        for item in record.summary.update:
            summary[item.key or ".".join(item.nested_key)] = json.loads(item.value_json)
    assert losses(found) == sorted(expected(run))
    assert ids == {(state(run, "wandb").remote, "sums", "logged#42")}
    assert config["experiment"]["stage"]["sft"]["steps"] == 4
    assert summary["test/sft.step-000004/verdict"] == "undecided"
    assert not any(b"x" * 40 in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


def test_trackio_keeps_every_step_once(tmp_path: Path):
    trackio = pytest.importorskip("trackio")
    run = two_processes(tmp_path, to=["trackio"], project=f"sums-{tmp_path.name}")
    project = f"sums-{tmp_path.name}"
    try:
        (name,) = trackio.SQLiteStorage.get_runs(project)
        logs = trackio.SQLiteStorage.get_logs(project, name)
        found = [(e["step"], k, v) for e in logs for k, v in e.items() if k.endswith("/nll")]
        assert losses(found) == sorted(expected(run))
        last = next(entry for entry in logs if "test/sft.step-000004/score" in entry)
        assert last["test/sft.step-000004/verdict"] == "undecided"
        config = trackio.SQLiteStorage.get_run_config(project, name)
        assert config["experiment.stage.sft.steps"] == 4
    finally:
        trackio.delete_project(project, force=True)


def test_a_step_that_was_stored_and_not_noted_is_not_doubled_in_mlflow_and_trackio(tmp_path: Path):
    mlflow, trackio = pytest.importorskip("mlflow"), pytest.importorskip("trackio")
    project = f"kill-{tmp_path.name}"
    made = (_, run) = make_run(tmp_path, to=["mlflow", "trackio"], project=project)
    logged(made, ALL[:3])
    found = json.loads((run.path / "sinks.json").read_text())
    for wrong, sink in ((2, "mlflow"), (5, "trackio")):  # noted too late, and too early
        found["sinks"][sink]["step"] = wrong
    (run.path / "sinks.json").write_text(json.dumps(found))
    logged(made, ALL[3:])
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'log' / 'mlflow' / 'mlflow.db'}")
    points = client.get_metric_history(state(run, "mlflow").remote, "warm/nll")
    assert [point.step for point in points] == [1, 2, 3, 4]
    try:
        logs = trackio.SQLiteStorage.get_logs(project, state(run, "trackio").remote)
        steps = [entry["step"] for entry in logs if {"warm/nll", "sft/nll"} & entry.keys()]
        assert steps == list(range(1, 9))
    finally:
        trackio.delete_project(project, force=True)
