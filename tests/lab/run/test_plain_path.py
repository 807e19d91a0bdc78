"""A model of the plain path goes through check, training and evaluation, and never in silence."""

from pathlib import Path

from benchmarks.families import tiny_family

from assay.models.load import load_model
from assay.models.precision import choose_precision
from assay.runs.metrics import read_metrics
from assay.runs.run_directory import read_manifest
from tests.from_files import check_experiment, start
from tests.lab.monitor.sinks.logged_run import Noted
from tests.tiny_labs import make_lab

SHORT = {
    "steps  = 40": "steps  = 2",
    "checkpoint_every = 8": "checkpoint_every = 2",
    "steps  = 4\n": "steps  = 2\n",
    '["sft.all"]': '["sft.last"]',
    '["base", "sft.best", "rl.last"]': '["rl.last"]',
}
WORDS = "by Transformers' own forward, slower and without its own dropout"


def test_a_run_says_its_path_in_check_notes_and_manifest(tmp_path: Path) -> None:
    file = make_lab(tmp_path, until="[evaluate.sampled]", edits=SHORT)
    (tmp_path / "model" / "model.safetensors").unlink()
    tiny_family("qwen3_moe").save_pretrained(tmp_path / "model")
    found = [f for f in check_experiment(file, root=tmp_path).findings if "plain path" in f.what]
    assert [f.severity for f in found] == ["note"] and WORDS in found[0].evidence
    seen = Noted()
    [run] = start(file, root=tmp_path, observer=seen)
    assert [note.split(":")[0] for note in seen.notes if WORDS in note] == ["sft", "rl"]
    assert WORDS in read_manifest(run)["machine"]["plain_path"]
    steps = [(row["stage"], row["step"]) for row in read_metrics(run.metrics)]
    assert steps == [("sft", 1), ("sft", 2), ("rl", 1), ("rl", 2)]
    load_model(run.checkpoint("rl", 2), choose_precision("fp32", "cpu"))
    assert list(run.evaluations.glob("test-*/*.parquet"))
