"""BFCL's score tables of a run: upstream's averages and weights, and N/A where a part is absent."""

import csv
import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from assay.data.wheels import wheel_directory
from assay.errors import InputError
from assay.judge.intervals import wilson
from assay.judge.scores import ItemScores
from assay.runs.history import reported_answers
from assay.runs.run_directory import RunDirectory
from assay.tasks.tools.agentic import AGENTIC
from assay.tasks.tools.bfcl_scores import (
    GROUPS,
    OVERALL,
    SEVERAL_TURNS,
    WEIGHTS,
    BfclScores,
    bfcl_lines,
    bfcl_result,
    bfcl_scores,
    breakdown,
    categories_of,
    group_score,
    is_category,
    write_bfcl,
)
from assay.tasks.tools.multi_turn import MULTI_TURN
from assay.tasks.tools.single_turn import ENTRIES, FORMAT_SENSITIVITY
from tests.pages.synthetic import RECORD, add_record, answer, empty_run
from tests.tasks.tools import upstream_dialogue
from tests.tasks.tools.scripted import entries

STATE = "multi_turn:instance_state_mismatch"


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return empty_run(tmp_path, "tools")


def add(run: RunDirectory, category: str, right: int, checkpoint: str = "base", **changes: Any):
    """A record of the first entries of a category, of which the first `right` are right."""
    rows = entries(category)[: changes.pop("items", None)]
    record = replace(RECORD, name=category, benchmark=f"bfcl/{category}", **changes)
    lines = []
    for index, row in enumerate(rows):
        line = answer(category, checkpoint, row.id, 0, float(index < right))
        line["error"] = "" if index < right else STATE
        line["parts"] = json.dumps({"refused": float(index == 0)})
        lines.append(line)
    add_record(run, checkpoint, lines, record)


def scores_of(run: RunDirectory) -> list[BfclScores]:
    return bfcl_scores(str(run), reported_answers(run, is_category))


