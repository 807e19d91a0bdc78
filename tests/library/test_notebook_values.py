"""Rows and functions of a notebook train and measure as their files do, and a shell goes on."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from safetensors.torch import load_file

import assay
from assay.data.episode import Completion, Reward
from assay.data.row import Message, Row
from assay.lab.monitor.observer import Silent
from assay.lab.replay import replay
from assay.library.live_values import records
from assay.runs.verify_files import verify_run
from assay.tasks.task import Asked
from assay.tasks.turns import TurnsTask
from tests.tiny_labs import make_lab

ROWS = [{"prompt": f"What is {a} + {b}?", "answer": str(a + b)} for a in range(4) for b in range(3)]
TEST = [{"prompt": f"What is {a} + 9?", "answer": str(a + 9)} for a in range(4)]
SHORT: dict[str, Any] = {"steps": 3, "prompts": 2, "group": 4, "checkpoint_every": 1}
SHORT |= {"sampling": {"max_tokens": 6}, "optimizer": {"lr": 1e-2}}


def varied(prompts: list[str], completions: list[str], answer: list[str], **columns: Any) -> Any:
    assert all(isinstance(text, str) for text in (*prompts, *completions)), "as rows are text"
    pairs = zip(completions, answer, strict=True)
    return [1.0 if text == a else min(len(set(text)) / 20, 0.5) for text, a in pairs]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny model."""
    return make_lab(tmp_path_factory.mktemp("notebook")).parent


def trained(lab: Path, name: str, **more: Any) -> assay.Run:
    options = {**SHORT, "root": lab, "name": name, "progress": False, **more}
    return assay.run("path:model", ROWS, varied, **options)


@pytest.fixture(scope="module")
def whole(lab: Path) -> assay.Run:
    return trained(lab, "whole", test=TEST)


