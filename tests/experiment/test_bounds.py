"""Numbers of an experiment file that no run can use are refused where they are read."""

from pathlib import Path

import pytest

from assay.errors import InputError
from assay.experiment.read_file import made, read_experiment
from assay.experiment.tables import EvaluateSpec
from tests.tiny_labs import make_lab

LONG = "9" * 4000


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_lab(tmp_path_factory.mktemp("lab"))


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("stage.rl.sampling.temperature", "1e-300", "at least 0.001"),
        ("stage.rl.sampling.temperature", "0.0", "at least 0.001, not 0.0 (a stage learns from"),
        ("stage.sft.dtype", '"bfloat16"', "unknown key (remove it: weights are kept in float32"),
        ("evaluate.test.sampling.top_p", "0.0", "more than 0"),
        ("evaluate.test.sampling.top_k", LONG, "64 bits"),
        ("evaluate.test.sampling.max_tokens", "1000000000000", "at most 1,000,000"),
        ("stage.rl.reward.accuracy", "nan", "finite"),
        ("stage.sft.adapt", '{ kind = "lora", rank = 100000000 }', "at most 10,000"),
        ("about", '"\\u001b[31m"', "control character"),
    ],
)
def test_a_value_out_of_bounds_is_refused_by_its_key(
    file: Path, path: str, value: str, words: str
) -> None:
    with pytest.raises(InputError) as caught:
        read_experiment(file, [f"{path}={value}"])
    said = str(caught.value)
    assert words in said
    assert path in (caught.value.field or "")
    assert said.isprintable()
    assert len(said) < 400


def test_an_integer_of_5000_digits_is_refused(file: Path, tmp_path: Path) -> None:
    text = file.read_text().replace("steps  = 40", "steps  = " + "9" * 5000)
    other = tmp_path / "long.toml"
    other.write_text(text)
    with pytest.raises(InputError, match=r"long\.toml: not valid TOML: an integer of thousands"):
        read_experiment(other)


def test_values_of_the_command_line_have_the_same_bounds() -> None:
    given = {"benchmark": "math/gsm8k", "role": "report", "checkpoints": ["base"]}
    made(EvaluateSpec, given)
    with pytest.raises(InputError) as caught:
        made(EvaluateSpec, given | {"options": {"examples": 10**30}})
    assert caught.value.field == "options.examples"
