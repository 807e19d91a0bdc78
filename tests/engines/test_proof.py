"""Converted files in verl, ms-swift and TRL themselves: the prompts and trained tokens of Assay."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import PreTrainedTokenizerFast

from assay.data.formats.chat_rows import UNLIKE
from assay.data.formats.convert_rows import Conversion, convert
from assay.data.formats.formats import write_rows
from assay.data.formats.plain_text import PlainText
from assay.data.row import Message, Row, ToolCall
from assay.engines.environments import python_of
from assay.engines.proof import prove
from tests.cli.conftest import answer, call
from tests.data.chat import SPECIAL, build
from tests.data.formats.test_plain_text import HYBRID, THINKING, WORDS, talk
from tests.data.talks import WEATHER

KINDS = {"hybrid": HYBRID, "thinking": THINKING}
ALL = (*KINDS, "instruct")
ENDINGS = {"verl": "parquet", "swift": "jsonl", "trl": "jsonl"}


def template(kind: str) -> str:
    """Of a Qwen3 model; TRL ships that of the Instruct models."""
    if kind in KINDS:
        return KINDS[kind]
    package = python_of("trl").parent.parent.glob("lib/*/site-packages/trl/chat_templates")
    return (next(package) / "qwen3_instruct_2507.jinja").read_text(encoding="utf-8")


def own(kind: str) -> PreTrainedTokenizerFast:
    """A tokenizer of that kind; trainers want an end and padding."""
    made = build(SPECIAL["qwen3"], template(kind), WORDS)
    made.eos_token = made.pad_token = "<|im_end|>"
    return made


def thoughtless(row: Row, id_: str) -> Row:
    messages = tuple(Message(m.role, m.content, m.tool_calls) for m in row.messages)
    return Row(id_, messages, row.tools)


def rows(kind: str) -> list[Row]:
    """With tools and without, with a system text and without, of other scripts, with one answer and
    several."""
    plain = Row("p", (Message("user", "1 + 1?"), Message("assistant", "2")))
    called = (Message("user", "天气?"), Message("assistant", "", (ToolCall("f", {"x": 1}),)))
    made = [plain, Row("c", called, (WEATHER, {"name": "g", "parameters": {}}))]
    made += [thoughtless(talk(system), f"t{n}") for n, system in enumerate((None, "Brief."))]
    return made if kind == "instruct" else [*made, talk(None), Row("s", talk("Be brief.").messages)]


@pytest.mark.slow
@pytest.mark.parametrize("format", ENDINGS)
@pytest.mark.parametrize(
    ("kind", "name"),
    [*((kind, "template") for kind in ALL), ("hybrid", "qwen3_fc")],
)
def test_rows_as_text_are_equal_in_the_package(
    tmp_path: Path, kind: str, name: str, format: str
) -> None:
    text = PlainText(name, own(kind))
    write_rows(tmp_path / "a.jsonl", rows(kind), "messages")
    file = tmp_path / f"b.{ENDINGS[format]}"
    made = convert(tmp_path / "a.jsonl", file, Conversion(format, text=text))
    proof = prove(file, format, text)
    assert not made.dropped
    # What the template adds or merges in SFTTrainer was counted when the file was written.
    unlike = made.losses[str(file)].get(UNLIKE, 0)
    assert proof.trained == proof.taught - unlike and proof.equal == (not unlike), proof.difference
    assert proof.prompts == proof.questions == (0 if format == "swift" else made.rows[str(file)])
    assert proof.taught == (0 if format == "verl" else made.rows[str(file)])


@pytest.mark.slow
def test_the_proof_finds_what_ms_swift_writes_otherwise_by_itself(tmp_path: Path) -> None:
    text = PlainText("template", own("instruct"))
    called = {"role": "tool_call", "content": '{"name": "f", "arguments": {"x": 1}}'}
    messages = [{"role": "user", "content": "天气?"}, called]
    (tmp_path / "a.jsonl").write_text(
        json.dumps({"messages": messages, "tools": json.dumps([WEATHER])}) + "\n"
    )
    proof = prove(tmp_path / "a.jsonl", "swift", text)
    assert proof.taught == 1 and proof.trained == 0 and "# Tools" in proof.difference


@pytest.mark.slow
def test_the_command_proves_the_file_for_an_experiments_model_and_rendering(
    tmp_path: Path,
) -> None:
    model = tmp_path / "model"
    own("hybrid").save_pretrained(model)
    save_file({"a": torch.zeros(1)}, model / "model.safetensors")
    (model / "config.json").write_text(json.dumps({"model_type": "qwen3"}))
    write_rows(tmp_path / "a.jsonl", rows("hybrid"), "messages")
    (tmp_path / "e.toml").write_text(
        f"""name = "e"\nmodel = "path:{model}"\ntask = "tools"\nseeds = [1]
[data.train]\nsource = "path:{tmp_path}/a.jsonl"\nformat = "messages"
[stage.sft]\ndata = "train"\nmethod = "sft"\nsteps = 1\nrendering = "qwen3_fc"\n"""
    )
    out = tmp_path / "b.parquet"
    options = ("--to", "verl", "--for", tmp_path / "e.toml", "--prove", "--json")
    result = answer(call("convert", tmp_path / "a.jsonl", out, *options))["result"]
    (proof,) = result["proofs"].values()
    assert proof["prompts"] == proof["asked"] == 6 and proof["package"] == "verl==0.9.1"
