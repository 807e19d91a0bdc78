"""Every finding of `assay check` is brought about by an experiment that is really broken."""

import json
from pathlib import Path

import pytest
from benchmarks.families import TOKENS, byte_tokenizer, tiny_family
from transformers import GPT2Config, GPT2LMHeadModel

from assay.data.row import Row
from assay.errors import Finding, InputError
from assay.lab.check import work
from assay.lab.check.all_checks import CheckResult
from assay.lab.check.rows import well_formed
from assay.models.weight_files import save_weights
from tests.few import few
from tests.from_files import check_experiment
from tests.lab.sound_lab import SEARCH, add_row, found, look, make_sound_lab, silent
from tests.models.folders import tiny_model, tiny_tokenizer
from tests.tiny_labs import make_lab

PARAMETERS = sum(p.numel() for p in tiny_model().parameters())
GIB = 2**30


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    return make_sound_lab(tmp_path)


def add_sum(file: Path, question: str, total: int, id_: str, **more: object) -> None:
    add_row(file, question, f"\\boxed{{{total}}}", id_, gold=str(total), **more)


def test_a_sound_experiment_has_no_error_and_no_warning_and_leaves_no_trace(lab: Path) -> None:
    before = sorted(lab.rglob("*"))
    report = look(lab, timed=True)
    assert not report.failed
    assert {f.severity for f in report.findings} == {"note"}
    numbers = report.numbers["data.sums"]
    assert (numbers["rows_in_source"], numbers["train_rows"], numbers["dev_rows"]) == (16, 12, 4)
    assert report.numbers["evaluate.test"]["items"] == 8
    assert report.numbers["evaluate.test"]["gold_full_share: math/gsm8k"] == 1
    assert report.numbers["stage.rl"]["gold_full_share: accuracy"] == 1
    assert sorted(lab.rglob("*")) == before


def test_what_cannot_be_opened_is_the_only_finding(lab: Path) -> None:
    for override in ("data.sums.source=path:none.jsonl", "model=path:none"):
        with pytest.raises(InputError, match=r"none.*: no such f"):
            look(lab, override)
    report = look(lab, 'evaluate.test.options.path="none.jsonl"')
    assert report.failed and len(report.findings) == 1
    assert "none.jsonl" in report.findings[0].evidence
    (lab / "sums.jsonl").open("a").write('{"id": 1, "messages": [}\n')
    assert look(lab).findings[0].evidence.endswith("sums.jsonl:17")
    with pytest.raises(InputError):
        look(lab, "stage.rl.prompts=0")


def test_a_row_that_cannot_be_read_is_a_warning_that_names_its_line(lab: Path) -> None:
    row = {"messages": [{"role": "user", "content": "?"}, {"role": "asistant", "content": "1"}]}
    for n in range(90):
        add_sum(lab / "sums.jsonl", f"{n} + 100 = ?", n + 100, f"r{n}")
    lines = (lab / "sums.jsonl").read_text().splitlines(keepends=True)
    (lab / "sums.jsonl").write_text("".join([*lines[:6], json.dumps(row) + "\n", *lines[6:]]))
    finding = found(look(lab), "data.sums: rows left out: rows that cannot be read")
    assert finding.severity == "warning"
    assert "1 of 107 (0.9%): line 7: messages[1].role: unknown role 'asistant'" in finding.evidence


def test_rows_that_ask_the_same_and_have_other_answers_are_named(lab: Path) -> None:
    add_row(lab / "sums.jsonl", "1 + 1 = ?", r"\boxed{3}", "other", gold="3")
    words = "data.sums: rows ask the same and have other answers"
    report = look(lab)
    finding = found(report, words)
    assert finding.severity == "warning" and "1 of 17 (5.9%): other (1+1)" in finding.evidence
    assert report.numbers["data.sums"]["other_answers"] == 1
    # Where answers are only imitated, several may be right.
    file = lab / "tiny.toml"
    file.write_text(file.read_text().partition("[stage.rl]")[0])
    assert found(check_experiment(file, root=lab), words).severity == "note"


