"""What is looked at before a run is made: errors stop it, a reason goes on and marks every page."""

from pathlib import Path

import pytest

from assay.errors import InputError
from assay.lab.run.resume import resume
from assay.pages.comparison_page import write_comparison
from assay.pages.notebook import notebook
from assay.pages.run_page import write_report
from assay.runs.run_directory import (
    CHECKED,
    RunDirectory,
    overridden,
    read_manifest,
    read_status,
    runs_of,
)
from tests.cli.conftest import answer, assert_one_line, call
from tests.compare.tables import runs_table
from tests.english import english
from tests.from_files import start
from tests.lab.run.test_restore import Stopping
from tests.tiny_labs import make_lab

EDITS = {
    'split  = { dev = 0.25, by = "conversation" }\n': "",
    "steps  = 40": "steps  = 2",
    "checkpoint_every = 8": "checkpoint_every = 1",
}
TABLES = """
[data.dev]
source = "path:dev.jsonl"
format = "messages"

[evaluate.dev]
data   = "dev"
reward = "accuracy"
role   = "select"
checkpoints = ["sft.last"]
sampling = { max_tokens = 12 }

[evaluate.test]
benchmark = "math/gsm8k"
options = { path = "test.jsonl", format = "messages" }
role   = "report"
checkpoints = ["sft.last"]
sampling = { max_tokens = 12 }
"""
TRAINED = 'evaluate.test.options.path="sums.jsonl"'
CHOSEN = 'evaluate.test.options.path="dev.jsonl"'
HOLDS = "data.sums is trained on and holds questions of evaluate.test"
CHOOSES = "evaluate.dev chooses on items that evaluate.test reports"
REASON = "a repeated report <b>"


def three_sets(folder: Path) -> Path:
    """A lab that trains, chooses and reports on rows of three files."""
    firsts = {"sums.jsonl": 1, "dev.jsonl": 4, "test.jsonl": 7}
    rows = {
        name: [(a, b) for a in range(first, first + 3) for b in (1, 2)]
        for name, first in firsts.items()
    }
    return make_lab(folder, until="[stage.rl]", edits=EDITS, tables=TABLES, rows=rows)


@pytest.fixture(scope="module")
def overrode(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDirectory, RunDirectory]:
    """Two finished runs whose choosing items also report, made for a reason."""
    file = three_sets(tmp_path_factory.mktemp("overrode"))
    first, second = start(file, (CHOSEN, "seeds=[1, 2]"), root=file.parent, despite=REASON)
    return first, second


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDirectory, Stopping]:
    """A finished run with nothing to override, and what was told of it."""
    file, told = three_sets(tmp_path_factory.mktemp("sound")), Stopping()
    (run,) = start(file, root=file.parent, observer=told, despite="to be safe")
    return run, told


