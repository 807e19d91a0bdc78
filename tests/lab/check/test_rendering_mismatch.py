"""A stage that is measured in another rendering than it trains in is refused, unless by name."""

import json
from pathlib import Path

import pytest

from assay.data.renderings.rendering import Renderer
from assay.errors import InputError
from assay.experiment.data_tables import Take
from assay.experiment.tables import EvaluateSpec, EvaluationSampling
from assay.lab.check.rendering_mismatch import COMPARED
from assay.lab.check.subject import spread
from assay.lab.monitor.observer import Silent
from assay.lab.run.evaluate_again import evaluate_again
from assay.runs.run_directory import read_status, runs_of
from tests.from_files import start
from tests.lab.sound_lab import found, silent
from tests.lab.tool_lab import look, make_tool_lab
from tests.models.folders import tiny_tokenizer

ASKS = "stage.sft is trained by 'qwen3_fc', evaluate.dev asks by "
ALLOWED = 'stage.sft.other_rendering_than=["dev"]'


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    return make_tool_lab(tmp_path).parent


def test_another_rendering_is_an_error_with_the_first_token_in_context(lab: Path) -> None:
    report = look(lab, "evaluate.dev.rendering=qwen3")
    finding = found(report, ASKS + "'qwen3'")
    assert report.failed and finding.severity == "error"
    # The handler writes the bare function where the template has OpenAI's wrapping.
    assert "row row" in finding.evidence and "before message 2" in finding.evidence
    assert "is 'n' in one and 't' in the other, after " in finding.evidence
    assert """<tools>\\n{"'""" in finding.evidence
    assert "(one is training, the other evaluate.dev)" in finding.evidence
    assert 'other_rendering_than = ["dev"]' in finding.fix


def test_what_is_allowed_by_name_is_a_warning(lab: Path) -> None:
    report = look(lab, "evaluate.dev.rendering=qwen3", ALLOWED)
    assert found(report, ASKS).severity == "warning" and not report.failed
    with pytest.raises(InputError, match=r"other_rendering_than: no evaluation 'dve'.*'dev'"):
        look(lab, 'stage.sft.other_rendering_than=["dve"]')


def test_a_stage_that_starts_in_another_rendering_is_a_warning(lab: Path) -> None:
    text = (lab / "calls.toml").read_text()
    stage = text[text.index("[stage.sft]") : text.index("[evaluate")]
    second = stage.replace("[stage.sft]", "[stage.more]").replace("qwen3_fc", "hermes")
    (lab / "calls.toml").write_text(text.replace("[evaluate", second + "[evaluate", 1))
    finding = found(look(lab), "stage.more renders by 'hermes', stage.sft, which it starts from")
    assert finding.severity == "warning" and "token" in finding.evidence


def test_a_run_is_refused_before_it_trains_and_runs_once_it_is_allowed(lab: Path) -> None:
    file, other = lab / "calls.toml", "evaluate.dev.rendering=qwen3"
    with pytest.raises(InputError, match=r"stage\.sft\.rendering: is trained by .*token") as no:
        start(file, [other], root=lab)
    assert no.value.exit_code == 2 and "\n" not in str(no.value)
    with pytest.raises(InputError, match="is trained by"):
        start(file, [other], root=lab, despite="only a stage allows it, by name")
    assert not runs_of(lab, "calls")
    (run,) = start(file, [other, ALLOWED], root=lab)
    assert read_status(run.path).status == "finished"


def test_a_checkpoint_is_measured_again_in_the_rendering_that_it_was_trained_in(lab: Path) -> None:
    (run,) = start(lab / "calls.toml", [], root=lab)
    spec = EvaluateSpec(
        benchmark="bfcl/simple_python",
        role="report",
        checkpoints=("base",),
        take=Take(rows=1),
        sampling=EvaluationSampling(max_tokens=2),
    )
    renderer = Renderer(tiny_tokenizer(), "qwen3_fc")
    for name in ("base", "sft.last"):
        done = evaluate_again(lab, f"calls@{name}", spec, Silent())
        stored = json.loads((done.file.parent / "evaluation.json").read_text())
        assert done.run == run and stored["rendering"] == renderer.fingerprint


@pytest.mark.parametrize("rows", [0, 1, 64, 65, 1000])
def test_rows_are_compared_from_all_over_and_never_too_many(rows: int) -> None:
    chosen = spread(range(rows), COMPARED)
    assert len(chosen) <= COMPARED
    assert not rows or (chosen[0] == 0 and chosen[-1] >= rows * 0.9 - 1)


OPTION = "template_options={ enable_thinking = false }"
BOTH = ("stage.sft.rendering=template", "evaluate.dev.rendering=template")


def test_template_options_of_a_data_set_reach_training_and_evaluation_alike(lab: Path) -> None:
    report = look(lab, *BOTH, f"data.calls.{OPTION}")
    assert silent(report, "is trained by") and not report.failed


def test_template_options_of_one_side_alone_are_another_rendering(lab: Path) -> None:
    for one in ("stage.sft", "evaluate.dev"):
        report = look(lab, *BOTH, f"{one}.{OPTION}")
        finding = found(report, "stage.sft is trained by 'template', evaluate.dev asks by")
        assert finding.severity == "error" and "<think>" in finding.evidence
    report = look(lab, *BOTH, f"stage.sft.{OPTION}", f"evaluate.dev.{OPTION}")
    assert silent(report, "is trained by")


def test_options_of_rows_that_the_items_have_not_are_another_rendering(lab: Path) -> None:
    text = (lab / "calls.toml").read_text()
    other = text[text.index("[data.calls]") : text.index("[stage.sft]")]
    other = other.replace("[data.calls]", f"[data.told]\n{OPTION}")
    text = text.replace("[stage.sft]", f"{other}[stage.sft]").replace('"calls"\n', '"told"\n')
    (lab / "calls.toml").write_text(text)
    finding = found(look(lab, *BOTH), "stage.sft is trained by 'template', evaluate.dev asks by")
    assert finding.severity == "error" and finding.evidence.startswith("row row")


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ((f"stage.sft.{OPTION}",), "stage.sft.template_options: 'qwen3_fc' reads no template"),
        ((*BOTH, "stage.sft.template_options={ think = true }"), "reads no 'think'"),
        ((*BOTH, f"data.calls.{OPTION}", "stage.sft.template_options={ enable_thinking = true }"),
         "enable_thinking is False in the row or its data set, True here"),
    ],
)  # fmt: skip
def test_options_that_have_no_effect_or_two_values_are_errors(
    lab: Path, overrides: tuple[str, ...], problem: str
) -> None:
    report = look(lab, *overrides)
    assert any(problem in f"{f.what} {f.evidence}" for f in report.errors), report.errors


def test_an_earlier_answer_that_cannot_be_trained_is_found_before_the_run(lab: Path) -> None:
    """The last answers of the rows call, and their text is written; the middle ones are lost."""
    template = lab / "model" / "chat_template.jinja"
    dropped = "{%- if message.content == 'It is sunny.' and loop.last %}{%- set content = '' %}"
    said = "{%- set content = message.content %}"
    assert said in template.read_text()
    template.write_text(template.read_text().replace(said, f"{said}{dropped}{{%- endif %}}"))
    report = look(lab, *BOTH)
    finding = found(report, "stage.sft: rows cannot be rendered by 'template'")
    assert "6 of 6" in finding.evidence and "message 4 (assistant)" in finding.evidence
    assert "row row" in finding.evidence and "calls.jsonl" in finding.evidence
