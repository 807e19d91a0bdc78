"""Settings of estimators, schedules, stop strings and metrics work together in a whole run."""

import pytest

from assay.judge.identity import loss_parts
from assay.runs.metrics import read_metrics
from assay.runs.run_directory import RunDirectory
from tests.from_files import run_from
from tests.sample_lines import read_samples
from tests.tiny_labs import make_lab

COMMON = """
method = "grpo"
data   = "sums"
steps  = 3
prompts  = 2
optimizer = { lr = 1e-3, schedule = "linear", min_lr = 1e-4 }
"""
STAGES = f"""
[stage.moving]
{COMMON}
group    = 4
reward   = {{ accuracy = 1.0, cosine = 0.5 }}
advantage = "gdpo"
advantage_options = {{ ddof = 0, epsilon = 1e-4 }}
kl       = {{ coef = {{ start = 0.1, end = 0.0 }} }}
entropy_coef = 0.01
top_entropy_share = 0.5
clip     = {{ high = {{ start = 0.3, end = 0.2 }} }}
importance = {{ mode = "sequence", how = "mask", low = 0.5, high = 2.0 }}
sampling = {{ max_tokens = 12, temperature = {{ start = 1.0, end = 0.8, shape = "cosine" }} }}

[stage.alone]
{COMMON}
group    = 1
algorithm = "reinforce_pp"
advantage_options = {{ gamma = 0.9 }}
reward   = "cosine"
sampling = {{ max_tokens = 12, stop = ["e", "a", "o"] }}

[evaluate.stopped]
data   = "sums.dev"
reward = "accuracy"
role   = "report"
checkpoints = ["base"]
sampling = {{ temperature = 1.0, max_tokens = 12, stop = ["e", "a", "o"], min_p = 0.001 }}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunDirectory:
    folder = tmp_path_factory.mktemp("settings")
    return run_from(make_lab(folder, until="[stage.sft]", tables=STAGES))


def lines(run: RunDirectory, stage: str) -> list[dict]:
    return [line for line in read_metrics(run.metrics) if line["stage"] == stage]


def test_each_step_records_its_settings_and_a_loss_that_adds_up(run):
    moving = lines(run, "moving")
    assert [line["kl_coef"] for line in moving] == pytest.approx([0.1, 0.05, 0.0])
    assert [line["clip_high"] for line in moving] == pytest.approx([0.3, 0.25, 0.2])
    assert [line["temperature"] for line in moving] == pytest.approx([1.0, 0.9, 0.8])
    rates = [line["learning_rate"] for line in moving]
    assert rates == pytest.approx([1e-3, 7e-4, 4e-4])
    assert all("loss" in line and "entropy_bonus" in line for line in moving)
    assert loss_parts(moving) is None
    assert all("importance_cut_share" in line for line in moving)


def test_one_completion_per_prompt_trains_and_ends_at_its_stop_string(run):
    alone = lines(run, "alone")
    assert [line["completions"] for line in alone] == [2, 2, 2]
    assert any(line["grad_norm"] > 0 for line in alone)
    samples = [line for step in (1, 2, 3) for line in read_samples(run.samples("alone", step))]
    assert any(line["ended"] == "stop" for line in samples)
    assert not any(set("eao") & set(line["text"]) for line in samples)


def test_the_evaluation_cuts_its_answers(run):
    (file,) = run.path.glob("evaluations/stopped-*/base.parquet")
    outputs = [line["output"] for line in read_samples(file)]
    assert outputs and not any(set("eao") & set(text) for text in outputs)
