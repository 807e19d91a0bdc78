"""The oracle arm: found by search, recorded like any other arm, marked wherever it is shown."""

import json
from pathlib import Path

import pytest

from assay.runs.records import read_columns
from assay.runs.run_directory import RunDirectory, read_manifest, runs_of
from tests.cli.conftest import assert_one_line, call
from tests.labs.demos.helped_lab import OPTIONS, helps, items, make_helped_lab

ROWS = {row.id: row for row in items(24, OPTIONS)}


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Path:
    """A lab with an oracle's run, and one of the same with another frozen model."""
    root = tmp_path_factory.mktemp("oracle")
    file = make_helped_lab(root)
    done = call("run", file, "--lab", root)
    assert done.exit_code == 0, done.output
    (root / "other.jsonl").write_text('{"answer": "yes"}\n')
    text = file.read_text().replace('"helped"\n', '"other"\n', 1)
    (root / "other.toml").write_text(text.replace("frozen.jsonl", "other.jsonl"))
    done = call("run", root / "other.toml", "--lab", root)
    assert done.exit_code == 0, done.output
    return root


@pytest.fixture(scope="module")
def run(lab: Path) -> RunDirectory:
    (found,) = runs_of(lab, "helped")
    return found


def test_the_record_holds_for_each_item_picks_that_help_where_any_do(run):
    (file,) = run.evaluations.glob("test-*/base.parquet")
    columns = read_columns(file, ["item_id", "output", "tokens", "score"])
    assert set(columns["item_id"]) == set(ROWS)
    for item, output, tokens, score in zip(*columns.values(), strict=True):
        picks = tuple(json.loads(output))
        assert picks == tuple(tokens) and len(set(picks)) == 2
        assert set(picks) <= set(ROWS[item].extra["pool"])
        assert score == float(helps(ROWS[item], picks[::-1]))  # in the order of the prompt
        pool = ROWS[item].extra["pool"]
        single = [n for n in pool if helps(ROWS[item], (n,))]
        begins = [*single, *(n for n in pool if n not in single)][:3]
        reachable = any(helps(ROWS[item], (a, b)) for a in begins for b in pool if a != b)
        assert score == float(reachable)
    assert 0 < sum(columns["score"]) < 24


def test_its_manifest_and_its_page_say_that_it_has_seen_the_answers(lab, run):
    manifest = read_manifest(run)
    assert manifest["base_weights"]["has_seen_answers"] is True
    assert manifest["evaluation"]["test"]["judges"]["frozen"]
    assert call("report", "helped", "--lab", lab).exit_code == 0
    assert "has seen the right answers" in (run.path / "report.html").read_text()
    assert call("report", "helped", "--lab", lab, "--lang", "zh").exit_code == 0
    assert "看过题目的正确答案" in (run.path / "report.zh.html").read_text()


def test_a_comparison_names_the_oracle_and_refuses_another_frozen_model(lab):
    """The frozen model decides the score, so that arms of two of them do not compare."""
    done = call("compare", "helped@base", "other@base", "--lab", lab)
    assert done.exit_code == 0, done.output
    assert "has seen the right answers" in done.output
    assert "not comparable" in done.output and "judges.frozen" in done.output
    allowed = call("compare", "helped", "other", "--allow", "evaluation.test.judges", "--lab", lab)
    assert "not comparable" not in allowed.output


STAGE = '\n[data.train]\nsource = "helped:train"\n\n[stage.sft]\nmethod = "sft"\ndata = "train"\n'


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text + STAGE + "steps = 1\noptimizer = { lr = 1e-3 }\n", "has no weights"),
        (lambda text: text.replace("[model.frozen]", "[model.other]"), "[model.frozen]"),
    ],
)
def test_what_cannot_have_an_oracle_is_refused_before_a_run(tmp_path, change, said):
    file = make_helped_lab(tmp_path)
    file.write_text(change(file.read_text()))
    assert_one_line(call("run", file, "--lab", tmp_path), said)
    assert not (tmp_path / "runs").exists()
