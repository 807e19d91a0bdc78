"""A replay reproduces the past exactly, and shows what other settings would have changed."""

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from assay.errors import InputError
from assay.runs.metrics import read_metrics
from assay.runs.records import write_samples
from assay.runs.run_directory import RunDirectory
from assay.runs.run_files import DamagedFile
from tests.lab.replay.replay_lab import GROUP, again, known, make_replay_lab, only_run, pulls
from tests.sample_lines import read_samples
from tests.written import as_written


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lab that nobody may change."""
    return make_replay_lab(tmp_path_factory.mktemp("replay")).root


@pytest.fixture
def run(finished: Path) -> RunDirectory:
    """The run, to be looked at alone."""
    return only_run(finished)


@pytest.fixture
def own(finished: Path, tmp_path: Path) -> RunDirectory:
    """A copy of the run that may be changed."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    return only_run(tmp_path)


def lines_of(run: RunDirectory, stage: str, step: int) -> list[dict]:
    return pq.read_table(run.samples(stage, step)).to_pylist()


def write_lines(run: RunDirectory, stage: str, step: int, lines: list[dict]) -> None:
    write_samples(run.samples(stage, step), lines, run.path)


def metric(run: RunDirectory, stage: str, step: int) -> dict:
    (line,) = (x for x in read_metrics(run.metrics) if (x["stage"], x["step"]) == (stage, step))
    return line


@pytest.mark.parametrize(
    ("stage", "step"),
    [("rl", 1), ("rl", 4), ("tuned", 1), ("crowded", 1)],
)
def test_the_unchanged_step_is_reproduced_to_the_last_bit(run: RunDirectory, stage, step):
    done = again(run, step, stage=stage)
    assert done.proof.exact and not done.settings
    lines = lines_of(run, stage, step)
    assert [s.reward_after for s in done.samples] == [line["reward"] for line in lines]
    assert [s.reward_before for s in done.samples] == [line["reward"] for line in lines]
    assert pulls(done, "before") == pulls(done, "after")
    assert pulls(done, "after") == [line["advantage"] for line in lines]
    assert done.before.signal.signal_share == metric(run, stage, step)["signal_share"]


def test_a_row_that_a_step_came_by_twice_is_replayed_as_two_groups_with_or_without_the_column(
    own: RunDirectory,
):
    lines = lines_of(own, "crowded", 1)
    visits = {(line["row_id"], line["visit"]) for line in lines}
    assert len(visits) == 20 > len({row for row, _ in visits})
    assert {line["visit"] for line in lines} == {0, 1}
    done = again(own, 1, stage="crowded")
    file = own.samples("crowded", 1)
    pq.write_table(pq.read_table(file).drop_columns(["visit"]), file)
    as_written(file)
    assert "visit" not in read_samples(file)[0]
    assert again(own, 1, stage="crowded") == done


def test_a_negated_reward_flips_every_sample_that_counts(run: RunDirectory):
    done = again(run, 3, "reward={ accuracy = -1.0, repetition = -0.5 }")
    assert any(s.advantage_before for s in done.samples)
    for sample in done.samples:
        assert sample.turn == ("flipped" if sample.advantage_before else "silent")
        assert sample.advantage_before is not None
        assert sample.advantage_after == pytest.approx(-sample.advantage_before)


def test_another_advantage_keeps_the_recorded_rewards_and_has_its_closed_form(run: RunDirectory):
    done = again(run, 2, "advantage=rloo", "algorithm=dr_grpo")
    rewards = [s.reward_after for s in done.samples]
    assert rewards == [line["reward"] for line in lines_of(run, "rl", 2)]
    for start in range(0, len(rewards), GROUP):
        group = known(rewards[start : start + GROUP])
        expected = [r - (sum(group) - r) / (GROUP - 1) for r in group]
        if max(group) - min(group) <= 1e-6:
            expected = [0.0] * GROUP
        found = known(pulls(done, "after")[start : start + GROUP])
        assert found == pytest.approx(expected, abs=1e-6)
    assert {c.path for c in done.settings} == {"advantage", "algorithm"}


def test_a_group_filter_changes_what_is_trained_and_no_reward(run: RunDirectory):
    done = again(run, 1, "drop_without_signal=false")
    assert done.after.prompts == 3 >= done.before.prompts
    assert done.before.rewards == done.after.rewards


def test_a_punishment_for_length_that_changes_is_taken_off_before_another_is_added(
    run: RunDirectory,
):
    done = again(run, 1, "overlong={ buffer = 6, factor = 0.5 }", stage="tuned")
    for sample, line in zip(done.samples, lines_of(run, "tuned", 1), strict=True):
        bare = line["reward"] - json.loads(line["parts"])["overlong"]
        excess = max(len(line["tokens"]) - (12 - 6), 0)
        assert sample.reward_after == pytest.approx(bare - 0.5 * excess / 6)