@pytest.fixture(scope="module")
def leaking(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run that was trained on its test items for a reason, killed, and resumed without one."""
    file = three_sets(tmp_path_factory.mktemp("leaking"))
    stopping = Stopping(stage_name="sft", last=1)
    with pytest.raises(KeyboardInterrupt):
        start(file, (TRAINED,), root=file.parent, observer=stopping, despite=REASON)
    (run,) = runs_of(file.parent, "tiny")
    return resume(run)


def pages(run: RunDirectory) -> str:
    """All that a run's page says, in both languages."""
    files = (write_report(run, lang).with_suffix(".md") for lang in ("en", "zh"))
    return "".join(file.read_text(encoding="utf-8") for file in files)


def test_errors_stop_a_run_before_its_folder_is_made_and_each_is_named(tmp_path: Path) -> None:
    file = three_sets(tmp_path)
    (tmp_path / "dev.jsonl").write_text((tmp_path / "sums.jsonl").read_text())
    result = call("run", file, "--lab", tmp_path, "--set", TRAINED)
    assert_one_line(result, "assay: ", "--despite REASON")
    named = [line for line in result.stderr.splitlines() if line.startswith("assay: ")]
    assert len(named) == 2 and HOLDS in named[0] and CHOOSES in named[1]
    assert "6 of 6 (100.0%) training rows, 6 of them word for word: 1+1, 1+2, 2+1" in named[0]
    assert not (tmp_path / "runs").exists()
    again = call("run", file, "--lab", tmp_path, "--set", TRAINED, "--or-resume")
    assert again.exit_code == 2 and not (tmp_path / "runs").exists()


def test_nothing_is_trained_on_a_reason_that_says_nothing(tmp_path: Path) -> None:
    file = three_sets(tmp_path)
    with pytest.raises(InputError, match="--despite: is empty"):
        start(file, (TRAINED,), root=tmp_path, despite=" \n")
    assert not runs_of(tmp_path, "tiny")


def test_a_sound_run_says_that_nothing_leaks_and_a_reason_for_nothing_is_not_kept(
    sound: tuple[RunDirectory, Stopping],
) -> None:
    run, told = sound
    checked = read_manifest(run)[CHECKED]
    assert checked["errors"] == checked["shared"] == []
    assert "--despite: no check ends with an error, so nothing is overridden" in told.notes
    said = pages(run)
    assert "No row asks what an item of an evaluation asks" in said
    assert "没有任何训练行与评测题目的提问相同" in said
    assert "--despite" not in said and "Made although" not in said and "尽管" not in said


def test_a_reason_is_recorded_with_what_it_overrode_for_every_seed(
    overrode: tuple[RunDirectory, RunDirectory],
) -> None:
    for run in overrode:
        assert overridden(read_manifest(run)) == REASON
        (error,) = read_manifest(run)[CHECKED]["errors"]
        assert CHOOSES in error["what"] and "6 of 6" in error["evidence"]
        assert read_status(run.path).status == "finished"
    assert [read_status(run.path).seed for run in overrode] == [1, 2]


def test_a_comparison_and_the_notebook_carry_the_mark(
    overrode: tuple[RunDirectory, RunDirectory], tmp_path: Path
) -> None:
    first, second = overrode
    words = "although its checks ended with errors (--despite)"
    table = runs_table(first, second, vary=["seeds"])
    marked = [f for f in map(english, table.findings) if "--despite" in f.what]
    assert [f.evidence for f in marked] == [f"{first}: {REASON}", f"{second}: {REASON}"]
    html = write_comparison(table, tmp_path)
    page = html.with_suffix(".md").read_text(encoding="utf-8")
    assert words in page and str(second) in page and "a repeated report" in page
    assert "a repeated report" in notebook(first.root)


def test_a_reason_is_kept_where_a_run_is_resumed_without_one(leaking: RunDirectory) -> None:
    assert read_status(leaking.path).status == "finished"
    assert overridden(read_manifest(leaking)) == REASON
    assert len(runs_of(leaking.root, "tiny")) == 1


def test_what_leaks_stands_on_the_page_with_counts_share_and_rows(leaking: RunDirectory) -> None:
    said = pages(leaking)
    counts = "6 of 6 rows of data.sums (100.0%) ask what items of evaluate.test ask, 6 of them"
    assert said.count(counts) == 2 and "word for word: 1+1, 1+2, 2+1." in said
    assert f"Trained on test items: {counts}" in said
    assert "训练中见过测试题：data.sums 的 6 行中有 6 行（100.0%）与 evaluate.test" in said


def test_a_checkpoint_is_measured_on_items_that_it_was_trained_on_with_a_warning(
    leaking: RunDirectory, sound: tuple[RunDirectory, Stopping]
) -> None:
    asked = ("--benchmark", "math/gsm8k", "--max-tokens", 12, "--option", "format=messages")
    for run, rows in ((leaking, 6), (sound[0], 6)):
        given = ("--lab", run.root, *asked, "--option", f"path={run.root / 'sums.jsonl'}")
        said = call("eval", f"{run}@sft.last", *given, "--take", 5)
        assert "warning: trained on test items: 5 of 6 rows of data.sums ask" in said.stdout
        assert answer(call("eval", f"{run}@sft.last", *given, "--take", 5, "--json"))["result"][
            "trained_on_items"
        ] == {"sums": rows - 1}
        base = call("eval", f"{run}@base", *given, "--take", 5)
        assert base.exit_code == 0 and "trained on test items" not in base.stdout
    later = pages(sound[0])
    assert (
        "Trained on test items: 5 rows of data.sums ask what items of evaluate.math-gsm8k" in later
    )
    assert "训练中见过测试题：data.sums 有 5 行与 evaluate.math-gsm8k" in later
