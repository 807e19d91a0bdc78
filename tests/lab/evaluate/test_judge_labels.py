"""A judge with a known confusion, held to labels: it is found out, paid once, and corrected."""

import json
import re
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest

from assay.compare.compare_names import CompareOptions, compare_names
from assay.compare.fairness import Unfair
from assay.compare.judge_trust import HeldJudge, JudgedBy, held
from assay.compare.judged_table import compare_checkpoints
from assay.compare.table import Table, failures
from assay.errors import InputError
from assay.experiment.read_file import read_experiment
from assay.judge.label_agreement import Leanings
from assay.lab.check.all_checks import CHECKS
from assay.lab.check.subject import Subject
from assay.lab.evaluate import judge_labels
from assay.lab.monitor.observer import Silent
from assay.lab.run.label_answers import draw_answers, measure_labels
from assay.lab.run.runner import resume, start
from assay.lab.setup.session import Session
from assay.runs.cost_ledger import read_calls
from assay.runs.history import History
from assay.runs.judge_file import read_judged
from assay.runs.run_directory import RunDirectory, all_runs
from assay.runs.verify_files import verify_run
from tests.labs import make_lab

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


def label(file: Path) -> None:
    """Fill in what people say."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        line["label"] = TRUE[line["item"]]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def labelled(run: RunDirectory, items: int, *others: str) -> Path:
    """A file of labels of answers that were drawn."""
    file, root = run.root / "labels.jsonl", run.root
    draw_answers(root, [run.name, *others], "quality", file, items, Silent())
    label(file)
    return file


def judge_of(table: Table) -> JudgedBy:
    assert table.judge is not None
    return table.judge


def leanings_of(judge: HeldJudge) -> Leanings:
    assert judge.leanings is not None
    return judge.leanings


PLEA = {"prompt": "10/10", "answer": '{"kind": 3}'}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lab with a run "tiny" that nobody labelled."""
    folder = tmp_path_factory.mktemp("judged")
    run_of(lab(folder, PLEA))
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> RunDirectory:
    """That run in a copy of the lab, at `tmp_path`."""
    copytree(finished, tmp_path, dirs_exist_ok=True)
    (run,) = all_runs(tmp_path)
    return run


def named(folder: Path, name: str) -> Path:
    """The experiment under another name, at temperature 1."""
    text = (folder / "tiny.toml").read_text().replace('"tiny"', f'"{name}"')
    file = folder / f"{name}.toml"
    file.write_text(text.replace("tokens = 4", "tokens = 4, temperature = 1.0"))
    return file


def test_agreement_and_bias_of_a_known_confusion_are_recovered(run, tmp_path):
    file = labelled(run, 40)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(lines) == 40 and all("author" not in line for line in lines)
    (stored,) = measure_labels(tmp_path, [run.name], None, file, Silent())
    judge = held(stored)
    (found,) = judge.agreements
    wanted = np.zeros((3, 3), int)
    for line in lines:
        wanted[TRUE[line["item"]] - 1, SEEN[line["item"]] - 1] += 1
    assert np.array_equal(found.matrix, wanted)
    wrong = [(SEEN[i["item"]] - TRUE[i["item"]]) / 2 for i in lines]
    assert leanings_of(judge).offset.value == pytest.approx(np.mean(wrong))
    rises = {each.kind: each for each in judge.injected}
    plea = rises["plea"].rise.interval
    assert plea is not None and plea.low > 0 and rises["frame"].rise.value == 0
    assert not verify_run(run).faults


def test_labels_correct_the_score_and_without_them_it_says_that_nobody_knows(run, tmp_path):
    bare = compare_checkpoints(run, "quality")
    assert judge_of(bare).held is None and judge_of(bare).scores == {}
    assert [each.code for each in bare.findings] == ["judge_unknown"]
    measure_labels(tmp_path, [run.name], None, labelled(run, 40), Silent())
    found = judge_of(compare_checkpoints(run, "quality"))
    truth = np.mean([(each - 1) / 2 for each in TRUE.values()])
    raw = np.mean([(each - 1) / 2 for each in SEEN.values()])
    corrected = found.scores["base"]
    assert corrected.raw == pytest.approx(raw) and (corrected.labelled, corrected.items) == (40, 60)
    assert abs(corrected.value - truth) < abs(raw - truth)
    assert corrected.interval.low < truth < corrected.interval.high


def calls(run: RunDirectory) -> int:
    return len(read_calls(run.path))


def test_verdicts_that_a_record_holds_are_not_paid_again_and_more_labels_cost_the_new_ones(
    run, tmp_path
):
    (tmp_path / "quality.toml").write_text(RUBRIC.format(top="canaries = 0"))
    before = calls(run)
    measure_labels(tmp_path, [run.name], None, labelled(run, 20), Silent())
    assert calls(run) == before
    elsewhere = {"item": "x", "question": "1 + 1 = ?", "answer": "2!", "label": 2}
    file = tmp_path / "labels.jsonl"
    file.write_text(file.read_text() + json.dumps(elsewhere) + "\n")
    for _ in range(2):
        measure_labels(tmp_path, [run.name], None, file, Silent())
        assert calls(run) == before + 1
    drawn = draw_answers(tmp_path, [run.name], None, file, 30, Silent())
    assert (drawn.kept, drawn.added) == (21, 10)


