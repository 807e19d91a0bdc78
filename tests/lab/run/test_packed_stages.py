"""SFT in packs: steps count packs, in check as in a run, and an epoch takes every row once."""

import json
from pathlib import Path

import pytest

from assay.errors import InputError
from assay.experiment.read_file import read_experiment
from tests.from_files import check_experiment, start
from tests.tiny_labs import make_lab

EPOCH = "epochs = 2\npack_tokens = 300\n"
PACKED = {
    "steps  = 40\n": EPOCH,
    "batch  = 4": "batch  = 2",
    "checkpoint_every = 8": "checkpoint_every = { epochs = 1 }",
}


def test_steps_are_packs_by_batch_and_an_epoch_takes_every_row_once(tmp_path: Path) -> None:
    file = make_lab(tmp_path, until="[stage.rl]", edits=PACKED)
    checked = check_experiment(file, root=tmp_path)
    start(file, root=tmp_path)
    (run,) = (tmp_path / "runs" / "tiny").iterdir()
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rows = json.loads((run / "manifest.json").read_text())["data"]["sums"]["train"]["rows"]
    assert sum(line["rows"] for line in lines) == 2 * rows
    assert len(lines) < 2 * rows / 2, "several rows lie in a pack"
    saved = sorted(int(folder.name[5:]) for folder in (run / "checkpoints/sft").iterdir())
    assert saved == [len(lines) // 2, len(lines)]
    sizes = checked.numbers["stage.sft"]
    assert sizes["largest_micro_batch_tokens"] > 2 * sizes["longest_row_tokens"], "of whole packs"
    assert not [finding for finding in checked.findings if finding.severity == "error"]


def test_packs_of_rows_in_an_order_are_refused(tmp_path: Path) -> None:
    file = make_lab(tmp_path, until="[stage.rl]", edits=PACKED)
    file.write_text(file.read_text().replace("split  =", 'order = "given"\nsplit  ='))
    with pytest.raises(
        InputError, match=r"tiny.toml:\d+: stage.sft.pack_tokens: packs are shuffled"
    ):
        read_experiment(file)
