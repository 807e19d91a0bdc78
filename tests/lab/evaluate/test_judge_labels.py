"""A judge with a known confusion, held to labels: it is found out, and paid once."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from assay.compare.compare_names import compare_names
from assay.compare.judged_table import compare_checkpoints
from assay.compare.table import ComparisonTable, JudgedBy, failures
from assay.data.loaded import DataError
from assay.errors import InputError
from assay.experiment.read_file import read_experiment
from assay.lab.check.all_checks import CHECKS
from assay.lab.check.subject import Subject
from assay.lab.evaluate import run_evaluation
from assay.lab.evaluate.run_evaluation import read_labels
from assay.lab.monitor.observer import Silent
from assay.lab.run.resume import resume
from assay.lab.session.session import Session
from assay.runs.cost_ledger import read_calls
from assay.runs.history import History
from assay.runs.judgement_journal import read_judged
from assay.runs.run_directory import RunDirectory, all_runs
from assay.runs.verify_files import verify_run
from assay.tasks.rubric import Criterion, Rubric
from tests.from_files import start
from tests.tiny_labs import make_lab

ITEMS = [(a, b) for a in range(1, 11) for b in range(1, 7)]
TRUE = {f"{a}+{b}": 1 + (a * b) % 3 for a, b in ITEMS}
"""What people say of any answer to an item, on a scale from 1 to 3."""
SEEN = {item: min(label + (n % 4 == 0), 3) for n, (item, label) in enumerate(TRUE.items())}
"""What the judge says: every fourth is a point too high."""
RUBRIC = """
model = "grader"
{top}
[criteria.kind]
about = "How kind an answer is."
scale = [1, 3]
"""
TABLES = """
[model.grader]
source = "scripted:judge.jsonl"
price = { prompt = 1.0, completion = 1.0 }

[evaluate.quality]
data   = "sums"
reward = "rubric:quality.toml"
role   = "report"
checkpoints = ["base"]
sampling = { max_tokens = 4 }
"""


def rules(*first: dict) -> str:
    """The judge's rules: those first, then a verdict for each item whatever is answered."""
    each = [
        {"prompt": rf"\n{re.escape(item.replace('+', ' + '))} = ", "answer": f'{{"kind": {seen}}}'}
        for item, seen in SEEN.items()
    ]
    return "".join(json.dumps(rule) + "\n" for rule in (*first, *each))


def lab(folder: Path, *first: dict, top: str = "", tables: str = TABLES, **edits: str) -> Path:
    edits = {"model =": "model.policy =", 'task  = "math"': 'task  = "chat"', **edits}
    split = {'split  = { dev = 0.25, by = "conversation" }\n': ""}
    rows = {"sums.jsonl": ITEMS, "test.jsonl": ITEMS[:1]}
    file = make_lab(folder, until="[stage.sft]", edits=edits | split, tables=tables, rows=rows)
    (folder / "judge.jsonl").write_text(rules(*first))
    (folder / "quality.toml").write_text(RUBRIC.format(top=top))
    return file


def run_of(file: Path, **more) -> RunDirectory:
    (run,) = start(file, root=file.parent, despite="the judge goes by the item", **more)
    return run