def test_labels_of_the_rubric_are_judged_before_the_run_and_a_kill_pays_nothing_twice(
    tmp_path, monkeypatch
):
    file = lab(tmp_path, top='labels = "known.jsonl"\ncanaries = 3')
    lines = [
        {"item": f"{a}+{b}", "answer": "good", "label": TRUE[f"{a}+{b}"]} for a, b in ITEMS[:12]
    ]
    (tmp_path / "known.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(judge_labels, "write_judged", killed)
        run_of(file)
    (run,) = all_runs(tmp_path)
    asked = [each for each in read_calls(run.path) if each.stage == "labels"]
    assert len(asked) == 12 + 3 * 7
    assert not History(run).evaluations
    resume(run, despite="the judge goes by the item")
    again = [each for each in read_calls(run.path) if each.stage == "labels"]
    assert len(again) == len(asked) and len(read_judged(run)) == 1


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
def test_a_gate_passes_no_verdict_of_a_judge_that_nobody_checked_and_the_corrected_one(
    run, tmp_path
):
    run_of(named(tmp_path, "warm"))
    options = CompareOptions(allow=("evaluation.quality.sampling.temperature",))
    table = compare_names(tmp_path, ["tiny", "warm"], options)
    (phrase,) = failures([table], "worse")
    assert "a judge whose agreement with people is unknown" in phrase
    file = labelled(run, 60, "warm")
    measure_labels(tmp_path, ["tiny", "warm"], None, file, Silent())
    table = compare_names(tmp_path, ["tiny", "warm"], options)
    judge = judge_of(table)
    (name,) = judge.differences
    assert judge.differences[name].value == 0 and judge.verdict(name) == "undecided"
    assert failures([table], "worse") == [] and len(failures([table], "undecided")) == 1
    assert name.startswith("warm/")


@pytest.mark.slow
def test_another_rubric_is_another_checker(run, tmp_path):
    (tmp_path / "quality.toml").write_text(RUBRIC.format(top='about = "Be strict."'))
    strict = tmp_path / "strict.toml"
    strict.write_text((tmp_path / "tiny.toml").read_text().replace('"tiny"', '"strict"'))
    run_of(strict)
    with pytest.raises(Unfair, match=r"checker|rubric"):
        compare_names(tmp_path, ["tiny", "strict"], CompareOptions())
    with pytest.raises(InputError, match="has changed since"):
        draw_answers(tmp_path, [run.name], None, tmp_path / "l.jsonl", 5, Silent())


def test_pairs_stand_beside_the_answers_of_another_run_and_labels_are_asked_in_both_orders(
    run, tmp_path
):
    first = {"prompt": "<first>", "answer": '{"better": "first"}'}
    (tmp_path / "judge.jsonl").write_text(rules(first))
    against = '[against]\nrun = "tiny@base"\nevaluation = "quality"\n'
    pairs = RUBRIC.format(top="pairs = true\ncanaries = 0") + against
    (tmp_path / "quality.toml").write_text(pairs)
    beside = run_of(named(tmp_path, "beside"))
    assert 0.2 < compare_checkpoints(beside, "quality").lines[0].score < 0.8
    labels = tmp_path / "labels.jsonl"
    draw_answers(tmp_path, ["beside"], None, labels, 20, Silent())
    lines = [json.loads(line) for line in labels.read_text().splitlines()]
    differ = [line for line in lines if line["reference"].strip() != line["answer"].strip()]
    for line in lines:
        line["label"] = "answer"
    labels.write_text("".join(json.dumps(line) + "\n" for line in lines))
    before = calls(beside)
    (stored,) = measure_labels(tmp_path, ["beside"], None, labels, Silent())
    assert calls(beside) == before + 2 * len(differ) and differ
    position = leanings_of(held(stored)).position
    assert position is not None
    assert (position.flips.value, position.first.value) == (1, 1)
    found = compare_checkpoints(beside, "quality").findings
    leans = [each.values["words"]["how"] for each in found if each.code == "judge_leans"]
    assert "judge.leans_first" in leans


@pytest.mark.slow
def test_the_benchmark_chat_rubric_is_judged_and_corrected_like_an_evaluation_on_data(
    run, tmp_path
):
    text = (tmp_path / "tiny.toml").read_text().replace('"tiny"', '"bench"')
    named = 'benchmark = "chat/rubric"\noptions = { path = "sums.jsonl", rubric = "quality.toml" }'
    evaluation = 'data   = "sums"\nreward = "rubric:quality.toml"'
    assert evaluation in text
    file = tmp_path / "bench.toml"
    file.write_text(text.replace(evaluation, named))
    bench = run_of(file)
    measure_labels(tmp_path, ["bench"], None, labelled(bench, 20), Silent())
    found = judge_of(compare_checkpoints(bench, "quality"))
    assert found.held is not None and found.scores["base"].labelled == 20
    file.write_text(text.replace(evaluation, named.replace(', rubric = "quality.toml"', "")))
    with pytest.raises(InputError, match=r"options\.rubric: chat/rubric needs a file"):
        start(file, ['name="nothing"'], root=tmp_path)


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
    assert found == {"labelled answers": 1, "questions about them": 8}
    known.write_text("{}\n")
    (error,) = seen_in(tmp_path)
    assert "known.jsonl:1: item: missing" in error.evidence
