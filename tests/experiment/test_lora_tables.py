"""LoRA's variants in an experiment file: what is refused, and that a plain adapter stays one."""

import pytest

from assay.experiment.read_file import read_experiment
from tests.experiment.spec_texts import write_spec
from tests.experiment.test_read_file import message

LORA = ('method = "sft"', 'method = "sft"\nadapt = { kind = "lora"SFT }')


def test_variants_that_are_off_leave_no_trace(tmp_path):
    off = read_experiment(write_spec(tmp_path), ["stage.rl.adapt.dora=false"])
    assert off.stage["rl"] == read_experiment(write_spec(tmp_path)).stage["rl"]
    adapt = read_experiment(write_spec(tmp_path), ["stage.rl.adapt.rslora=true"]).stage["rl"].adapt
    assert adapt.model_dump(exclude_none=True)["rslora"] is True


@pytest.mark.parametrize(("sft", "rl"), [("true", "false"), ("false", "true")])
def test_dora_does_not_stack_with_another_adapter(tmp_path, sft, rl):
    file = write_spec(tmp_path, (LORA[0], LORA[1].replace("SFT", f", dora = {sft}")))
    assert "stage.rl.adapt: DoRA does not stack with another adapter" in message(
        file, f"stage.rl.adapt.dora={rl}"
    )
    assert read_experiment(file, ["stage.rl.start=base", f"stage.rl.adapt.dora={rl}"])
