"""EGPO in the loop: what a step says of its bonus, and the guard where it is never there."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from assay.cli.main import app
from assay.errors import RunFailure
from assay.experiment.experiment import Experiment
from assay.lab.monitor.guards import watch_stage
from assay.lab.monitor.observer import Silent
from assay.pages.run_page import Reporting, write_report
from assay.pages.run_terminal import ended_text
from assay.rl.objectives import GrpoObjective
from assay.rl.presets import PRESETS
from assay.rl.thought import Thinking
from assay.runs.metrics import read_metrics
from assay.runs.run_directory import RunDirectory, runs_of
from assay.train.grpo import Grpo
from tests.from_files import start
from tests.tiny_labs import make_lab
from tests.train import toys
from tests.train.test_methods import prompts, run

DIAGNOSTICS = (
    *("cot_tokens_mean", "share_without_cot", "bonus_mean", "bonus_to_advantage", "share_capped"),
)


def egpo(says: dict[int, str], form: str = "egpo") -> Grpo:
    """A method over toys whose actions read as `says`."""

    def decode(tokens: Sequence[float]) -> str:
        return "".join(says.get(int(token), "x") for token in tokens)

    settings = toys.settings(
        advantage=PRESETS[form].advantage,
        options=PRESETS[form].advantage_options,
    )
    thinking = Thinking(decode, frozenset({-1}))
    return Grpo(prompts(), settings, GrpoObjective(), toys.decode, thinking)


def step(says: dict[int, str], form: str = "egpo") -> dict[str, float]:
    """What one step tells, which moves nothing."""
    (line,) = run(egpo(says, form), 1, lr=0.0)[1].lines
    return line


@pytest.mark.parametrize("form", ["egpo", "egpo_scaled_clip"])
def test_a_step_tells_of_its_bonus_under_its_names(form: str) -> None:
    says = dict.fromkeys(range(4), "<think>x</think>")
    line = step(says, form)
    assert set(DIAGNOSTICS) <= set(line)
    assert line["bonus_mean"] > 0 and line["bonus_to_advantage"] > 0.1
    assert line["cot_tokens_mean"] == 1 - line["share_without_cot"] > 0
    assert line["share_cot_unclosed"] == 0


def test_a_thought_that_never_closes_earns_a_bonus_in_the_paper_s_form_and_none_in_the_fork_s() -> (
    None
):
    says = dict.fromkeys(range(4), "<think>")
    paper = step(says)
    fork = step(says, "egpo_scaled_clip")
    # Each thought is one token.
    assert paper["share_cot_unclosed"] == paper["cot_tokens_mean"] > 0 < paper["bonus_mean"]
    assert fork["share_cot_unclosed"] == paper["share_cot_unclosed"]
    assert fork["bonus_mean"] == fork["cot_tokens_mean"] == 0 and fork["share_without_cot"] == 1
    # Among thoughts that close, one that does not is silent by itself.
    mixed = step({**says, 0: "<think>x</think>"}, "egpo_scaled_clip")
    assert 0 < mixed["cot_tokens_mean"] == 1 - mixed["share_without_cot"] < 1


def test_only_steps_with_signal_count_and_one_bonus_starts_the_count_anew(tmp_path: Path) -> None:
    watch = watch_stage(egpo_of(3), RunDirectory(tmp_path, "demo", "1"), "rl", 0)
    silent, empty, kept, heard = (0.5, 0.9e-3), (0.0, None), (0.0, 0.0), (0.5, 1e-3)
    fired = []
    for step, (signal, bonus) in enumerate(
        [silent, empty, kept, silent, heard, silent, empty, silent, kept, silent, kept], 1
    ):
        own = {} if bonus is None else {"bonus_to_advantage": bonus}
        watch.see(step, {"signal_share": signal, **own})
        fired.append(bool(watch.fired()))
    assert [step for step, found in enumerate(fired, 1) if found] == [10]


def egpo_of(most: int) -> Experiment:
    stage = {"method": "grpo", "data": "d", "steps": 9, "prompts": 4, "reward": "accuracy"}
    stage |= {"algorithm": "egpo", "max_steps_without_bonus": most}
    data = {"d": {"source": "path:d.jsonl", "format": "messages"}}
    return Experiment.model_validate(
        {"name": "x", "task": "math", "data": data, "stage": {"rl": stage}}
    )


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    return make_lab(tmp_path, until="[evaluate.dev]").parent


SHORT = (
    "stage.sft.steps=5",
    "stage.sft.checkpoint_every=5",
    "stage.rl.algorithm=egpo",
    "stage.rl.prompts=4",
    "stage.rl.sampling.max_tokens=8",
)


def test_a_model_that_never_thinks_stops_an_egpo_run_and_every_page_says_why(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = (*SHORT, "stage.rl.steps=20", "stage.rl.max_steps_without_bonus=2")
    observer = Reporting(Silent())
    with pytest.raises(RunFailure, match=r"bonus_to_advantage was below .* for 2 steps in a row"):
        start(lab / "tiny.toml", settings, root=lab, observer=observer)
    (run_,) = runs_of(lab, "tiny")
    last = list(read_metrics(run_.metrics))[-1]
    assert last["bonus_mean"] == 0 and last["share_without_cot"] == 1
    said = "the bonus of EGPO was nothing: it trained as grpo"
    why = "no thought was found in most completions"
    page = write_report(run_)
    assert said in page.read_text() and why in page.with_suffix(".md").read_text()
    app(["report", run_.name, "--full", "--lab", str(lab)], standalone_mode=False)
    assert said in " ".join(capsys.readouterr().out.split())
    assert said in ended_text(run_)


def test_thought_that_the_prompt_opened_earns_a_bonus_from_its_first_token(lab: Path) -> None:
    """Seven byte tokens spell the tag in the prompt of this tokenizer; answers never close it."""
    template = lab / "model" / "chat_template.jinja"
    text = template.read_text()
    header = "{{ '<|im_start|>assistant\n' }}"
    assert header in text
    opened = text.replace(header, "{{ '<|im_start|>assistant\n<think>\n' }}").replace(
        "m['content'] +", "('<think>\n' if m['role'] == 'assistant' else '') + m['content'] +"
    )
    template.write_text(opened)
    settings = (*SHORT, "stage.rl.steps=2", "stage.rl.max_steps_without_bonus=1")
    (run_,) = start(lab / "tiny.toml", settings, root=lab)
    lines = [line for line in read_metrics(run_.metrics) if "bonus_mean" in line]
    assert lines
    for line in lines:
        assert line["share_without_cot"] == 0 and line["share_cot_unclosed"] == 1
        assert line["bonus_mean"] > 0 and 1 <= line["cot_tokens_mean"] <= 8