def table(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as stream:
        return list(csv.DictReader(stream))


def written(run: RunDirectory, folder: Path) -> dict[str, Path]:
    return {file.name: file for file in write_bfcl(scores_of(run), folder)}


def upstream_files(models: dict[str, dict[str, tuple[float, int]]], folder: Path) -> None:
    """Has upstream write its tables for accuracies and entries by model and category."""
    program = Path(upstream_dialogue.__file__).with_name("upstream_table.py")
    command = [sys.executable, str(program), str(wheel_directory("bfcl-eval")), str(folder)]
    sent = json.dumps(models)
    subprocess.run(command, input=sent, check=True, capture_output=True, text=True)


def test_upstreams_table_is_upstreams_to_the_byte(run: RunDirectory, tmp_path: Path):
    for category, right in zip(MULTI_TURN, (53, 40, 21, 0), strict=True):
        add(run, category, right)
    add(run, "multi_turn_base", 121, "sft.step-000014")
    base, sft = f"{run}@base", f"{run}@sft.step-000014"
    rates = {name: (n / 200, 200) for name, n in zip(MULTI_TURN, (53, 40, 21, 0), strict=True)}
    upstream_files({base: rates, sft: {"multi_turn_base": (121 / 200, 200)}}, tmp_path)
    expected = (tmp_path / "data_multi_turn.csv").read_text().replace("/", "_")
    assert (
        written(run, tmp_path / "out")["data_multi_turn.csv"].read_text().replace("/", "_")
        == expected
    )
    assert "15.12%,60.50%,N_A,N_A,N_A" in expected


def test_one_category_alone_has_no_overall_score(run: RunDirectory, tmp_path: Path):
    add(run, "multi_turn_base", 120)
    files = written(run, tmp_path / "out")
    (wrong,) = table(files["data_multi_turn.csv"])
    assert (wrong["Multi Turn Overall Acc"], wrong["Base"]) == ("15.00%", "60.00%")
    groups = {line["Group"]: line for line in table(files["bfcl_overall.csv"])}
    assert groups["multi_turn"]["Score"] == "N/A"
    (line,) = [line for line in bfcl_lines(scores_of(run)) if " multi_turn: " in line]
    assert line.endswith(
        "N/A, without multi_turn_miss_func, multi_turn_miss_param, multi_turn_long_context"
    )


def test_four_categories_have_one_whose_interval_knows_that_they_share_scenes(run: RunDirectory):
    for category in MULTI_TURN:
        add(run, category, 100)
    (scores,) = scores_of(run)
    # The same scenes are right in all four: no more is known than from one of them.
    one = wilson(100, 200)
    overall = scores.group(SEVERAL_TURNS)
    assert overall.mean == 0.5 and overall.interval is not None
    assert overall.interval.half_width == pytest.approx(one.half_width, rel=0.1)


def test_categories_say_how_many_items_and_what_was_not_run(run: RunDirectory, tmp_path: Path):
    add(run, "multi_turn_base", 4, items=20)
    add(run, "irrelevance", 240)
    lines = {x["Category"]: x for x in table(written(run, tmp_path)["bfcl_categories.csv"])}
    assert len(lines) == 15 + 2 + 5 + 1
    base, interval = lines["multi_turn_base"], wilson(4, 20)
    assert (base["Score"], base["Items"], base["Of"]) == ("0.200000", "20", "200")
    assert float(base["Low"]) == pytest.approx(interval.low, abs=1e-6)
    assert (base["Abstained"], base["Refused"], base["Repeats"]) == ("0", "1", "1")
    assert lines["irrelevance"]["Score"] == "1.000000"
    absent = lines["live_simple"]
    assert (absent["Score"], absent["Low"], absent["Items"], absent["Of"]) == (
        "N/A",
        "N/A",
        "0",
        "258",
    )
    assert absent["Why"] == "not run" and base["Why"] == ""
    (result,) = bfcl_result(scores_of(run))
    assert (result["categories"]["live_simple"], result["categories"]["irrelevance"]) == (None, 1.0)


def test_breakdown_by_class_turns_and_error_adds_up(run: RunDirectory, tmp_path: Path):
    add(run, "multi_turn_base", 50)
    (scores,) = scores_of(run)
    shares = breakdown(scores.categories["multi_turn_base"])
    rows = entries("multi_turn_base")
    turns = {s.value: (s.count, s.rate) for s in shares if s.by == "turns"}
    assert {k: n for k, (n, _) in turns.items()} == dict(
        zip("1234567", (3, 40, 50, 50, 43, 12, 2), strict=True)
    )
    assert sum(n * rate for n, rate in turns.values()) == pytest.approx(50)
    classes = {s.value: (s.count, s.rate) for s in shares if s.by == "class"}
    assert classes["GorillaFileSystem"][0] == 50 and classes["MathAPI"][0] == 25
    files = [
        i < 50
        for i, r in enumerate(rows)
        if "GorillaFileSystem" in r.extra["entry"]["involved_classes"]
    ]
    assert classes["GorillaFileSystem"][1] == pytest.approx(sum(files) / 50)
    (error,) = [s for s in shares if s.by == "error"]
    assert (error.value, error.count, error.rate) == (STATE, 150, 0.75)
    assert len(table(written(run, tmp_path)["bfcl_breakdown.csv"])) == len(shares) == 7 + 8 + 1


def test_abstentions_are_no_zeros(run: RunDirectory, tmp_path: Path):
    rows = entries("multi_turn_base")[:10]
    record = replace(RECORD, name="base", benchmark="bfcl/multi_turn_base")
    given: list[float | None] = [1.0, 0.0, *[None] * 8]
    lines = [answer("base", "base", row.id, 0, s) for row, s in zip(rows, given, strict=True)]
    add_record(run, "base", lines, record)
    lines = table(written(run, tmp_path)["bfcl_categories.csv"])
    line = next(line for line in lines if line["Category"] == "multi_turn_base")
    assert (line["Category"], line["Score"], line["Abstained"]) == (
        "multi_turn_base",
        "0.500000",
        "8",
    )


def test_everything_abstained_is_no_score(run: RunDirectory):
    record = replace(RECORD, name="base", benchmark="bfcl/multi_turn_base")
    row = entries("multi_turn_base")[0]
    add_record(run, "base", [answer("base", "base", row.id, 0, None)], record)
    assert "N/A, every answer abstained" in bfcl_lines(scores_of(run))[0]


def test_evaluations_that_select_are_not_reported_and_two_of_one_category_are_refused(
    run: RunDirectory,
):
    add(run, "multi_turn_base", 1, role="select")
    with pytest.raises(InputError, match="was measured on no category of BFCL"):
        scores_of(run)
    add(run, "multi_turn_miss_func", 1)
    other = replace(RECORD, name="again", benchmark="bfcl/multi_turn_miss_func", seed=7)
    row = entries("multi_turn_miss_func")[0]
    add_record(run, "base", [answer("again", "base", row.id, 0, 1.0)], other)
    with pytest.raises(InputError, match=r"measured bfcl/multi_turn_miss_func as '.*' and '.*'"):
        scores_of(run)


CATEGORIES = categories_of(OVERALL)
COLUMNS = {
    "overall": ("overall", "Overall Acc"),
    "agentic": ("agentic", "Agentic Overall Acc"),
    "web_search": ("agentic", "Web Search Summary"),
    "memory": ("agentic", "Memory Summary"),
    "multi_turn": ("multi_turn", "Multi Turn Overall Acc"),
    "live": ("live", "Live Overall Acc"),
    "non_live": ("non_live", "Non-Live Overall Acc"),
    "non_live_simple": ("non_live", "Simple AST"),
    "hallucination": ("overall", "Irrelevance Detection"),
}
"""Group -> upstream's file (data_NAME.csv) and its column."""


def drawn(seed: int) -> dict[str, ItemScores]:
    """Scores of every category; upstream counts as many entries as were answered."""
    rng = random.Random(seed)
    found = {}
    for name in CATEGORIES:
        size, rate = rng.randint(5, 300), rng.random()
        scores = [[float(rng.random() < rate)] for _ in range(size)]
        found[name] = ItemScores(tuple(f"{name}_{n}" for n in range(size)), np.array(scores))
    return found


def upstream_tables(scores: dict[str, ItemScores], folder: Path) -> dict[str, str]:
    """What upstream writes for each group."""
    upstream_files({"model": {k: (s.mean, len(s.item_ids)) for k, s in scores.items()}}, folder)
    found = {}
    for group, (file, column) in COLUMNS.items():
        (found[group],) = [line[column] for line in table(folder / f"data_{file}.csv")]
    return found


@pytest.mark.parametrize("seed", range(2))
def test_groups_and_overall_are_upstreams_where_everything_was_run(seed: int, tmp_path: Path):
    scores = drawn(seed)
    ours = {each.name: group_score(each, scores) for each in (OVERALL, *GROUPS)}
    shown = {name: f"{each.mean:.2%}" for name, each in ours.items() if each.mean is not None}
    assert shown == upstream_tables(scores, tmp_path)


@pytest.mark.parametrize("lost", CATEGORIES)
def test_what_was_not_run_makes_every_group_that_needs_it_na_and_no_other(lost, tmp_path: Path):
    scores = drawn(1)
    del scores[lost]
    for group in (OVERALL, *GROUPS):
        found = group_score(group, scores)
        assert (found.mean is None, found.interval is None) == (lost in categories_of(group),) * 2
        assert found.missing == ((lost,) if lost in categories_of(group) else ())


def test_the_interval_is_that_of_a_weighted_sum_of_independent_categories():
    scores = drawn(2)
    found = group_score(OVERALL, scores)
    assert found.interval is not None and found.items == sum(
        len(s.item_ids) for s in scores.values()
    )
    moved = {}
    for name, each in scores.items():
        better = replace(each, scores=np.minimum(each.scores + 0.01 * (each.scores < 1), 1.0))
        whole = group_score(OVERALL, {**scores, name: better})
        assert whole.mean is not None and found.mean is not None
        moved[name] = (whole.mean - found.mean) / (better.mean - each.mean)
    assert sum(moved.values()) == pytest.approx(1)
    variance = sum(
        moved[name] ** 2 * each.mean * (1 - each.mean) / len(each.item_ids)
        for name, each in scores.items()
    )
    expected = NormalDist().inv_cdf(0.975) * variance**0.5
    assert found.interval.half_width == pytest.approx(expected, rel=0.05)


def test_a_scenario_counts_as_its_questions_and_they_are_one_source(run: RunDirectory):
    lines = []
    for row in entries("memory_kv"):
        right = row.id.endswith("student")
        parts = dict.fromkeys(row.gold, float(right)) | {"refused": 1.0}
        facts = {} if right else dict.fromkeys(row.gold, "agentic:answer_not_found")
        line = answer("memory_kv", "base", row.id + "_0", 0, float(right))
        lines.append(
            {**line, "item_id": row.id, "parts": json.dumps(parts), "facts": json.dumps(facts)}
        )
    add_record(run, "base", lines, replace(RECORD, name="kv", benchmark="bfcl/memory_kv"))
    (found,) = scores_of(run)
    memory = found.categories["memory_kv"]
    assert memory.scores is not None and memory.scores.mean == pytest.approx(50 / 155)
    assert (len(memory.scores.item_ids), memory.of, memory.refused) == (155, 155, 5)
    assert memory.scores.sources == 5
    assert sum(line["error"] == "agentic:answer_not_found" for line in memory.lines) == 105


def test_tables_say_why_a_category_has_no_score(run: RunDirectory, tmp_path: Path):
    rows = entries("irrelevance")[:4]
    lines = [answer("i", "base", row.id, 0, 1.0) for row in rows]
    add_record(run, "base", lines, replace(RECORD, name="i", benchmark="bfcl/irrelevance"))
    why = {"bfcl/memory_vector": "not installed: faiss-cpu"}
    found = bfcl_scores(str(run), reported_answers(run, is_category), why)
    files = {file.name: file for file in write_bfcl(found, tmp_path / "out")}
    lines = {line["Category"]: line for line in table(files["bfcl_categories.csv"])}
    assert set(lines) == set(ENTRIES)
    assert (lines["memory_vector"]["Score"], lines["memory_vector"]["Of"]) == ("N/A", "155")
    assert lines["memory_vector"]["Why"] == "not installed: faiss-cpu"
    assert {lines[name]["Why"] for name in AGENTIC if name != "memory_vector"} == {"not run"}
    groups = {line["Group"]: line for line in table(files["bfcl_overall.csv"])}
    assert (groups["hallucination"]["Score"], groups["hallucination"]["Missing"]) == (
        "N/A",
        "live_irrelevance",
    )
    assert groups["overall"]["Score"] == "N/A"
    assert set(groups["overall"]["Missing"].split()) == set(CATEGORIES) - {"irrelevance"}
    weights = [float(groups[each.name]["Weight"]) for each in WEIGHTS]
    assert weights == [40, 30, 10, 10, 10]
    assert groups["format_sensitivity_std"]["Missing"] == FORMAT_SENSITIVITY
    said = bfcl_lines(found)
    assert any("memory_vector: N/A, not installed: faiss-cpu" in line for line in said)