def label(folder: Path, items: int, **more: str) -> None:
    """A file of labels of answers to so many items."""
    lines = [{"item": i, "answer": "good", "label": TRUE[i], **more} for i in [*TRUE][:items]]
    (folder / "known.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def judge_of(table: ComparisonTable) -> JudgedBy:
    assert table.judge is not None
    return table.judge


def named(folder: Path, name: str) -> Path:
    """The experiment under another name, at temperature 1."""
    text = (folder / "tiny.toml").read_text().replace('"tiny"', f'"{name}"')
    file = folder / f"{name}.toml"
    file.write_text(text.replace("tokens = 4", "tokens = 4, temperature = 1.0"))
    return file


def asked(run: RunDirectory) -> int:
    return sum(each.stage == "labels" for each in read_calls(run.path))


def test_labels_are_judged_before_the_run_and_a_kill_pays_no_verdict_twice(tmp_path, monkeypatch):
    file = lab(tmp_path, {"prompt": r"\n1 \+ 1 = ", "answer": "?"}, top='labels = "known.jsonl"')
    label(tmp_path, 40)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(run_evaluation, "write_judged", killed)
        run_of(file)
    (run,) = all_runs(tmp_path)
    before = asked(run)
    assert before >= 40 and not History(run).evaluations
    resume(run, despite="the judge goes by the item")
    assert asked(run) == before + (before - 39) and len(read_judged(run)) == 1
    judge = judge_of(compare_checkpoints(run, "quality")).held
    assert judge is not None and not verify_run(run).faults
    known = [(each.label["kind"], each.verdict.get("kind")) for each in judge.stored.judged]
    assert known == [(TRUE[i], None if i == "1+1" else SEEN[i]) for i in [*TRUE][:40]]
    kappa = judge.kappas["kind"]
    assert kappa is not None and 0.5 < kappa.value < 1


def test_a_label_of_an_unknown_item_stops_the_run_before_it_trains_or_measures(tmp_path):
    file = lab(tmp_path, top='labels = "known.jsonl"')
    line = {"item": "x", "answer": "y", "label": 1}
    (tmp_path / "known.jsonl").write_text(json.dumps(line) + "\n")
    with pytest.raises(InputError, match=r"known\.jsonl:1: item: nobody knows the item 'x'"):
        run_of(file)
    assert not [*tmp_path.glob("runs/*/*/evaluations/*/*.parquet")]


STAGE = """
[stage.rl]
method = "grpo"
data   = "sums"
steps  = 2
prompts  = 2
group    = 4
sampling = { max_tokens = 4 }
reward   = "rubric:quality.toml"
drop_without_signal = false
max_abstained_share = 0.9
"""


def test_as_a_reward_a_judge_that_fails_abstains_and_gives_no_zero(tmp_path):
    lost = {"prompt": "", "failure": "HTTP 500", "share": 0.4}
    mute = {"prompt": r"= \?\n</question>", "answer": ["no", '{"kind": 2}', '{"kind": 3}']}
    tables = TABLES.partition("[evaluate")[0] + STAGE
    tables = tables.replace("price", "sampling = { temperature = 1.0 }\nprice")
    run = run_of(lab(tmp_path, lost, mute, top="attempts = 1", tables=tables))
    samples = [s for step in (1, 2) for s in History(run).samples("rl", step)]
    silent = [each for each in samples if each.reward is None]
    assert len(samples) == 16 and 0 < len(silent) < 16
    whys = {each.why for each in silent}
    assert whys <= {
        "grader gave no answer: HTTP 500",
        "grader gave no verdict: it is not one JSON object alone",
    }
    assert {each.reward for each in samples} <= {None, 0.5, 1.0}


@pytest.mark.slow
def test_a_gate_passes_no_verdict_of_a_judge_that_nobody_checked_and_another_rubric_is_unfair(
    tmp_path,
):
    for name in ("tiny", "warm"):
        run_of(lab(tmp_path) if name == "tiny" else named(tmp_path, name))
    allow = ("evaluation.quality.sampling.temperature",)
    table = compare_names(tmp_path, ["tiny", "warm"], allow=allow)
    (phrase,) = failures([table], "worse")
    assert "a judge whose agreement with people is unknown" in phrase
    (tmp_path / "quality.toml").write_text(RUBRIC.format(top='about = "Be strict."'))
    run_of(named(tmp_path, "strict"))
    with pytest.raises(InputError, match=r"checker|rubric"):
        compare_names(tmp_path, ["tiny", "strict"])


def seen_in(folder: Path) -> list:
    """What the check says of the judges of the lab's experiment."""
    session = Session(
        read_experiment(folder / "tiny.toml"), RunDirectory(folder, "tiny", "check"), 7, Silent()
    )
    return [*CHECKS["judges"](Subject(session))]


def test_a_check_says_what_is_not_known_of_a_judge_and_what_its_labels_will_ask(tmp_path):
    lab(tmp_path)
    (bare,) = seen_in(tmp_path)
    assert "nobody knows whether people agree" in bare.what
    known = tmp_path / "known.jsonl"
    known.write_text(json.dumps({"item": "1+1", "answer": "y", "label": 1}) + "\n")
    (tmp_path / "quality.toml").write_text(RUBRIC.format(top='labels = "known.jsonl"'))
    found = {each.name: each.value for each in seen_in(tmp_path)}
    assert found == {"labelled answers": 1, "questions about them": 1}
    known.write_text("{}\n")
    (error,) = seen_in(tmp_path)
    assert "known.jsonl:1: item: missing" in error.evidence


GRADES = Rubric("grader", "", {"kind": Criterion("", 1, 3)})
TWO = replace(GRADES, criteria={"kind": Criterion("", 1, 3), "short": Criterion("")})
PAIRS = replace(GRADES, pairs=True)
LINE = {"item": "a", "question": "?", "answer": "x"}


def written(folder: Path, *lines) -> Path:
    file = folder / "labels.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


@pytest.mark.parametrize(
    ("rubric", "label", "grades"),
    [
        (GRADES, 2, {"kind": 2.0}),
        (TWO, {"kind": 1, "short": 5}, {"kind": 1, "short": 5}),
        *(
            (PAIRS, w, {"preference": x})
            for w, x in {"answer": 1, "reference": 0, "tie": 0.5}.items()
        ),
    ],
)
def test_grades_and_preferences_are_read_and_lines_that_wait_are_not(
    tmp_path, rubric, label, grades
):
    waiting = LINE | {"item": "b", "label": None}
    ((_, found),) = read_labels(written(tmp_path, LINE | {"label": label}, waiting), rubric)
    assert found == grades


@pytest.mark.parametrize(
    ("line", "rubric", "message"),
    [
        ({"answer": "x", "label": 1}, GRADES, r"labels\.jsonl:2: item: missing"),
        (LINE | {"label": 4}, GRADES, r":2: label: 4 is no whole number from"),
        (LINE | {"label": 2}, TWO, r":2: label: does not grade .*\"short\""),
        (LINE | {"label": {"kind": 2, "short": 9}}, TWO, r":2: label\.short: 9 is no whole number"),
        (LINE | {"label": 1}, PAIRS, r":2: label: 1 is no preference"),
        ({"item": "z", "answer": "z", "label": 1}, GRADES, r"answer: .* in line 1 already"),
    ],
)
def test_a_bad_line_is_named_with_its_field(tmp_path, line, rubric, message):
    right = "tie" if rubric.pairs else dict.fromkeys(rubric.criteria, 1)
    first = {"item": "z", "answer": "z", "label": right}
    with pytest.raises(DataError, match=message):
        read_labels(written(tmp_path, first, line), rubric)
