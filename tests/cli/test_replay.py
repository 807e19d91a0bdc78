"""`assay replay`: what it prints, what it gives to programs, and what it refuses in one line."""

from pathlib import Path

import pytest

from tests.cli.conftest import TinyLab, answer, assert_one_line, call
from tests.written import as_written


def test_a_replay_gives_programs_every_sample_and_people_tables(finished_lab: Path):
    arguments = ("replay", "tiny", "--step", 3, "--lab", finished_lab, "--gradient")
    reward = ("--set", "reward={ accuracy = -1.0, cosine = -0.5 }", "--set", "advantage=mean_only")
    result = answer(call(*arguments, *reward, "--json"))["result"]
    assert result["reproduced"] is True and result["pull"] == "advantage"
    assert [c["path"] for c in result["settings"]] == [
        "advantage",
        "reward.accuracy",
        "reward.cosine",
    ]
    assert len(result["samples"]) == 8
    assert result["gradients"]["weights"] == {"checkpoint": "rl.step-000002", "behind": 0}
    flips = [sample for sample in result["samples"] if sample["turn"] == "flipped"]
    assert flips
    text = call(*arguments, *reward).stdout
    assert "reproduced exactly" in text and "rl.step-000002, the weights that sampled" in text
    assert f"{len(flips)} flip their sign" in text and "model.layers.1" in text
    assert all(sample["id"] in text for sample in flips)
    shown = answer(call("report", flips[0]["id"], "--lab", finished_lab, "--json"))["result"]
    assert [line["reward"] for line in shown] == [flips[0]["reward_before"]]


def test_without_settings_the_step_is_shown_as_it_was(finished_lab: Path):
    result = call("replay", "tiny", "--step", 1, "--lab", finished_lab)
    assert result.exit_code == 0 and "nothing set" in result.stdout
    assert "8 samples 0 flip their sign" in result.stdout
    given = answer(call("replay", "tiny", "--step", 1, "--lab", finished_lab, "--json"))["result"]
    assert given["gradients"] is None and given["settings"] == []


def test_what_is_not_reproduced_is_a_warning_with_evidence(trained: TinyLab):
    import pyarrow as pa
    import pyarrow.parquet as pq

    (file,) = trained.root.glob("runs/tiny/*/samples/rl/step-000001.parquet")
    lines = pq.read_table(file).to_pylist()
    lines[0] |= {"reward": None, "why": "\x1b[2Jdeadline"}
    pq.write_table(pa.Table.from_pylist(lines, pq.read_schema(file)), file)
    as_written(file)
    arguments = ("replay", "tiny", "--step", 1, "--lab", trained.root)
    finding, *_ = answer(call(*arguments, "--json"))["findings"]
    assert finding["severity"] == "warning" and "abstained" in finding["evidence"]
    text = call(*arguments).stdout
    assert "recorded rewards are not reproduced: 1 of 8" in text
    assert "reproduced exactly" not in text and "\x1b" not in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("tyni", "--step", 1), ("no run named 'tyni'", "did you mean 'tiny'")),
        (("tiny", "--step", 7), ("no samples of step 7", "it has 1 to 4")),
        (("tiny", "--step", 1, "--stage", "sft"), ("samples nothing", "take rl")),
        (("tiny", "--step", 1, "--set", "reward=acuracy"), ("did you mean 'accuracy'",)),
        (("tiny", "--step", 1, "--set", "algorithm=gpro"), ("unknown preset 'gpro'",)),
        (("tiny", "--step", 1, "--set", "group=2"), ("only how samples are judged",)),
    ],
)
def test_bad_input_is_refused_in_one_line(finished_lab: Path, arguments, words):
    assert_one_line(call("replay", *arguments, "--lab", finished_lab), *words)


def test_a_damaged_file_is_refused_in_one_line(trained: TinyLab):
    (file,) = trained.root.glob("runs/tiny/*/samples/rl/step-000001.parquet")
    file.write_bytes(file.read_bytes()[:200])
    result = call("replay", "tiny", "--step", 1, "--lab", trained.root)
    assert_one_line(result, "step-000001.parquet", "the record cannot be read")
    assert call("replay", "tiny", "--step", 2, "--lab", trained.root).exit_code == 0
