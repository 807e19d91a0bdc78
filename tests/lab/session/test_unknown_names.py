"""Names of registers in an experiment file: unknown ones are refused with the nearest known."""

import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from assay.errors import InputError
from assay.experiment.read_file import read_experiment
from assay.lab.session.validate import check_names
from tests.experiment.spec_texts import write_spec
from tests.tiny_labs import EXPERIMENT

EXPERIMENTS = [
    file
    for file in sorted((Path(__file__).parents[3] / "experiments").rglob("*.toml"))
    if file.parent.name not in ("reported", "generated")
    and (file.parent.name != "worlds" or find_spec("reasoning_gym"))
    and "base" not in tomllib.loads(file.read_text())
]
"""Records of reported results and tables of generated calls are no experiments; a sweep names the
file of its runs."""


@pytest.mark.parametrize("file", EXPERIMENTS, ids=lambda file: file.stem)
def test_the_experiments_that_ship_name_what_exists(file):
    check_names(read_experiment(file))


def problem(folder: Path, *overrides: str, changes: tuple[tuple[str, str], ...] = ()) -> str:
    file = write_spec(folder, *changes)
    with pytest.raises(InputError) as raised:
        check_names(read_experiment(file, overrides))
    return str(raised.value).replace(str(file), "e.toml")


TABLE = """
[stage.rl.reward.calls]
kind = "strict_binary"
value = 100
when = { cut = 0 }

[stage.rl.reward.cut]
kind = "text.truncated"
value = -1

[stage.rl.reward.loops]
kind = "text.repetition"
options = { size = 4 }
when = { calls = { above = 0.5 } }

[evaluate.dev]"""


def with_table(folder: Path, old: str, new: str) -> str:
    plain = ("reward = { strict_binary = 1.0, fine_grained = 0.5 }\n", "")
    return problem(folder, changes=(plain, ("[evaluate.dev]", TABLE), (old, new)))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('"text.truncated"', '"text.trunkated"', "stage.rl.reward.cut.kind: unknown reward of texts"
         " 'trunkated' (did you mean 'truncated'"),
        ("options = { size = 4 }", "value = 4", "stage.rl.reward.loops.value: the full reward of "
         "'text.repetition' is 0, and nothing makes it 4 (write a weight)"),
        ("cut = 0", "cutt = 0", "stage.rl.reward.calls.when.cutt: no part 'cutt' (did you mean "
         "'cut'"),
        ("value = -1", "when = { loops = 0 }", "stage.rl.reward.calls.when: the conditions go in a "
         "circle: calls - "),
    ],
)  # fmt: skip
def test_what_a_reward_table_cannot_mean_is_one_line_with_its_place(tmp_path, old, new, expected):
    said = with_table(tmp_path, old, new)
    assert expected in said and said.startswith("e.toml:") and "\n" not in said


def test_an_outcome_that_the_kind_never_gives_is_refused_with_its_place(tmp_path):
    late = '{ kind = "text.always", when = { right = { outcome = ["wrong", "timed-out"] } } }'
    table = f'{{ right = {{ kind = "accuracy" }}, late = {late} }}'
    text = EXPERIMENT.replace("{ accuracy = 1.0, cosine = 0.5 }", table).replace(
        "PATH", '"t.jsonl"'
    )
    file = tmp_path / "e.toml"
    file.write_text(text)
    with pytest.raises(InputError) as raised:
        check_names(read_experiment(file))
    said = str(raised.value)
    assert "stage.rl.reward.late.when.right.outcome: unknown outcome of 'right' 'timed-out'" in said
    assert "did you mean 'timed out'" in said and "\n" not in said
    file.write_text(text.replace("timed-out", "timed out"))
    check_names(read_experiment(file))


