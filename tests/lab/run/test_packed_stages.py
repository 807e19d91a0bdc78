"""SFT in packs: steps count packs, in check as in a run, and an epoch takes every row once."""

from pathlib import Path

import pytest

from assay.errors import InputError
from assay.experiment.read_file import read_experiment
from assay.runs.metrics import read_metrics
from assay.runs.run_directory import read_manifest
from tests.from_files import check_experiment, run_from
from tests.tiny_labs import make_lab

PACKED = {
    "steps  = 40\n": "epochs = 2\npack_tokens = 300\n",
    "batch  = 4": "batch  = 2",
    "checkpoint_every = 8": "checkpoint_every = { epochs = 1 }",
}


def test_steps_are_packs_by_batch_and_an_epoch_takes_every_row_once(tmp_path: Path) -> None:
    file = make_lab(tmp_path, until="[stage.rl]", edits=PACKED)
    checked = check_experiment(file, root=tmp_path)
    run = run_from(file)
    lines, rows = read_metrics(run.metrics), read_manifest(run)["data"]["sums"]["train"]["rows"]
    assert sum(line["rows"] for line in lines) == 2 * rows
    assert len(lines) < 2 * rows / 2, "several rows lie in a pack"
    assert run.checkpoint_steps("sft") == [len(lines) // 2, len(lines)]
    sizes = checked.numbers["stage.sft"]
    assert sizes["largest_micro_batch_tokens"] > 2 * sizes["longest_row_tokens"], "of whole packs"
    assert not [finding for finding in checked.findings if finding.severity == "error"]


def test_packs_of_rows_in_an_order_are_refused(tmp_path: Path) -> None:
    ordered = {**PACKED, "split  =": 'order = "given"\nsplit  ='}
    file = make_lab(tmp_path, until="[stage.rl]", edits=ordered)
    said = r"tiny.toml:\d+: stage.sft.pack_tokens: packs are shuffled"
    with pytest.raises(InputError, match=said):
        read_experiment(file)
