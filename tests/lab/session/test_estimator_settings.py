"""Settings of estimators, losses and schedules reach the method, or are refused in one line."""

from pathlib import Path

import pytest

from assay.data.renderings.rendering import Renderer
from assay.errors import InputError
from assay.experiment.stage_tables import GrpoStage, RceStage, steps_of
from assay.lab.models.language_encoder import LanguageEncoder
from assay.lab.session.stage_methods import schedules_of
from assay.lab.session.validate import read_whole
from assay.train.update import Schedule
from tests.data.chat import tokenizer
from tests.experiment.spec_texts import write_spec


def read(root: Path, *overrides: str):
    (root / "hardgen.jsonl").touch()
    return read_whole(write_spec(root), overrides, root)


def stage(root: Path, *settings: str) -> GrpoStage:
    found = read(root, *(f"stage.rl.{setting}" for setting in settings)).stage["rl"]
    assert isinstance(found, GrpoStage)
    return found


def refusal(root: Path, *settings: str) -> str:
    with pytest.raises(InputError) as raised:
        stage(root, *settings)
    return str(raised.value)


@pytest.mark.parametrize(
    ("settings", "field", "problem"),
    [
        (
            ["advantage_options.gamma=0.9"],
            "stage.rl.advantage_options.gamma",
            "'grpo' does not read it (remove it; it is read by reinforce_pp)",
        ),
        (["group=1"], "stage.rl.group", "'grpo' compares the completions of a group"),
        (
            ["advantage=gdpo", "kl.where=reward", "kl.estimator=k1"],
            "stage.rl.kl.where",
            "not a penalty at its tokens",
        ),
        (
            ["kl.coef=0", "advantage_options.lone=reward", "drop_without_signal=true"],
            "stage.rl.drop_without_signal",
            "would be left out",
        ),
        (
            ["kl.coef={start=0.1,end=0.0,steps=16}"],
            "stage.rl.kl.coef.steps",
            "16 is past the stage's last step, 15 (leave it out to end at the last step)",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(tmp_path, settings, field, problem):
    said = refusal(tmp_path, *settings)
    assert field in said and problem in said
    assert "\n" not in said


def test_schedules_run_over_the_stage_unless_they_say_otherwise(tmp_path):
    made = stage(
        tmp_path,
        "sampling.temperature={start=1.0,end=0.6,shape='cosine',steps=10}",
        "kl.coef={start=0.01,end=0.0}",
    )
    assert schedules_of(made, 15) == {
        "temperature": Schedule(1.0, 0.6, 10, "cosine"),
        "kl_coef": Schedule(0.01, 0.0, 15),
    }
    in_reward = stage(
        tmp_path, "kl={coef={start=0.01},where='reward',estimator='k1'}", "advantage=rloo"
    )
    assert schedules_of(in_reward, 15) == {"kl_reward_coef": Schedule(0.01, 0.01, 15)}


def test_a_schedule_past_the_steps_that_epochs_come_to_is_refused_when_they_are_known():
    values = {"method": "rce", "data": "d", "epochs": 1, "prompts": 4, "reward": "r"}
    late = RceStage.model_validate({**values, "tau": {"start": 1.0, "end": 0.5, "steps": 3}})
    assert steps_of(late, 12) == 3
    with pytest.raises(InputError, match="3 is past the stage's last step, 2") as raised:
        steps_of(late, 8)
    assert raised.value.field == "tau.steps"


def test_settings_that_are_left_out_leave_no_trace_in_fingerprints():
    values = {"method": "grpo", "data": "d", "steps": 4, "prompts": 2, "reward": "r"}
    written = GrpoStage.model_validate(values).model_dump(mode="json", exclude_none=True)
    assert not {"importance", "advantage_options", "top_entropy_share"} & written.keys()
    assert written["clip"] == {} and written["sampling"].keys() == {
        *("temperature", "top_p", "top_k", "max_tokens")
    }
    rce = RceStage.model_validate({**values, "method": "rce"})
    assert rce.model_dump(mode="json", exclude_none=True)["tau"] == {"start": 1.0}


def test_an_encoder_cuts_the_text_before_a_stop_string_and_its_stop_sees_all_of_it():
    words = tokenizer("chatml")
    end = words.convert_tokens_to_ids("<|im_end|>")
    assert isinstance(end, int)
    encoder = LanguageEncoder(Renderer(words, "hermes"), frozenset({end}))
    actions = [*words.encode("1 + 2 = 3; 4"), end]
    cut = encoder.stopping_at((";",))
    assert encoder.stop is None and encoder.decode(actions) == "1 + 2 = 3; 4"
    assert cut.decode(actions) == "1 + 2 = 3"
    assert cut.stop is not None and cut.stop.ends(actions) and not cut.stop.ends(actions[:2])
    # Thoughts are looked for in all that was written.
    assert cut.thinking.decode(actions) == "1 + 2 = 3; 4"