def test_a_row_without_an_answer_stops_sft(lab: Path) -> None:
    asked = {"id": "open", "messages": [{"role": "user", "content": "9 + 9 = ?"}]}
    for n in range(8):
        (lab / "sums.jsonl").open("a").write(json.dumps({**asked, "id": f"open{n}"}) + "\n")
    report = look(lab)
    assert found(report, "stage.sft: rows of data.sums have no gold").severity == "error"
    assert found(report, "stage.rl: rows of data.sums have no gold").severity == "note"


def test_ids_twice_and_tools_that_are_no_schema_are_errors() -> None:
    broken = {**SEARCH, "parameters": {"type": "object", "properties": {"query": "a string"}}}
    rows = [
        Row("one", (), (SEARCH,)),
        Row("two", (), (broken,), origin="calls.jsonl:2"),
        Row("one", ()),
    ]
    twice, tools = list(well_formed("data.train", rows))
    assert isinstance(twice, Finding) and isinstance(tools, Finding)
    assert twice.severity == tools.severity == "error"
    assert "same id" in twice.what and twice.evidence == "one"
    assert "parameters.properties.query" in tools.what and tools.evidence == "calls.jsonl:2"
    assert not list(well_formed("data.train", rows[:1]))


def test_stored_candidates_have_to_be_there(lab: Path) -> None:
    text = (lab / "tiny.toml").read_text()
    stage = '[stage.rce]\nmethod = "rce"\ndata = "sums"\nsteps = 1\nprompts = 2\n'
    stage += 'candidates = "stored"\nsampling = { max_tokens = 2 }\n\n'
    (lab / "tiny.toml").write_text(text.replace("[stage.rl]", stage + "[stage.rl]"))
    report = look(lab)
    finding = found(report, "stage.rce: rows of data.sums hold no candidates")
    assert finding.severity == "error" and "12 of 12" in finding.evidence
    # Nothing is sampled, so max_tokens is no limit.
    assert silent(report, "stage.rce: gold answers are longer")


# Tokens


def test_a_template_whose_prompt_does_not_begin_the_answer_is_an_error(lab: Path) -> None:
    template = lab / "model" / "chat_template.jinja"
    text = template.read_text()
    assert "<|im_start|>assistant\n' }}" in text
    template.write_text(text.replace("<|im_start|>assistant\n' }}", "<|im_start|>helper\n' }}"))
    finding = found(look(lab), "stage.sft: rows cannot be rendered")
    assert finding.severity == "error" and "12 of 12" in finding.evidence
    assert "does not begin the conversation" in finding.evidence


def test_answers_longer_than_max_tokens_are_counted(lab: Path) -> None:
    # "\boxed{5}" and the end of the turn are 10 bytes, "\boxed{10}" 11.
    finding = found(look(lab, "evaluate.test.sampling.max_tokens=10"), "longer than sampling")
    assert finding.what.startswith("evaluate.test") and finding.severity == "warning"
    assert "1 of 8 (12.5%): 6+4" in finding.evidence
    assert silent(look(lab, "evaluate.test.sampling.max_tokens=11"), "longer than sampling")


def test_rows_that_the_model_cannot_hold_are_an_error(lab: Path) -> None:
    report = look(lab, "stage.rl.sampling.max_tokens=2040")
    finding = found(report, "stage.rl: rows do not fit into the model's 2048 positions")
    assert finding.severity == "error" and "12 of 12" in finding.evidence


def test_a_tokenizer_that_changes_answers_on_the_way_through_text_is_found(lab: Path) -> None:
    for n in range(8):
        add_row(
            lab / "sums.jsonl", f"{n} + 90", f"so . \\boxed{{{n + 90}}}", f"s{n}", gold=str(n + 90)
        )
    assert silent(look(lab), "on the way through text")
    file = lab / "model" / "tokenizer.json"
    config = json.loads(file.read_text())
    tidy = {"type": "Replace", "pattern": {"String": " ."}, "content": "."}
    config["decoder"] = {"type": "Sequence", "decoders": [config["decoder"], tidy]}
    file.write_text(json.dumps(config))
    finding = found(look(lab), "stage.sft: gold answers change on the way through text")
    assert finding.severity == "warning" and "' ' in one and '.' in the other" in finding.evidence


