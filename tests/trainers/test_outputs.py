"""What readers make of files that the tools themselves wrote (`recorded/`, see its README)."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.trainers.outputs.output import DamagedOutput, Step
from assay.trainers.outputs.trl_output import TrlOutput

RECORDED = Path(__file__).parent / "recorded"


@pytest.fixture
def trl(tmp_path: Path) -> Path:
    return shutil.copytree(RECORDED / "trl-grpo", tmp_path / "output")


def logged(folder: Path) -> list[dict]:
    """The entries of steps in the log."""
    lines = map(json.loads, (folder / "logging.jsonl").read_text().splitlines())
    return [line for line in lines if "loss" in line]


def numbers(steps: Iterator[Step]) -> list[int]:
    return [step.number for step in steps]


def test_a_step_has_the_tools_numbers_under_assays_names(trl: Path) -> None:
    steps, entries = list(TrlOutput(trl).steps()), logged(trl)
    assert [step.number for step in steps] == [1, 2, 3, 4]
    for step, entry in zip(steps, entries, strict=True):
        assert step.metrics["reward_mean"] == entry["reward"]
        assert step.metrics["signal_share"] == 1 - entry["frac_reward_zero_std"]
        assert step.metrics["truncated_share"] == entry["completions/clipped_ratio"]
        # Another definition than Assay's deviation does not pass for it.
        assert "reward_std" not in step.metrics
        assert step.metrics["trl/reward_std"] == entry["reward_std"]
        # The completions are those of this very step.
        rewards = [each.reward for each in step.answers]
        assert sum(rewards) / len(rewards) == pytest.approx(entry["reward"])  # type: ignore[arg-type]
        lengths = [len(each.tokens) for each in step.answers]
        assert sum(lengths) / len(lengths) == entry["completions/mean_length"]


def test_the_log_of_a_checkpoint_says_the_same_as_the_live_log(trl: Path) -> None:
    live = [{**step.metrics, "seconds": 0} for step in TrlOutput(trl).steps()]
    (trl / "logging.jsonl").unlink()
    kept = [{**step.metrics, "seconds": 0} for step in TrlOutput(trl).steps()]
    assert kept == live


def test_reading_goes_on_where_it_stopped_whatever_was_half_written(trl: Path) -> None:
    whole = (trl / "logging.jsonl").read_bytes()
    every = list(TrlOutput(trl).steps())
    for cut in range(0, len(whole), 97):
        (trl / "logging.jsonl").write_bytes(whole[:cut])
        first = list(TrlOutput(trl).steps())
        (trl / "logging.jsonl").write_bytes(whole)
        assert first + list(TrlOutput(trl).steps(len(first))) == every


def test_steps_that_a_resumed_tool_repeats_count_once(trl: Path) -> None:
    lines = (trl / "logging.jsonl").read_text().splitlines(keepends=True)
    # Killed after step 3, resumed from the checkpoint of step 2: another step 3 follows.
    third = json.dumps(json.loads(lines[2]) | {"loss": 7.0}) + "\n"
    (trl / "logging.jsonl").write_text("".join([*lines[:3], third, lines[3]]))
    steps = list(TrlOutput(trl).steps())
    assert [step.number for step in steps] == [1, 2, 3, 4] and steps[2].metrics["loss"] == 7.0


def test_a_round_of_several_updates_is_one_step(trl: Path) -> None:
    first, second = TrlOutput(trl, updates=2).steps()
    losses = [entry["loss"] for entry in logged(trl)]
    assert first.metrics["loss"] == pytest.approx(sum(losses[:2]) / 2)
    assert second.metrics["loss"] == pytest.approx(sum(losses[2:]) / 2)
    assert [each.step for each in TrlOutput(trl, updates=2).checkpoints()] == [1, 2]
    assert numbers(TrlOutput(trl, updates=3).steps()) == [1]


def test_a_checkpoint_counts_once_its_last_file_is_whole(trl: Path) -> None:
    state = trl / "checkpoint-4" / "trainer_state.json"
    state.write_bytes(state.read_bytes()[:100])
    assert [each.step for each in TrlOutput(trl).checkpoints()] == [2]


def test_a_step_whose_table_is_still_written_is_not_there_yet(trl: Path) -> None:
    table = trl / "completions" / "completions_00004.parquet"
    whole = table.read_bytes()
    for written in (whole[:3000], b""):
        table.write_bytes(written)
        assert numbers(TrlOutput(trl).steps()) == [1, 2, 3]
    table.unlink()
    assert numbers(TrlOutput(trl).steps()) == [1, 2, 3]
    assert numbers(TrlOutput(trl).steps(ended=True)) == [1, 2, 3, 4]


def test_a_damaged_line_and_a_damaged_table_are_named(trl: Path) -> None:
    lines = (trl / "logging.jsonl").read_text().splitlines(keepends=True)
    (trl / "logging.jsonl").write_text("".join([lines[0], "{oops}\n", *lines[1:]]))
    with pytest.raises(DamagedOutput, match=r"logging\.jsonl:2"):
        list(TrlOutput(trl).steps())
    (trl / "logging.jsonl").write_text("".join(lines))
    (trl / "completions" / "completions_00002.parquet").write_bytes(b"PAR1")
    with pytest.raises(DamagedOutput, match=r"00002\.parquet"):
        list(TrlOutput(trl).steps())
