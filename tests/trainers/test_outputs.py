"""What readers make of files that the tools themselves wrote (`recorded/`, see its README)."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from assay.engines.environments import installed
from assay.errors import InputError
from assay.trainers.outputs.output import Step, SwiftOutput, TrlOutput
from assay.trainers.outputs.plain_folders import VerlOutput, merged
from tests.json_lines import json_lines

RECORDED = Path(__file__).parent / "recorded"


@pytest.fixture
def trl(tmp_path: Path) -> Path:
    return shutil.copytree(RECORDED / "trl-grpo", tmp_path / "output")


@pytest.fixture
def swift(tmp_path: Path) -> Path:
    return shutil.copytree(RECORDED / "swift-grpo", tmp_path / "output")


def logged(folder: Path) -> list[dict]:
    """The entries of steps in the log."""
    return [line for line in json_lines(folder / "logging.jsonl") if "loss" in line]


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


@pytest.mark.parametrize(
    ("output", "tool", "file"),
    [
        (TrlOutput, "trl", "completions/completions_00004.parquet"),
        (VerlOutput, "verl", "rollouts/4.jsonl"),
    ],
)
def test_a_step_whose_answers_are_still_written_is_not_there_yet(
    tmp_path: Path, output: type[TrlOutput | VerlOutput], tool: str, file: str
) -> None:
    folder = shutil.copytree(RECORDED / f"{tool}-grpo", tmp_path / "output")
    whole = (folder / file).read_bytes()
    for written in (whole[: len(whole) // 2], whole[:-20], b""):
        (folder / file).write_bytes(written)
        for ended in (False, True):
            assert numbers(output(folder).steps(ended=ended)) == [1, 2, 3]
    (folder / file).unlink()
    assert numbers(output(folder).steps()) == [1, 2, 3]
    assert numbers(output(folder).steps(ended=True)) == [1, 2, 3, 4]


def test_a_damaged_line_and_a_damaged_table_are_named(trl: Path) -> None:
    lines = (trl / "logging.jsonl").read_text().splitlines(keepends=True)
    (trl / "logging.jsonl").write_text("".join([lines[0], "{oops}\n", *lines[1:]]))
    with pytest.raises(InputError, match=r"logging\.jsonl:2"):
        list(TrlOutput(trl).steps())
    (trl / "logging.jsonl").write_text("".join(lines))
    (trl / "completions" / "completions_00002.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"00002\.parquet"):
        list(TrlOutput(trl).steps())


def test_answers_of_ms_swift_have_its_advantages_and_assays_rows_and_tokens(swift: Path) -> None:
    steps, entries = list(SwiftOutput(swift).steps()), logged(swift)
    assert [step.number for step in steps] == [1, 2, 3, 4]
    tables = json_lines(swift / "completions.jsonl")
    # ms-swift writes the last table once more at the end.
    for step, entry, table in zip(steps, entries, tables, strict=False):
        assert step.metrics["reward_mean"] == entry["reward"]
        assert "reward_std" not in step.metrics
        assert [each.advantage for each in step.answers] == table["advantages"]
        assert [each.reward for each in step.answers] == table["AssayReward"]
        lengths = [len(each.tokens) for each in step.answers]
        assert sum(lengths) / len(lengths) == entry["completions/mean_length"]
        # The row is that of the prompt that ms-swift shows beside the completion.
        for each, prompt in zip(step.answers, table["prompt"], strict=True):
            assert each.row.replace("+", " + ") + " = ?" in prompt


def test_answers_without_the_journal_are_ms_swifts_own(swift: Path) -> None:
    known = [step.answers for step in SwiftOutput(swift).steps()]
    shutil.rmtree(swift / "answers")
    plain = [step.answers for step in SwiftOutput(swift).steps()]
    for own, theirs in zip(known, plain, strict=True):
        assert [a.reward for a in own] == [a.reward for a in theirs]
        assert [a.advantage for a in own] == [a.advantage for a in theirs]
        assert all(a.prompt and not a.row and not a.tokens for a in theirs)


def test_of_a_resumed_ms_swift_the_last_attempt_at_a_step_counts(swift: Path) -> None:
    (file,) = (swift / "answers").iterdir()
    again = [{**line, "text": "again"} for line in json_lines(file) if line["step"] >= 3]
    later = swift / "answers" / "0-9999999999999-1.jsonl"
    later.write_text("".join(json.dumps(line) + "\n" for line in again))
    texts = [{each.text for each in step.answers} for step in SwiftOutput(swift).steps()]
    assert "again" not in texts[0] | texts[1]
    assert texts[2] == texts[3] == {"again"}


def test_a_step_of_ms_swift_whose_completions_are_still_written_is_not_there_yet(
    swift: Path,
) -> None:
    file = swift / "completions.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:3], lines[3][:-10]]))
    assert numbers(SwiftOutput(swift).steps()) == [1, 2, 3]
    assert numbers(SwiftOutput(swift).steps(ended=True)) == [1, 2, 3, 4]


@pytest.fixture
def verl(tmp_path: Path) -> Path:
    return shutil.copytree(RECORDED / "verl-grpo", tmp_path / "output")


def test_answers_of_verl_have_assays_rows_and_tokens(verl: Path) -> None:
    steps = list(VerlOutput(verl).steps())
    assert [step.number for step in steps] == [1, 2, 3, 4]
    for step, line in zip(steps, json_lines(verl / "metrics.jsonl"), strict=True):
        data = line["data"]
        assert step.metrics["reward_mean"] == data["critic/score/mean"]
        assert step.metrics["seconds"] == data["timing_s/step"]
        # The share of the longest answers is no share of cut ones.
        assert "truncated_share" not in step.metrics
        lengths = [len(each.tokens) for each in step.answers]
        assert sum(lengths) / len(lengths) == data["response_length/mean"]
        rollouts = json_lines(verl / "rollouts" / f"{step.number}.jsonl")
        for each, rollout in zip(step.answers, rollouts, strict=True):
            assert each.reward == rollout["score"]
            assert each.row.replace("+", " + ") + " = ?" in rollout["input"]


def test_a_log_that_verl_began_anew_goes_on_where_the_first_one_was_left(verl: Path) -> None:
    every = list(VerlOutput(verl).steps())
    lines = (verl / "metrics.jsonl").read_text().splitlines(keepends=True)
    # Killed after step 3, resumed from the checkpoint of step 2; run.sh keeps the first log.
    (verl / "metrics-1.jsonl").write_text("".join(lines[:3]) + lines[3][:40])
    (verl / "metrics.jsonl").write_text("".join(lines[2:]))
    assert list(VerlOutput(verl).steps()) == every


def test_a_checkpoint_of_verl_counts_once_verl_names_it(verl: Path) -> None:
    assert [each.step for each in VerlOutput(verl).checkpoints()] == [2, 4]
    (verl / "latest_checkpointed_iteration.txt").write_text("2")
    assert [each.step for each in VerlOutput(verl).checkpoints()] == [2]


class Command:
    """Runs a command of whoever wrote the file, where it is unpickled."""

    def __init__(self, command: str):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.mark.slow
@pytest.mark.skipif(installed("verl") is None, reason="verl is not installed")
def test_a_shard_of_verl_runs_no_command(tmp_path: Path) -> None:
    actor, mark = tmp_path / "actor", tmp_path / "it ran"
    (actor / "huggingface").mkdir(parents=True)
    (actor / "fsdp_config.json").write_text('{"FSDP_version": 2, "world_size": 1}')
    (actor / "huggingface" / "config.json").write_text(
        '{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64}'
    )
    torch.save({"a": Command(f"touch '{mark}'")}, actor / "model_world_size_1_rank_0.pt")
    with pytest.raises(InputError, match="holds other things than tensors"):
        merged(actor, tmp_path / "merged")
    assert not mark.exists()
    torch.load(actor / "model_world_size_1_rank_0.pt", weights_only=False)
    assert mark.exists()  # the file would have


def test_an_adapter_of_verl_without_its_notes_is_refused_by_their_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (actor := tmp_path / "global_step_2" / "actor").mkdir(parents=True)
    (actor / "fsdp_config.json").write_text("{}")

    def merge(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        (Path(command[-1]) / "lora_adapter").mkdir(parents=True)
        return subprocess.CompletedProcess(command, 0, "", "")

    installed = "assay.trainers.outputs.plain_folders.installed"
    monkeypatch.setattr(installed, lambda name: Path("python"))
    monkeypatch.setattr("assay.trainers.outputs.plain_folders.subprocess.run", merge)
    with pytest.raises(InputError, match=r"lora_train_meta\.json: is missing") as refused:
        merged(actor, tmp_path / "whole")
    assert str(actor / "lora_train_meta.json") in str(refused.value)
    (actor / "lora_train_meta.json").write_text("{}")
    assert merged(actor, tmp_path / "again") == tmp_path / "again" / "lora_adapter"
