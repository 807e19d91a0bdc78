"""`assay matrix` and `assay fill`: one object for programs, one line for every mistake."""

import json
from pathlib import Path

import pytest

from assay.lab.sweep import missing_runs
from assay.runs.run_directory import runs_of
from tests.cli.conftest import answer, assert_one_line, call
from tests.lab.pivot_lab import DEV, HARD, LAST, PivotLab, make_pivot_lab, ones, score
from tests.lab.sweep.test_missing_runs import STUB, SWEEP

BATCH = "stage.sft.batch"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PivotLab:
    monkeypatch.setattr(missing_runs, "PROGRAM", STUB)
    lab = make_pivot_lab(tmp_path)
    lab.sweep(SWEEP)
    for batch in (2, 4):
        run = lab.run(f"s.batch-{batch}", f"stage.sft.batch={batch}")
        score(run, "base", ones(5, 40))
        score(run, LAST, ones(5 * batch, 40))
        score(run, "base", ones(5, 40), HARD, first=500)
    return lab


def on(lab: PivotLab, verb: str, *arguments: object):
    return call(verb, *arguments, "--lab", lab.root)


def test_a_matrix_is_shown_with_its_page_and_programs_get_every_cell(lab):
    text = (lab.root / "sweep.toml").read_text()
    file = lab.sweep(text.replace("[axes]", 'baseline.checkpoint = "base"\n[axes]'))
    done = on(lab, "matrix", file)
    assert done.exit_code == 0, done.stderr
    page = lab.root / "matrices" / "s" / "matrix.html"
    assert page.exists() and f"page: {page}" in done.stdout
    assert "not run" in done.stdout and "50.0%" in done.stdout and "n 40" in done.stdout
    assert "2 cells measured, 1 missing." in done.stdout
    result = answer(on(lab, "matrix", file, "--json"))["result"]
    assert result["rows"] == [2, 4, 8]
    cell = result["cells"][1]
    assert cell["place"] == [4, None] and cell["score"] == 0.5
    assert cell["interval"]["method"] == "Wilson"
    assert cell["comparison"]["verdict"] == "better"
    assert Path(cell["records"][0]).is_file()
    assert result["counts"]["improved"] == 2
    assert result["recommendation"]["reason"] == "no_select"
    assert Path(result["page"]).is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("matrix", "sweep.toml", "--on", "tst"), ("'tst'", "'test'")),
        (("matrix", "sweep.toml", "--lang", "fr"), ("no pages in 'fr'",)),
        (("matrix", "none.toml"), ("none.toml", "no such file")),
        (("fill", "none.toml"), ("none.toml", "no such file")),
    ],
)
def test_a_mistake_is_one_line(lab, arguments, words, monkeypatch):
    monkeypatch.chdir(lab.root)
    assert_one_line(on(lab, *arguments), *words)
    assert not (lab.root / "matrices").exists()


def test_fill_runs_what_is_missing_and_leaves_the_rest(lab):
    done = on(lab, "fill", lab.root / "sweep.toml", "--devices", "cpu", "--json")
    assert done.exit_code == 0, done.stderr
    result = answer(done)["result"]
    assert [each["run"] for each in result["ran"]] == ["s.batch-8#1"]
    assert result["finished_before"] == ["s.batch-2#1", "s.batch-4#1"]


def test_the_winner_is_shown_recorded_and_in_the_object(lab):
    text = (lab.root / "sweep.toml").read_text()
    file = lab.sweep(text.replace("[2, 4, 8]", "[2, 4]"))
    for batch in (2, 4):
        (run,) = runs_of(lab.root, f"s.batch-{batch}")
        score(run, LAST, ones(30 - batch, 40), DEV, first=900)
    done = on(lab, "fill", file, "--workers", "2", "--json")
    result = answer(done)["result"]
    assert result["ran"] == [] and result["winner"]["runs"]["1"]["run"].startswith("s.batch-2/")
    stored = json.loads((lab.root / "sweeps" / "s" / "winner.json").read_text())
    assert stored["runs"] == result["winner"]["runs"] and stored["setting"] == {BATCH: 2}
    result = answer(on(lab, "matrix", file, "--json"))["result"]
    assert [cell["mark"] for cell in result["cells"]] == ["winner", "rival"]
    assert [cell["dev_score"] for cell in result["cells"]] == [28 / 40, 26 / 40]
    assert result["recommendation"]["choice"]["optimism"] > 0
    shown = on(lab, "matrix", file).stdout
    assert "★ winner" in shown and "undecided" in shown and "dev 70.0%" in shown
    assert "is the best of 2 cells on dev" in " ".join(shown.split())
    assert_one_line(on(lab, "report", "t@winner:x"), "no sweep 't' has chosen a winner")


def test_fill_fails_in_the_end_when_a_run_failed(lab, monkeypatch):
    monkeypatch.setenv("FAILS", "s.batch-8")
    done = on(lab, "fill", lab.root / "sweep.toml", "--devices", "cpu")
    assert_one_line(done, "s.batch-8#1", "disk full", ".log", code=1)
