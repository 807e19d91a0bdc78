"""`assay replay`: what it prints, what it gives to programs, and what it refuses in one line."""

from pathlib import Path

from assay.runs.records import write_samples
from tests.cli.conftest import TinyLab, answer, call
from tests.sample_lines import read_samples
from tests.written import as_written


def test_a_replay_gives_programs_every_sample_and_people_tables(finished_lab: Path):
    arguments = ("replay", "tiny", "--step", 3, "--lab", finished_lab)
    reward = ("--set", "reward={ accuracy = -1.0, cosine = -0.5 }", "--set", "advantage=mean_only")
    result = answer(call(*arguments, *reward, "--json"))["result"]
    assert result["reproduced"] is True
    settings = [change["path"] for change in result["settings"]]
    assert settings == ["advantage", "reward.accuracy", "reward.cosine"]
    assert len(result["samples"]) == 8
    flips = [sample for sample in result["samples"] if sample["turn"] == "flipped"]
    assert flips
    text = call(*arguments, *reward).stdout
    assert "reproduced exactly" in text and f"{len(flips)} flip the sign" in text
    assert all(sample["id"] in text for sample in flips)
    shown = answer(call("report", flips[0]["id"], "--lab", finished_lab, "--json"))["result"]
    assert [line["reward"] for line in shown] == [flips[0]["reward_before"]]


def test_what_is_not_reproduced_is_a_warning_with_evidence(trained: TinyLab):
    (file,) = trained.root.glob("runs/tiny/*/samples/rl/step-000001.parquet")
    first, *others = read_samples(file)
    write_samples(file, [{**first, "reward": None, "why": "\x1b[2Jdeadline"}, *others])
    as_written(file)
    arguments = ("replay", "tiny", "--step", 1, "--lab", trained.root)
    finding, *_ = answer(call(*arguments, "--json"))["findings"]
    assert finding["severity"] == "warning" and "abstained" in finding["evidence"]
    text = call(*arguments).stdout
    assert "recorded rewards are not reproduced: 1 of 8" in text
    assert "reproduced exactly" not in text and "\x1b" not in text
