"""What `assay check` says of reasoning and of the share of a conversation that is trained."""

from pathlib import Path

import pytest

from tests.lab.sound_lab import found, silent
from tests.lab.tool_lab import look, make_tool_lab

LAST, QWEN3 = "stage.sft.loss_on=last", "stage.sft.rendering=qwen3"
SAME = "evaluate.dev.rendering=qwen3"


def lab_of(folder: Path, **row: str) -> Path:
    return make_tool_lab(folder, **row).parent


def test_all_messages_are_trained_and_nothing_is_said(tmp_path: Path) -> None:
    report = look(lab_of(tmp_path))
    numbers = report.numbers["stage.sft"]
    assert numbers["assistant_messages_trained"] == numbers["assistant_tokens_trained"] == 1
    assert silent(report, "trains") and silent(report, "reasoning") and silent(report, "next to")


@pytest.mark.parametrize("results", ["tool", "user"])
def test_the_last_message_alone_says_how_little_is_trained(tmp_path: Path, results: str) -> None:
    report = look(lab_of(tmp_path, results=results), LAST)
    numbers = report.numbers["stage.sft"]
    assert numbers["assistant_messages_trained"] == pytest.approx(1 / 3)
    # The call twice, and one answer between them: each token of this tokenizer is a byte.
    call = len('<tool_call>\n{"name": "get_weather", "arguments": {"city": ""}}\n</tool_call>')
    said, answer = call + len("Z\\u00fcrich 0") + 1, len("It is sunny.") + 1
    assert numbers["assistant_tokens_trained"] == pytest.approx(said / (2 * said + answer))
    finding = found(report, "loss_on = 'last' trains 6 of 18 (33.3%)")
    assert finding.severity == "warning"
    assert ("come as user messages" in finding.evidence) == (results == "user")
    assert f"{said / (2 * said + answer):.0%} of the assistant's tokens" in finding.evidence


def test_answers_without_thought_under_the_hybrid_template_teach_not_to_think(
    tmp_path: Path,
) -> None:
    lab = lab_of(tmp_path)
    finding = found(look(lab, QWEN3, SAME), "teach the model not to think")
    assert finding.severity == "warning"
    assert "18 of 18 (100.0%)" in finding.evidence and "is empty" in finding.evidence
    assert silent(look(lab), "not to think")


def test_text_next_to_calls_is_lost_by_the_handler_alone(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, beside="Let me see.")
    finding = found(look(lab), "text next to calls is trained and then lost")
    assert finding.severity == "warning" and "6 of 12 (50.0%)" in finding.evidence
    assert silent(look(lab, QWEN3, SAME), "text next to calls")


def test_answers_that_spell_their_end_stop_a_run_until_it_is_cut_off(tmp_path: Path) -> None:
    lab = lab_of(tmp_path)
    rows = (lab / "calls.jsonl").read_text().replace("It is sunny.", "It is sunny.<|im_end|>\\n")
    (lab / "calls.jsonl").write_text(rows)
    report = look(lab)
    finding = found(report, "answers end with '<|im_end|>' as text")
    assert report.failed and finding.severity == "error" and "6 of 6" in finding.evidence
    assert 'cut_end = "<|im_end|>"' in finding.fix
    mended = look(lab, "data.calls.cut_end=<|im_end|>")
    assert silent(mended, "as text") and not mended.failed
    remark = found(mended, "the end token that its messages spell was cut off")
    assert "8 conversations" in remark.evidence


def test_special_tokens_in_answers_are_a_choice(tmp_path: Path) -> None:
    lab = lab_of(tmp_path)
    rows = (lab / "calls.jsonl").read_text().replace("It is sunny.", "<|im_start|>sunny")
    (lab / "calls.jsonl").write_text(rows)
    finding = found(look(lab), "answers spell special tokens")
    assert finding.severity == "warning" and "'<|im_start|>' in 6 of 6 rows" in finding.evidence
    assert 'keep_special = ["<|im_start|>"]' in finding.fix
    keep = 'keep_special=["<|im_start|>"]'
    assert silent(look(lab, f"stage.sft.{keep}", f"evaluate.dev.{keep}"), "special tokens")
    # What is kept in training alone reads otherwise in the evaluation.
    apart = look(lab, f"stage.sft.{keep}")
    assert found(apart, "evaluate.dev asks by 'qwen3_fc'").severity == "error"
