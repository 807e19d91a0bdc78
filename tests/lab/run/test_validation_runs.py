"""An SFT stage with dropout and validation rows: recorded, resumed bit by bit, checked, shown."""

import pytest

from assay.lab.monitor.progress import progress
from assay.pages.facts import gather
from assay.pages.run_page import write_report
from assay.runs.metrics import read_metrics
from assay.runs.run_directory import RunDirectory
from tests.from_files import run_from
from tests.tiny_labs import make_lab

STAGE = """
[stage.sft]
method = "sft"
data   = "sums"
steps  = 9
batch  = 4
micro_tokens = 64
checkpoint_every = 4
optimizer = { lr = 1e-2 }
adapt = { kind = "lora", rank = 4, alpha = 8, dropout = 0.2 }
validation = "sums.dev"
validation_every = 2
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    folder = tmp_path_factory.mktemp("lab")
    return run_from(make_lab(folder, until="[stage.sft]", tables=STAGE))


def test_the_loss_stands_in_its_steps_on_the_page_and_where_a_run_is_watched(run) -> None:
    lines = read_metrics(run.metrics)
    seen = {line["step"]: line["validation_loss"] for line in lines if "validation_loss" in line}
    assert list(seen) == [2, 4, 6, 8, 9]
    (curve,) = [each for each in gather(run).curves("sft") if each.metric == "validation_loss"]
    assert curve.points == list(seen.items())
    page = write_report(run).read_text()
    assert "NLL per token, validation rows" in page
    (told,) = [r for r in progress(run, last=7).rows if r.metric == "validation_loss"]  # type: ignore[union-attr]
    assert told.after is not None and told.after.value == seen[6]
