"""From a run's answers over the verb to a second run that trains on what was selected."""

import json
from pathlib import Path

import pytest

from assay.data.files import sha256_file
from assay.lab.check import work
from assay.runs.run_directory import RunDirectory, read_manifest, runs_of
from tests.cli.conftest import answer, call
from tests.from_files import check_experiment, start
from tests.sample_lines import read_samples
from tests.tiny_labs import make_lab

STAGE = """
[stage.rl]
method = "grpo"
data = "sums"
steps = 7
prompts = 4
group = 4
sampling = { max_tokens = 6 }
reward = "cosine"
optimizer = { lr = 1e-3 }
checkpoint_every = 3
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lab")
    start(make_lab(folder, until="[stage.sft]", tables=STAGE), root=folder)
    return folder


def lines(run: RunDirectory) -> list[dict]:
    return [line for file in sorted(run.path.glob("samples/rl/*")) for line in read_samples(file)]


def test_a_run_over_epochs_is_selected_from_and_a_second_one_trains_on_that(
    lab: Path, monkeypatch: pytest.MonkeyPatch
):
    (first,) = runs_of(lab, "tiny")
    select = ("select", "tiny", "--stage", "rl", "--lab", lab)
    right = sorted(line["reward"] for line in lines(first))[-40]
    result = answer(call(*select, "--passes", right, "--threshold", -99, "--to", "all", "--json"))
    assert result["result"]["counts"]["kept"] == 12 == result["result"]["counts"]["in_data"]
    assert result["result"]["recorded"]["epochs"] == 2
    assert result["result"]["recorded"]["steps"] == [1, 6]
    every = json.loads((lab / "selections/all.json").read_text())["rows"]
    middle = sorted(row["score"] for row in every)[6]
    shown = call(*select, "--passes", right, "--threshold", middle, "--to", "best")
    assert shown.exit_code == 0 and "a score stands on 8 to 8 answers" in shown.stdout
    kept = {row["id"] for row in every if row["score"] >= middle}
    assert 0 < len(kept) < 12 and f"kept {len(kept)} of 12 rows" in shown.stdout

    (setting,) = [s for s in shown.stdout.split("'") if s.startswith("data.sums.take")]
    monkeypatch.setattr(work, "measure", lambda subject: work.Speed(1e-5, 1e-3, 1e-5))
    report = check_experiment(lab / "tiny.toml", (setting,), root=lab)
    assert report.numbers["data.sums"]["train_rows"] == len(kept)

    (run,) = start(lab / "tiny.toml", root=lab, overrides=['name="second"', setting])
    assert {line["row_id"] for line in lines(run)} == kept
    table = read_manifest(run)["data"]["sums"]
    assert table["take"] == {"selection": "selections/best.json"}
    assert table["selection"]["sha256"] == sha256_file(lab / "selections/best.json")
    assert table["selection"]["run"] == str(first)
    assert table["train"]["rows"] == len(kept) and table["dev"]["rows"] == 4
    assert table["dev"] == read_manifest(first)["data"]["sums"]["dev"]
