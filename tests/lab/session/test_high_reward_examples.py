"""Examples are the best of other rows, drawn by ids, and tell nothing of the row or of a test."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.data.row import Message, Row
from assay.errors import InputError
from assay.experiment.data_tables import DataSpec, Examples
from assay.experiment.experiment import Experiment
from assay.experiment.read_file import read_experiment
from assay.lab.data.prepare import load_rows
from assay.lab.data.run_rows import Example, best_answers, high_reward_examples, refuse_leaked
from assay.lab.monitor.observer import Silent
from assay.lab.session.session import Session
from assay.runs.history import Sample, find_record, measured_checkpoints
from assay.runs.records import RecordWriter
from assay.runs.run_directory import RunDirectory, read_manifest, runs_of
from assay.tasks.task import task
from tests.from_files import start
from tests.sample_lines import read_samples


def row(name: str, kind: str = "math", conversation: str = "", asks: str = "") -> Row:
    said = (Message("user", asks or f"What is {name}?"),)
    return Row(name, said, conversation=conversation, extra={"problem_type": kind})


def answer(name: str, number: int, reward: float | None) -> Sample:
    text = f"{name} {number}"
    return Sample(text, name, number, text, reward, {}, "stop", 1)


POOL = tuple(
    Example(row(f"{kind}{n}", kind, f"talk {n // 2}" if kind == "math" else ""), f"{kind} {n}", 1.0)
    for kind in ("math", "code")
    for n in range(6)
)


def test_the_best_answer_of_each_row_is_kept_and_of_equal_ones_the_first() -> None:
    asked = {name: row(name) for name in "abc"}
    scores = [("a", 0.9), ("a", 1.0), ("a", 1.0), ("b", 0.7), ("b", None), ("c", 0.8), ("x", 1.0)]
    answers = [answer(name, n, reward) for n, (name, reward) in enumerate(scores)]
    found = best_answers(answers, asked, 0.8)
    assert [(each.row.id, each.text, each.reward) for each in found] == [
        ("a", "a 1", 1.0),
        ("c", "c 5", 0.8),
    ]


@given(st.integers(0, 11), st.integers(0, 20), st.integers(1, 8))
def test_no_example_is_of_the_rows_own_conversation_or_question(at, seed, shots) -> None:
    own = POOL[at].row
    found = high_reward_examples(own, POOL, shots, "extra.problem_type", seed)
    talks = {each.row.conversation or each.row.id for each in found}
    assert (own.conversation or own.id) not in talks
    assert {each.row.extra["problem_type"] for each in found} <= {own.extra["problem_type"]}
    assert len({each.row.id for each in found}) == len(found) <= shots
    copied = replace(own, id="else/0", conversation="else", messages=own.messages)
    again = high_reward_examples(copied, POOL, 20, seed=seed)
    assert own.id not in {each.row.id for each in again}, "the same question under another id"


def test_an_example_that_asks_what_a_test_asks_is_refused() -> None:
    told = replace(row("own"), extra={"examples": [POOL[0].told]})
    refuse_leaked([told], [row("t", asks="What is code0?")], "bench")
    with pytest.raises(InputError, match="row own has an example that asks what bench asks"):
        refuse_leaked([told], [row("t", asks="what is  MATH0")], "bench")


@pytest.fixture(scope="module")
def lab(sampled: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(sampled, tmp_path_factory.mktemp("lab"), dirs_exist_ok=True))


SHOWN = """
name = "shown"
model = "path:model"
task = "math"

[data.train]
source = "path:sums.jsonl"
format = "messages"
examples = { run = "tiny", stage = "rl", shots = 2, least = 0.6 }

[stage.sft]
method = "sft"
data = "train"
steps = 1
"""


def experiment_of(lab: Path, text: str = SHOWN) -> Experiment:
    (lab / "shown.toml").write_text(text)
    return read_experiment(lab / "shown.toml")


def test_rows_hold_what_earned_a_high_reward_in_the_run(lab: Path) -> None:
    experiment = experiment_of(lab)
    rows = load_rows(experiment.data["train"], task("math"), lab).rows
    (run,) = runs_of(lab, "tiny")
    files = sorted((run.path / "samples" / "rl").glob("*.parquet"))
    good = {
        (line["row_id"], line["text"]): line["reward"]
        for file in files
        for line in read_samples(file)
        if line["reward"] >= 0.6
    }
    for each in rows:
        assert len(each.extra["examples"]) == 2
        for shown in each.extra["examples"]:
            assert good[shown["row"], shown["text"]] == shown["reward"] and shown["row"] != each.id
    session = Session(experiment, RunDirectory(lab, "shown", "none"), 7, Silent())
    assert session.sets["train"].train[0].extra["examples"]
    (made,) = start(lab / "shown.toml", root=lab)
    noted = read_manifest(made)["data"]["train"]["examples"]
    assert noted["run"] == str(run) and noted["file_sha256"] and noted["least"] == 0.6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stage": "rl", "least": 7.0}, "no completion of tiny/.* has a reward of at least 7"),
        ({"evaluation": "told", "checkpoint": "rl.last"}, "'told' of tiny/.* reports: its items"),
    ],
)
def test_examples_that_cannot_be_are_refused_in_one_line(lab: Path, options, message) -> None:
    (run,) = runs_of(lab, "tiny")
    often = find_record(run, "often")
    file = often.file(run.evaluations, measured_checkpoints(run, often)[-1])
    told = replace(often, name="told", role="report")
    with RecordWriter(run.evaluations, told, file.stem) as writer:
        writer.write_chunk(0, read_samples(file))
        writer.finish()
    spec = DataSpec(
        source="path:sums.jsonl", format="messages", examples=Examples(run="tiny", **options)
    )
    with pytest.raises(InputError, match=message) as found:
        load_rows(spec, task("math"), lab)
    assert "\n" not in str(found.value)