# Leakage


@pytest.mark.parametrize("question", ["7 + 7 = ?", "7  +  7 =  ??"])
def test_a_training_question_in_the_report_is_an_error(lab: Path, question: str) -> None:
    for n in range(4):
        add_row(lab / "sums.jsonl", "7 + 7 = ?", f"{n}: \\boxed{{14}}", f"train{n}", gold="14")
    add_row(lab / "test.jsonl", question, r"\boxed{14}", "leaked", gold="14")
    finding = found(look(lab), "data.sums is trained on and holds questions of evaluate.test")
    assert finding.severity == "error" and "train" in finding.evidence
    exact = "0 of them word for word" not in finding.evidence
    assert exact == (question == "7 + 7 = ?")


def test_conversations_on_both_sides_are_found(lab: Path) -> None:
    for name in ("sums.jsonl", "test.jsonl"):
        for n in range(8):
            gold = len(name) + n
            add_sum(lab / name, f"{gold} + 0 = ?", gold, f"{name}{n}", conversation=f"talk {n}")
    (lab / "test.jsonl").write_text((lab / "test.jsonl").read_text().replace(" + 0", " - 0 + 0"))
    report = look(lab)
    finding = found(report, "data.sums is trained on and has conversations of evaluate.test")
    assert finding.severity == "warning" and "talk" in finding.evidence


def test_equal_ids_in_two_files_are_no_shared_conversation(lab: Path) -> None:
    for name, first in (("sums.jsonl", 20), ("test.jsonl", 40)):
        for n in range(8):
            add_sum(lab / name, f"{first + n} + 0 = ?", first + n, f"{n}")
    assert silent(look(lab), "conversations of")


# Room


def test_memory_counts_the_reference_copy_exactly(lab: Path) -> None:
    plain, kl = (
        look(lab, *more).numbers["stage.rl"]["memory_mb"]
        for more in ([], ["stage.rl.kl.coef=0.01"])
    )
    assert (kl - plain) * 2**20 == pytest.approx(4 * PARAMETERS)


