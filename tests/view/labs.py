"""A lab for the window: a run of the demo with answers that are hostile, unscored, or talk."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from starlette.testclient import TestClient

from assay.runs.history import find_record
from assay.runs.records import conversation_columns, stored_messages, write_samples
from assay.runs.run_directory import RunDirectory, runs_of
from assay.view.app import application
from assay.view.window import Window, named_labs
from tests.pages.synthetic import Shape, demo_run
from tests.sample_lines import sample_line
from tests.written import as_written

TOKEN = "open-sesame"
EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>\x1b[2J\u202e needle"
TALK = [
    {
        "role": "assistant",
        "content": "<think>plan it</think>I look.",
        "tool_calls": [
            {
                "id": "1",
                "type": "function",
                "function": {"name": "look", "arguments": '{"at": "sky"}'},
            }
        ],
    },
    {"role": "tool", "content": "blue", "tool_call_id": "1"},
    {"role": "assistant", "content": "It is blue."},
]


def sample(step: int, row: str, number: int, **changes: Any) -> dict[str, Any]:
    """A line of a step's samples."""
    line = {
        "text": "plain",
        "tokens": [1, 2, 3],
        "behaviour_logps": [-0.001, -0.7, -4.0],
        "reward": 0.5,
        "parts": json.dumps({"format": 1.0, "length": number / 4}),
        "advantage": number - 1.5,
    }
    return sample_line(step, row, number, **line | changes)


def lab(root: Path) -> RunDirectory:
    """A run and its twin in a lab; step 5 holds what the others do not."""
    root.mkdir(parents=True, exist_ok=True)
    shape = Shape(items=30, steps=4, groups=4, group=4)
    run, twin = demo_run(root, shape), demo_run(root, shape, "twin")
    lines = [
        sample(
            5, "odd", 0, text=EVIL, ended="length", tokens=[*range(9)], behaviour_logps=[-0.1] * 9
        ),
        sample(5, "odd", 1, reward=None, why="deadline", parts="{}"),
        sample(5, "odd", 2, reward=1.0, text="Needle in capitals"),
        sample(5, "odd", 3, reward=-0.25),
    ]
    talk = json.dumps(TALK)
    spoken = conversation_columns(stored_messages(talk), ())
    for each in (run, twin):
        write_samples(each.samples("rl", 5), lines)
        said = sample(6, "talk", 0, text="It is blue.", **spoken)
        write_samples(each.samples("rl", 6), [said])
    flip_some(twin, "rl.step-000030")
    return run


def twin_of(run: RunDirectory) -> RunDirectory:
    """The run that is as the first but for what `flip_some` did."""
    return runs_of(run.root, "twin")[0]


def flip_some(run: RunDirectory, checkpoint: str) -> None:
    """Turn the first three scores of a record of `held_out` round."""
    record = find_record(run, "held_out")
    file = record.file(run.evaluations, checkpoint)
    table = pq.read_table(file)
    scores = table["score"].to_pylist()
    scores[:3] = [1.0 - score for score in scores[:3]]
    place = table.schema.get_field_index("score")
    table = table.set_column(place, table.schema.field(place), pa.array(scores, pa.float64()))
    pq.write_table(table, file, write_page_checksum=True)
    as_written(file)


def client(*roots: Path, **options: Any) -> TestClient:
    """A reader who has the token."""
    app = application(Window(named_labs(roots)), TOKEN, **options)
    reader = TestClient(app, base_url="http://127.0.0.1:8010")
    assert reader.get(f"/?token={TOKEN}").status_code == 200
    return reader


def addresses(run: RunDirectory) -> list[str]:
    """Every kind of address once."""
    lab, key = f"/lab/{run.root.name}", next(run.evaluations.glob("held_out-*")).name
    own, asked = f"{lab}/runs/{run}/", f"run={run}"
    return [
        "/",
        "/?text=demo",
        own,
        f"{own}costs",
        f"{own}progress",
        f"{own}evaluations/{key}/base.parquet",
        f"{own}samples/rl/step-000005.parquet",
        f"/curves?run={run.root.name}/{run}",
        f"/curves?lab={run.root.name}&run={run}&stage=rl&metric=reward_mean",
        f"{lab}/samples?{asked}",
        f"{lab}/samples?{asked}&text=needle",
        f"{lab}/show?id={run}:rl/5/odd%230",
        f"{lab}/show?id={run}:rl/6/talk%230",
        f"{lab}/show?id={run}:held_out/base/simple_python_3",
        f"{lab}/show?id={run}:rl/5/odd",
        f"{lab}/show?id={run}:simple_python_3",
        f"{lab}/compare",
        f"{lab}/compare?run=demo&run=twin&on=held_out",
        "/style.css",
        "/view.js",
    ]