def test_a_reward_that_has_changed_since_is_named_with_what_it_gave(own: RunDirectory):
    lines = lines_of(own, "rl", 1)
    lines[2]["reward"] += 0.25
    write_lines(own, "rl", 1, lines)
    done = again(own, 1, "reward=accuracy")
    (found,) = done.proof.rewards
    assert (found.what, found.recorded) == ("reward", lines[2]["reward"])
    assert found.now == pytest.approx(lines[2]["reward"] - 0.25)
    assert found.sample.endswith(f":rl/1/{lines[2]['row_id']}#{lines[2]['sample']}")
    (warning,) = (f for f in done.findings if "rewards are not reproduced" in f.what)
    assert warning.severity == "warning"
    assert done.samples[2].reward_before == lines[2]["reward"], "before is what was recorded"


def test_a_part_or_an_advantage_that_is_not_reproduced_is_no_secret(own: RunDirectory):
    lines = lines_of(own, "rl", 1)
    parts = json.loads(lines[0]["parts"])
    lines[0]["parts"] = json.dumps({**parts, "accuracy": 9.0})
    lines[1]["advantage"] += 1e-9
    write_lines(own, "rl", 1, lines)
    proof = again(own, 1).proof
    (part,) = proof.rewards
    assert (part.what, part.recorded) == ("part accuracy", 9.0)
    (advantage,) = proof.advantages
    assert advantage.recorded == lines[1]["advantage"] != advantage.now


def test_a_journalled_abstention_stays_one_and_is_told_apart(own: RunDirectory):
    lines = lines_of(own, "rl", 1)
    lines[0] |= {"reward": None, "why": "deadline", "advantage": 0.0}
    write_lines(own, "rl", 1, lines)
    done = again(own, 1, "advantage=mean_only")
    (found,) = done.proof.rewards
    assert (found.what, found.recorded) == ("abstention", "abstained: deadline")
    assert done.samples[0].reward_after is None and done.samples[0].advantage_after is None
    assert done.samples[0].turn == "unknown"
    assert sum(reward.value is None for reward in done.after.rewards) == 1


def test_nothing_is_written(own: RunDirectory):
    before = {path: path.stat().st_mtime_ns for path in own.root.rglob("*")}
    again(own, 1, "reward=accuracy")
    assert {path: path.stat().st_mtime_ns for path in own.root.rglob("*")} == before


def test_a_stage_that_cannot_be_replayed_is_refused_with_those_that_can(run: RunDirectory):
    for stage, words in (("sft", "samples nothing"), ("rll", "did you mean 'rl'")):
        with pytest.raises(InputError, match=words):
            again(run, 1, stage=stage)
    with pytest.raises(InputError, match="--stage rl or --stage tuned"):
        again(run, 1, stage=None)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"no samples of step 9 of 'rl' \(it has 1 to 4\)"):
        again(run, 9)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("reward=acuracy", "did you mean 'accuracy'"),
        ("rewrad=accuracy", "did you mean 'reward'"),
        ("sampling.temperature=2.0", "only how samples are judged"),
        ("stage.sft.batch=3", "only 'rl' is replayed"),
        ("reward", "no '='"),
        ("kl={ coef = 0.1, where = 'reward' }", "depend on the weights that sampled"),
    ],
)
def test_a_setting_that_is_wrong_or_changes_the_samples_is_refused(
    run: RunDirectory, setting, words
):
    with pytest.raises(InputError) as refused:
        again(run, 1, setting)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_damaged_file_of_samples_is_named(own: RunDirectory):
    file = own.samples("rl", 1)
    whole = file.read_bytes()
    lines = lines_of(own, "rl", 1)
    for damaged in (whole[: len(whole) // 2], b"", b"PAR1"):
        file.write_bytes(damaged)
        with pytest.raises(DamagedFile, match=r"step-000001\.parquet: the record cannot be read"):
            again(own, 1)
    file.write_bytes(whole)
    pq.write_table(pq.read_table(file).drop_columns(["advantage"]), file)
    as_written(file)
    with pytest.raises(DamagedFile, match="advantage"):
        again(own, 1)
    for torn in (lines[:-1], [], [lines[1], lines[GROUP], *lines[2:GROUP]]):
        write_lines(own, "rl", 1, torn)
        with pytest.raises(DamagedFile, match="not groups of 8"):
            again(own, 1)