def test_memory_that_is_not_there_is_found(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = look(lab).numbers["stage.rl"]["memory_mb"] * 2**20
    for free, whole, severity in (
        (needed * 0.9, GIB, "warning"),
        (needed * 0.8, needed * 0.9, "error"),
    ):
        monkeypatch.setattr(work, "available_memory", lambda device, free=free: free)
        monkeypatch.setattr(work, "installed_memory", lambda device, whole=whole: whole)
        assert found(look(lab), "stage.rl: the memory of a step").severity == severity


def test_disk_holds_every_checkpoint_and_two_optimizers(
    lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first stage leaves three checkpoints, the second two; weights are 4 bytes, moments 8.
    needed = (3 * 4 + 2 * 8 + 2 * 4 + 2 * 8) * PARAMETERS
    longer = "stage.sft.steps=5"
    report = look(lab, longer)
    assert report.numbers["disk"]["checkpoints_mb"] * 2**20 == pytest.approx(needed)
    twice = look(lab, longer, "seeds=[1, 2]").numbers["disk"]["checkpoints_mb"]
    assert twice * 2**20 == pytest.approx(2 * needed)
    usage = type("Usage", (), {"free": needed})()
    monkeypatch.setattr(work.shutil, "disk_usage", lambda path: usage)
    assert found(look(lab, longer), "do not fit on the disk").severity == "error"


def test_an_adapter_that_fits_nothing_is_found_without_training(lab: Path) -> None:
    report = look(lab, 'stage.rl.adapt={ kind = "lora", targets = ["q_prj"] }')
    finding = found(report, "names no linear layer")
    assert finding.severity == "error" and "q_proj" in finding.fix


@pytest.mark.parametrize(
    ("setting", "words", "evidence"),
    [
        ("stage.rl.prompts=400", "stage.rl: a step takes 400 of 12 rows", "several times"),
        ("stage.sft.adapt={ kind = 'lora', rank = 33 }", "stage.sft: the rank of LoRA", "_proj"),
    ],
)
def test_what_a_step_or_a_matrix_cannot_use_is_explained(lab, setting, words, evidence) -> None:
    warned = found(look(lab, setting), words)
    assert warned.severity == "warning" and evidence in warned.evidence
    assert silent(look(lab), words)


def test_layers_that_no_adapter_reaches_are_named(lab: Path) -> None:
    save_weights(tiny_family("mamba"), lab / "model", byte_tokenizer())
    report = look(lab, 'stage.sft.adapt={ kind = "lora" }')
    finding = found(report, "all-linear leaves out dt_proj, out_proj, x_proj")
    assert finding.severity == "note" and "6 layers" in finding.evidence


def test_time_is_measured_within_few_positions(lab: Path) -> None:
    config = GPT2Config(**TOKENS, eos_token_id=256, n_positions=64, n_embd=32, n_layer=1, n_head=2)
    save_weights(GPT2LMHeadModel(config), lab / "model", byte_tokenizer())
    add_row(lab / "sums.jsonl", "How long is a very long question? " * 12, "\\boxed{1}")
    report = look(lab, timed=True)
    assert report.numbers["stage.sft"]["seconds_high"] > 0
    assert not silent(report, "rows do not fit into the model's 64 positions")


CHATS = {'"math"': '"chat"', "sums": "chats", 'split  = { dev = 0.25, by = "conversation" }\n': ""}


@few("answer", ["\u3000\u200b", "", "<think>\nhm\n</think>\n\n"], fast=1)
def test_many_answers_that_say_nothing_are_a_warning(tmp_path: Path, answer: str) -> None:
    file = make_lab(tmp_path, until="[stage.rl]", edits=CHATS, rows={})

    for n in range(10):
        add_row(tmp_path / "chats.jsonl", f"How is {n}?", f"It is {n}.", f"row{n}")
    add_row(tmp_path / "chats.jsonl", "Who?", answer, "silent0")

    def report() -> CheckResult:
        return check_experiment(file, (), root=tmp_path)

    assert silent(report(), "empty or blank")
    add_row(tmp_path / "chats.jsonl", "What?", answer, "silent1")
    finding = found(report(), "data.chats: answers are empty or blank")
    assert finding.severity == "warning"
    assert "2 of 12 (16.7%), such as silent0 (chats.jsonl:11)" in finding.evidence


def test_new_tokens_that_an_adapter_cannot_train_are_a_warning(lab: Path) -> None:
    model, tokenizer = tiny_model(), tiny_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|ask|>", "<|told|>"]})  # type: ignore[arg-type]
    model.resize_token_embeddings(len(tokenizer))
    save_weights(model, lab / "model", tokenizer)
    add_row(lab / "sums.jsonl", "<|ask|> 1 + 1", "\\boxed{2}")
    lora = 'stage.sft.adapt={ kind = "lora" }'
    words = "tokens with an untrained embedding"
    assert silent(look(lab, lora), words)  # What a message spells is no special token.
    template = (lab / "model" / "chat_template.jinja").read_text()
    (lab / "model" / "chat_template.jinja").write_text("<|ask|>" + template)
    own = "stage.sft.rendering=template"
    finding = found(look(lab, lora, own), words)
    assert finding.what.startswith("stage.sft") and finding.severity == "warning"
    assert "'<|ask|>' (259) in 13 of 13" in finding.evidence and "told" not in finding.evidence
    assert silent(look(lab, own), words)


# Settings


def test_settings_that_are_seldom_meant(lab: Path) -> None:
    report = look(
        lab,
        "stage.sft.optimizer.lr=1e-4",
        'stage.rl.adapt={ kind = "lora" }',
        "stage.rl.sampling.temperature=0.2",
        "stage.rl.kl.coef=0.01",
    )
    assert found(report, "stage.sft: a learning rate for LoRA").severity == "warning"
    assert found(report, "stage.rl: a learning rate for full").severity == "warning"
    assert found(report, "stage.rl: the completions of a group").severity == "warning"
    sound = look(lab, "stage.sft.optimizer.lr=9e-5")
    assert silent(sound, "learning rate")
