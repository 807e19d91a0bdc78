"""A prompt that a checkpoint has answered is not answered twice, and no other answer is taken."""

from pathlib import Path

import pytest

from assay.lab.run.runner import start
from assay.rollout.engines.cpu.sampler import LocalSampler
from assay.runs.history import evaluation_records, read_answers
from tests.tiny_labs import make_lab

EVALUATION = """
[evaluate.{name}]
benchmark = "math/gsm8k"
options = {{ path = "{path}", format = "messages" }}
role   = "report"
checkpoints = ["base"]
take   = {{ rows = {rows}, how = "first" }}
repeats = {repeats}
sampling = {{ temperature = {temperature}, max_tokens = {tokens} }}
"""

Setting = tuple[str, int, int, float, int]
WHOLE: Setting = ("whole", 6, 2, 1.0, 12)


def answered(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *settings: Setting
) -> tuple[list[int], dict[str, dict[tuple[str, int], str]]]:
    """Prompts sampled by each call, and the answers of each evaluation."""
    tables = ""
    for name, rows, repeats, temperature, tokens in settings:
        tables += EVALUATION.format(
            name=name,
            path=folder / "test.jsonl",
            rows=rows,
            repeats=repeats,
            temperature=temperature,
            tokens=tokens,
        )
    file = make_lab(folder, until="[stage.sft]", tables=tables)
    calls: list[int] = []
    sample = LocalSampler.sample

    def counted(self, contexts, keys, sampling, policy_version=0):
        calls.append(len(contexts))
        return sample(self, contexts, keys, sampling, policy_version)

    monkeypatch.setattr(LocalSampler, "sample", counted)
    (run,) = start(file, root=folder)
    outputs = {
        record.name: {
            (line["item_id"], line["repeat"]): line["output"]
            for line in read_answers(run, record, "base")
        }
        for record in evaluation_records(run)
    }
    return calls, outputs


def test_only_what_is_not_on_record_is_sampled_and_no_other_answer_is_taken(tmp_path, monkeypatch):
    some: Setting = ("some", 4, 3, 1.0, 12)
    cooler, shorter = ("cooler", 6, 2, 0.5, 12), ("shorter", 6, 2, 1.0, 11)
    calls, outputs = answered(tmp_path, monkeypatch, WHOLE, some, cooler, shorter)
    assert calls == [6 * 2, 4, 12, 12], "of 4 items x 3 only the third repeats are new"
    shared = outputs["whole"].keys() & outputs["some"].keys()
    assert len(shared) == 8
    assert all(outputs["whole"][key] == outputs["some"][key] for key in shared)
