"""BFCL V4's overall score: upstream's averages and weights, and N/A where anything is missing."""

import csv
import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

from assay.data.wheels import wheel_directory
from assay.judge.scores import ItemScores
from assay.runs.history import reported_answers
from assay.runs.run_directory import RunDirectory
from assay.tasks.tools.agentic import AGENTIC
from assay.tasks.tools.bfcl_scores import (
    GROUPS,
    OVERALL,
    WEIGHTS,
    bfcl_lines,
    bfcl_scores,
    categories_of,
    group_score,
    is_category,
    write_bfcl,
)
from assay.tasks.tools.single_turn import ENTRIES, FORMAT_SENSITIVITY
from tests.pages.synthetic import RECORD, add_record, answer, empty_run
from tests.tasks.tools import upstream_dialogue
from tests.tasks.tools.scripted import entries

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
    program = Path(upstream_dialogue.__file__).with_name("upstream_table.py")
    command = [sys.executable, str(program), str(wheel_directory("bfcl-eval")), str(folder)]
    sent = {"model": {name: [each.mean, len(each.item_ids)] for name, each in scores.items()}}
    subprocess.run(command, input=json.dumps(sent), check=True, capture_output=True, text=True)
    found = {}
    for group, (file, column) in COLUMNS.items():
        with (folder / f"data_{file}.csv").open(newline="") as stream:
            (found[group],) = [line[column] for line in csv.DictReader(stream)]
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


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return empty_run(tmp_path, "tools")


def add(run: RunDirectory, category: str, lines: list[dict]) -> None:
    add_record(run, "base", lines, replace(RECORD, name=category, benchmark=f"bfcl/{category}"))


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
    add(run, "memory_kv", lines)
    (found,) = bfcl_scores(str(run), reported_answers(run, is_category))
    memory = found.categories["memory_kv"]
    assert memory.scores is not None and memory.scores.mean == pytest.approx(50 / 155)
    assert (len(memory.scores.item_ids), memory.of, memory.refused) == (155, 155, 5)
    assert memory.scores.sources == 5
    assert sum(line["error"] == "agentic:answer_not_found" for line in memory.lines) == 105


def test_tables_say_why_a_category_has_no_score(run: RunDirectory, tmp_path: Path):
    rows = entries("irrelevance")[:4]
    add(run, "irrelevance", [answer("i", "base", row.id, 0, 1.0) for row in rows])
    why = {"bfcl/memory_vector": "not installed: faiss-cpu"}
    found = bfcl_scores(str(run), reported_answers(run, is_category), why)
    files = {file.name: file for file in write_bfcl(found, tmp_path / "out")}
    with files["bfcl_categories.csv"].open(newline="") as stream:
        lines = {line["Category"]: line for line in csv.DictReader(stream)}
    assert set(lines) == set(ENTRIES)
    assert (lines["memory_vector"]["Score"], lines["memory_vector"]["Of"]) == ("N/A", "155")
    assert lines["memory_vector"]["Why"] == "not installed: faiss-cpu"
    assert {lines[name]["Why"] for name in AGENTIC if name != "memory_vector"} == {"not run"}
    with files["bfcl_overall.csv"].open(newline="") as stream:
        groups = {line["Group"]: line for line in csv.DictReader(stream)}
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
