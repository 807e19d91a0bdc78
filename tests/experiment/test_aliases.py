"""Keys of TRL, verl, ms-swift and peft in an experiment file: the hint names the key here."""

import pytest

from assay.errors import InputError
from assay.experiment.experiment import Experiment
from assay.experiment.overrides import annotations_at, keys_at
from assay.experiment.problems import other_names
from assay.experiment.read_file import read_experiment
from tests.experiment.spec_texts import write_spec

KEYS, MEANINGS = other_names()


def test_every_hint_names_a_key_that_exists():
    for dotted in {dotted for known in KEYS.values() for dotted in known}:
        assert annotations_at(tuple(dotted.split(".")), {}, Experiment), dotted


def test_no_key_of_an_experiment_is_taken_for_a_foreign_one():
    """Where a key of that name stands in the right table, nothing is hinted at: `beta` is a dpo
    stage's own, and in other stages TRL's name of `kl.coef`."""
    tables = [("stage", "rl"), ("data", "train"), ("evaluate", "bfcl"), ()]
    own = set().union(*(keys_at(table, {}) for table in tables))
    assert own & set(KEYS) == {"beta"}
    assert set(MEANINGS) <= set(KEYS)


def hints(folder, *changes, overrides=()):
    file = write_spec(folder, *changes)
    with pytest.raises(InputError) as raised:
        read_experiment(file, overrides)
    errors = raised.value.each or (raised.value,)
    return [str(error).replace(str(file), "e.toml") for error in errors]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("learning_rate = 1e-6", "stage.rl.optimizer.lr"),
        ("beta = 0.0", "stage.rl.kl.coef"),
        ("per_device_train_batch_size = 9", "stage.rl.prompts: of a whole step"),
        ("max_prompt_length = 9", "data.train.max_prompt_tokens"),
        ("actor_rollout_ref.rollout.n = 4", "stage.rl.group"),
        ("min_lr_ratio = 0.1", "stage.rl.optimizer.min_lr: the rate itself"),
        ("sampling.max_new_tokens = 9", "stage.rl.sampling.max_tokens"),
        ("lora = true", "stage.rl.adapt"),
        ("warmup_steps = 9", "stage.rl.optimizer.warmup: a share of the steps"),
    ],
)
def test_a_key_of_another_trainer_is_answered_with_the_key_here(tmp_path, written, meant):
    (line,) = hints(tmp_path, ("sampling = { max_tokens = 1024 }", written))
    name = written.partition(" = ")[0]
    assert line.startswith(f"e.toml:25: stage.rl.{name}: unknown key (its name here is {meant}")


def test_a_table_of_verl_is_answered_key_by_key(tmp_path):
    table = (
        "[data]\ntrain_batch_size = 64\n[actor_rollout_ref.actor]\nkl_loss_coef = 0.1\n"
        'optim.lr = 1e-6\n[algorithm]\nadv_estimator = "grpo"\n'
    )
    said = hints(tmp_path, ("[data.train]", f"{table}[data.train]"))
    assert [line.partition(": ")[2] for line in said] == [
        "data.train_batch_size: unknown key (its name here is stage.NAME.batch: of a whole step)",
        "actor_rollout_ref.actor.kl_loss_coef: unknown key (its name here is stage.NAME.kl.coef)",
        "actor_rollout_ref.actor.optim.lr: unknown key (its name here is stage.NAME.optimizer.lr)",
        "algorithm.adv_estimator: unknown key (its name here is stage.NAME.algorithm)",
    ]


def test_a_stage_of_sft_has_a_batch_and_an_evaluation_its_own_sampling(tmp_path):
    sft = ('method = "sft"', 'method = "sft"\nper_device_train_batch_size = 4')
    assert "its name here is stage.sft.batch" in hints(tmp_path, sft)[0]
    drawn = ('role = "report"', 'role = "report"\ntemperature = 0.5')
    assert "its name here is evaluate.bfcl.sampling.temperature" in hints(tmp_path, drawn)[0]


def test_an_override_is_answered_as_well(tmp_path):
    said = hints(tmp_path, overrides=["stage.rl.learning_rate=1e-5"])
    assert "its name here is stage.rl.optimizer.lr" in said[0] and said[0].startswith("--set ")