@pytest.mark.parametrize("part", ["cut", "calls/met"])
def test_a_guard_watches_a_part_that_the_table_has(tmp_path, part):
    guard = f'[guard.part]\nmetric = "part/{part}"\nabove = 1\n[evaluate.dev]'
    plain = ("reward = { strict_binary = 1.0, fine_grained = 0.5 }\n", "")
    table = ("[evaluate.dev]", TABLE.replace("[evaluate.dev]", guard))
    file = write_spec(tmp_path, plain, table)
    check_names(read_experiment(file))
    said = problem(tmp_path, "guard.part.metric=part/cutt", changes=(plain, table))
    assert "guard.part.metric" in said
    assert "unknown part of the reward 'cutt' (did you mean 'cut'" in said


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("strict_binary = 1.0", "strict_binry = 1.0", "e.toml:26: stage.rl.reward.strict_binry: "
         "unknown reward 'strict_binry' (did you mean 'strict_binary'"),
        ("bfcl/simple_python", "bfcl/simple_pyhton", "e.toml:39: evaluate.bfcl.benchmark: "
         "unknown benchmark 'bfcl/simple_pyhton' (did you mean 'bfcl/simple_python'"),
        ("group = 4", 'algorithm = "drgrpo"', "e.toml:24: stage.rl.algorithm: "
         "unknown preset 'drgrpo' (did you mean 'dr_grpo'"),
        ("coef = 0.001", 'estimator = "k4"', "e.toml:28: stage.rl.kl.estimator: "
         "unknown KL estimator in the loss 'k4' (did you mean 'k3' or 'k2'"),
        ("kl = { coef = 0.001 }", 'drop_without_signal = true\nadvantage = "reinforce_pp"',
         "e.toml:28: stage.rl.drop_without_signal: reinforce_pp whitens over the batch, groups "
         'without signal included (use "auto")'),
    ],
)  # fmt: skip
def test_an_unknown_name_is_placed_and_the_nearest_offered(tmp_path, old, new, expected):
    assert problem(tmp_path, changes=((old, new),)).startswith(expected)


def test_the_corrected_estimator_belongs_in_the_loss_only(tmp_path):
    file = write_spec(tmp_path)
    check_names(read_experiment(file, ["stage.rl.kl.estimator=k3_corrected"]))
    wanted = ["stage.rl.kl.estimator=k3_corrected", "stage.rl.kl.where=reward"]
    assert "unknown KL estimator in the reward 'k3_corrected'" in problem(tmp_path, *wanted)
    check_names(read_experiment(file, ["stage.rl.kl={where='reward', estimator='k1'}"]))


GUARD = '[guard.g]\nmetric = "{metric}"\nabove = 1.0\n'
STAGED = '[guard.g]\nmetric = "{metric}"\nabove = 1.0\nstage = "sft"\n'
MILESTONE = '[milestone.m]\nstage = "rl"\nmetric = "{metric}"\nabove = 1.0\n'


@pytest.mark.parametrize(
    ("table", "metric", "expected"),
    [
        (GUARD, "truncated_shre", "e.toml:44: guard.g.metric: unknown metric of sft and grpo "
         "'truncated_shre' (did you mean 'truncated_share'"),
        (STAGED, "reward_mean", "e.toml:44: guard.g.metric: unknown metric of sft 'reward_mean' "),
        (MILESTONE, "nll", "e.toml:45: milestone.m.metric: unknown metric of grpo 'nll' "),
    ],
)  # fmt: skip
def test_a_watched_metric_that_no_stage_writes_is_refused(tmp_path, table, metric, expected):
    last = 'options = { parser = "strict" }\n'
    added = ((last, last + table.format(metric=metric)),)
    assert problem(tmp_path, changes=added).startswith(expected)


@pytest.mark.parametrize(
    "metric", ["reward_mean", "part/fine_grained/format", "self_check_gradient", "nll"]
)
def test_what_some_stage_writes_may_be_watched(tmp_path, metric):
    last = 'options = { parser = "strict" }\n'
    file = write_spec(tmp_path, (last, last + GUARD.format(metric=metric)))
    check_names(read_experiment(file))
