"""What fits on a GPU is told from config.json alone, within what an H200 measured."""

import json
import re
from pathlib import Path

import pytest
from benchmarks.gpu.steps import ANSWER, DOCUMENTS, MICRO_TOKENS, PROMPT
from benchmarks.memory import configs
from benchmarks.results import RESULTS
from pydantic import TypeAdapter

from assay.data.row import Message, Row, ToolCall
from assay.experiment.stage_tables import StageSpec
from assay.lab.check.cards import CARDS, characters, needed, seconds
from assay.lab.check.work import GIB, StageWork
from assay.models.memory import HEADROOM, model_shape
from assay.train.update import MicroBatchSize
from tests.cli.conftest import answer, assert_one_line, call

SFT = {"method": "sft", "data": "train", "steps": 1, "batch": DOCUMENTS}
GRPO = {"method": "grpo", "data": "train", "steps": 1, "prompts": 8, "group": 8, "reward": "x"}
SFT_WORK = StageWork(
    1, DOCUMENTS, 1, PROMPT + ANSWER, 256, 0, 0, 1, MicroBatchSize(MICRO_TOKENS, 5120, 256)
)
GRPO_WORK = StageWork(1, 8, 8, 256, 256, 128, 128, 1, MicroBatchSize(MICRO_TOKENS, 6144, 384))
MEASURED = re.compile(r"([\d.]+) s, .* peak ([\d.]+) GiB")
"""Seconds of a step, and its peak."""


def measured_steps() -> dict[tuple[str, str], tuple[float, float]]:
    """Assay's steps on the H200: seconds and GiB by model and method."""
    file = RESULTS / "gpu" / "nvidia-h200" / "sections.json"
    found = {}
    for row in json.loads(file.read_text())["sections"]["steps"]:
        model, method, side = ([*row["what"].split(", "), "", ""])[:3]
        if side == "Assay" and row["status"] == "measured":
            ((step, peak),) = MEASURED.findall(row["found"])
            found[model, method] = float(step), float(peak)
    return found


@pytest.mark.parametrize(("model", "method"), measured_steps())
def test_an_h200_took_what_is_foretold(model: str, method: str) -> None:
    step, peak = measured_steps()[model, method]
    table, work = (SFT, SFT_WORK) if method == "SFT" else (GRPO, GRPO_WORK)
    stage, shape = TypeAdapter(StageSpec).validate_python(table), model_shape(configs()[model])
    low, high = seconds(stage, work, shape, False, 1, CARDS["h200"])
    assert low < step < high < 8 * low
    foretold = needed(stage, work, shape, shape.parameters, False, 1) / HEADROOM / GIB
    assert 0.8 < peak / foretold < 1.1


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A file of report 000's size, for a model of which nothing is there but config.json."""
    configs()["Qwen3-4B"].save_pretrained(tmp_path / "qwen3-4b")
    (tmp_path / "large.toml").write_text("""
    name = "large"
    model = "path:qwen3-4b"
    task = "tools"

    [data.train]
    source = "path:rows.jsonl"
    format = "messages"

    [stage.sft]
    method = "sft"
    data = "train"
    epochs = 1
    """)
    row = {"messages": [{"role": "user", "content": "x" * 2800}]}
    row["messages"].append({"role": "assistant", "content": "y" * 2800})
    (tmp_path / "rows.jsonl").write_text((json.dumps(row) + "\n") * 40)
    return tmp_path


def test_the_first_way_that_fits_is_named_without_weights_or_tokenizer(lab: Path) -> None:
    told = call("check", lab / "large.toml", "--gpu", "h100", "--lab", lab, "--json")
    (stage,) = answer(told)["result"]
    assert told.exit_code == 0 and 1990 < stage["longest"] < 2100 and stage["steps"] == 1
    fits = {each["name"]: each["fits"] for each in stage["settings"]}
    assert not fits["as it is"] and fits["8-bit AdamW, layers computed again"]
    more = call("check", lab / "large.toml", "--gpu", "h100", "--gpus", "4", "--lab", lab)
    assert "write engine.ranks = 4" in more.output
    small = call("check", lab / "large.toml", "--memory", "8", "--lab", lab)
    assert small.exit_code == 2 and "nothing fits" in small.output


def test_a_card_that_nobody_knows_is_one_line(lab: Path) -> None:
    told = call("check", lab / "large.toml", "--gpu", "h1000", "--lab", lab)
    assert_one_line(told, "--gpu: 'h1000' is no card in the table")


def test_what_a_row_writes_is_counted_whole() -> None:
    call_ = Message("assistant", "", (ToolCall("f", {"a": "b" * 100}),), reasoning="c" * 50)
    row = Row("x", (Message("user", "d" * 30), call_), ({"name": "f" * 40},))
    assert 100 + 50 + 30 + 40 < characters(row) < 330


def test_what_the_estimate_has_nothing_of_is_said(lab: Path) -> None:
    text = (lab / "large.toml").read_text()
    models = '[model]\npolicy = "path:qwen3-4b"\njudge = { source = "path:other" }\n'
    text = text.replace('model = "path:qwen3-4b"', "").replace(
        "[data.train]", f"{models}[data.train]"
    )
    (lab / "large.toml").write_text(text)
    told = call("check", lab / "large.toml", "--gpu", "h100", "--lab", lab)
    assert "model.judge needs memory beside this" in told.stderr