def shell(lab: Path, *words: str) -> str:
    command = [sys.executable, "-c", "from assay.cli.main import app; app()", *words]
    done = subprocess.run(command, cwd=lab, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_an_interrupted_run_goes_on_in_a_shell_to_the_same_weights(
    lab: Path, whole: assay.Run
) -> None:
    class Stops(assay.Callback):
        def step(self, step: int, metrics: Any) -> None:
            if step == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(lab, "broken", callbacks=[Stops()])
    broken = assay.open_run("broken", root=lab)
    assert broken.status == "interrupted" and [int(name[-6:]) for name in broken.checkpoints] == [1]
    (stored,) = (broken.path / "code").iterdir()
    (lab / "runs" / ".code" / stored.name).unlink()
    shell(lab, "resume", "broken")
    ends = [load_file([*r.checkpoints.values()][-1] / "model.safetensors") for r in (whole, broken)]
    assert len(ends[0]) and all((ends[1][key] == value).all() for key, value in ends[0].items())
    assert not verify_run(broken.directory).faults
    assert "whole" in shell(lab, "replay", "whole", "--step", "2", "--stage", "grpo")


def test_code_that_was_changed_in_the_lab_runs_no_more(lab: Path, whole: assay.Run) -> None:
    (stored,) = (whole.path / "code").iterdir()
    file = lab / "runs" / ".code" / stored.name
    text = file.read_text()
    file.write_text(text.replace("0.5", "0.4"))
    try:
        with pytest.raises(assay.InputError, match="is not the code that the run stored"):
            replay(whole.directory, 2, observer=Silent())
    finally:
        file.write_text(text)


def test_samples_and_scores_are_frames(lab: Path, whole: assay.Run) -> None:
    frame = assay.samples(whole)
    assert len(frame) == 3 * 2 * 4 and {*frame["step"]} == {1, 2, 3}
    assert list(frame["reward"]) == [varied([""], [t], ["x"])[0] for t in frame["text"]]
    assert len({*frame["reward"]}) > 1
    table = assay.scores(whole)
    assert list(table["checkpoint"]) == ["base", "grpo.step-000003"]
    assert list(table["score"]) == [row.score for row in whole.scores]


def test_rows_are_measured_with_an_interval_and_a_frame_of_answers(
    lab: Path, whole: assay.Run
) -> None:
    frame = pd.DataFrame(TEST)
    by_target = [
        assay.evaluate(each, frame, varied, root=lab, max_tokens=6, progress=False)
        for each in ("path:model", whole, "whole@grpo.last")
    ]
    assert [r.score for r in by_target[:2]] == [row.score for row in whole.scores]
    assert by_target[1].score == by_target[2].score
    first = by_target[0]
    assert first.interval.low <= first.score <= first.interval.high
    assert list(first.answers["question"]) == [row["prompt"] for row in TEST]
    assert float(first.answers["score"].mean()) == first.score  # type: ignore[arg-type]
    again = assay.evaluate("path:model", TEST, varied, root=lab, max_tokens=6, progress=False)
    assert first.made and not again.made and again.file == first.file


def test_a_generator_function_is_a_task_of_several_turns(lab: Path) -> None:
    def insists(row: Row) -> Iterator[Any]:
        answer = yield
        if row.gold not in answer:
            yield "Once more."

    def once(row: Row, completion: Completion) -> Reward:
        turns = sum(message.role == "assistant" for message in completion.messages)
        return Reward(1.0 if row.gold in completion.text else turns / 10)

    row = Row("r", (Message("user", "2?"),), gold="2")
    dialogue = TurnsTask(insists).dialogue(row)  # type: ignore[arg-type]
    assert dialogue.asks() == dialogue.asks() == Asked(row.prompt)
    dialogue.hears("3", "stop")
    again = (Message("assistant", "3"), Message("user", "Once more."))
    assert dialogue.asks() == Asked((*row.prompt, *again))
    dialogue.hears("2", "stop")
    assert dialogue.asks() is None and dialogue.messages == (*again, Message("assistant", "2"))
    right = TurnsTask(insists).dialogue(row)  # type: ignore[arg-type]
    right.hears("2", "stop")
    assert right.asks() is None

    options = {**SHORT, "steps": 1, "root": lab, "name": "turns", "progress": False}
    run = assay.run("path:model", ROWS, once, task=insists, **options)
    assert 0.2 in {*assay.samples(run)["reward"]} <= {0.2, 1.0}
    assert run.experiment.task.endswith(".py") and len([*(run.path / "code").iterdir()]) == 2


class Columns:
    """What `datasets.Dataset` offers."""

    column_names = ("prompt", "answer")

    def to_list(self) -> list[dict[str, Any]]:
        return ROWS


def test_rows_of_every_kind_are_the_same_and_others_are_refused() -> None:
    frame = pd.DataFrame([*ROWS, {"prompt": "What?"}])
    assert records(Columns(), "rows") == ROWS
    assert records(frame, "rows")[:-1] == ROWS and records(frame, "rows")[-1]["answer"] is None
    for wrong, words in ((["a"], "is str and no row"), ([], "holds no rows"), (3, "is int")):
        with pytest.raises(assay.InputError, match=words):
            records(wrong, "rows")


@pytest.mark.parametrize(
    ("rows", "more", "words"),
    [
        ([{"text": "a"}], {}, "no format has columns text .*name one prompt"),
        ([{"prompt": "a", "answer": {1}}], {}, r"^data.train.source: row 1 is no JSON"),
        (ROWS, {"stepz": 3}, "stage.grpo.stepz: unknown key .*did you mean 'steps'"),
        (None, {"name": "x"}, "name: is for a model that is trained on rows"),
    ],
)
def test_what_cannot_run_is_refused_in_a_line(
    lab: Path, rows: Any, more: dict[str, Any], words: str
) -> None:
    with pytest.raises(assay.InputError, match=words) as no:
        assay.run("path:model", rows, varied if rows else None, root=lab, **more)
    assert "\n" not in str(no.value)


def test_the_package_shows_what_users_call() -> None:
    assert {"run", "evaluate", "samples", "scores", "Run"} < {*dir(assay)}
    assert not {"sys", "ModuleType", "TYPE_CHECKING", "import_module", "data"} & {*dir(assay)}
    assert all(getattr(assay, name) is not None for name in dir(assay))
