"""A folder of lm-eval's logs is one result over all its tasks."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from assay.compare.foreign_arms import ReadOptions, read_arms
from assay.compare.judged_table import compare_arms
from assay.data.loaded import DataError
from assay.data.results.readers import read_results
from tests.data.results.produced import copied

METRIC = "exact_match,strict-match"


def group(folder: Path, model: str, kept: int = 5) -> Path:
    """The logs that lm-eval wrote of the task `sums`, and those of its first documents as if they
    were of another task, `few`."""
    place = copied(f"lm_eval/sums-{model}", folder)
    (file,) = place.glob("samples_sums_2*.jsonl")
    lines = [line for line in file.read_text().splitlines() if json.loads(line)["doc_id"] < kept]
    file.with_name(file.name.replace("sums", "few")).write_text("\n".join(lines) + "\n")
    (log,) = place.glob("results_*.json")
    found = json.loads(log.read_text())
    for table in ("configs", "versions", "n-shot", "higher_is_better", "n-samples"):
        found[table]["few"] = found[table]["sums"]
    found["n-samples"]["few"] = {"original": kept, "effective": kept}
    log.write_text(json.dumps(found))
    return place


def by_metric(folder: Path, **more) -> dict:
    return {result.metric: result for result in read_results(folder, **more)}


def test_the_mean_over_all_items_is_lm_evals_mean_weighted_by_size(tmp_path: Path):
    found = by_metric(group(tmp_path, "small"))[METRIC]
    scores = {
        t: [a.score for a in found.answers if found.parts[a.item] == t] for t in ("few", "sums")
    }
    assert {t: len(s) for t, s in scores.items()} == {"few": 5, "sums": 12}
    # lm-eval's aggregate_subtask_metrics: the sum of metric * size over the sum of sizes.
    weighted = sum(np.mean(s) * len(s) for s in scores.values()) / 17
    assert np.mean([a.score for a in found.answers]) == pytest.approx(weighted)
    assert (found.benchmark, found.unfinished) == ("few, sums", "")
    assert found.left_out == ("sums_choice",), "a task without the metric is named"


def test_a_task_of_perplexity_alone_is_left_out_and_named(tmp_path: Path):
    place = group(tmp_path, "small")
    files = [*place.glob("samples_*")]
    for file in files:
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        bare = [line | {m: [-9.0, 4] for m in line["metrics"]} for line in lines]
        text = "\n".join(map(json.dumps, bare)) + "\n"
        file.with_name(re.sub("samples_", "samples_wiki_", file.name)).write_text(text)
    found = by_metric(place)[METRIC]
    assert found.benchmark == "few, sums" and len(found.answers) == 17
    assert {*found.left_out} == {"sums_choice", "wiki_few", "wiki_sums", "wiki_sums_choice"}
    for file in files:
        file.unlink()
    with pytest.raises(DataError, match=r"no metric is a number .*perplexity"):
        read_results(place)


def test_tasks_may_be_the_clusters(tmp_path: Path):
    found = by_metric(group(tmp_path, "small"), cluster="task")[METRIC]
    assert set(found.clusters.values()) == {"few", "sums"}
    assert by_metric(group(tmp_path / "b", "small"), cluster="answer")[METRIC].clusters


def test_a_task_of_two_dates_is_of_two_runs(tmp_path: Path):
    place = group(tmp_path, "small")
    (file,) = place.glob("samples_few_2*.jsonl")
    later = re.sub(r"_2026-\d\d", "_2027-01", file.name)
    file.with_name(later).write_text(file.read_text())
    found = [result for result in read_results(place) if result.metric == METRIC]
    assert [(r.run[:18], r.benchmark) for r in found] == [
        ("sums-small/2026-11", "few, sums"),
        ("sums-small/2027-01", "few"),
    ]


def second(place: Path, model: str | None = None, keep: str = "samples_sums_2*", **config) -> None:
    """The logs of the folder again a month later, of which `keep` stay."""
    (log,) = place.glob("results_*.json")
    found = json.loads(log.read_text())
    found["model_name"] = model or found["model_name"]
    found["config"]["model_args"] |= {"pretrained": found["model_name"], **config}
    later = re.sub(r"_2026-\d\d", "_2027-01", log.name)
    log.with_name(later).write_text(json.dumps(found))
    for file in sorted(place.glob(keep)):
        name = re.sub(r"_2026-\d\d", "_2027-01", file.name)
        file.with_name(name).write_text(file.read_text())


def runs(place: Path) -> list[tuple[str, str]]:
    return [(r.run, r.benchmark) for r in read_results(place) if r.metric == METRIC]


def test_two_models_logged_into_one_folder_are_two_runs(tmp_path: Path):
    place = group(tmp_path, "small")
    second(place, "tuned", keep="samples_*")
    assert runs(place) == [("sums-small", "few, sums"), ("tuned", "few, sums")]
    assert [arm.name for arm in read_arms(f"{place}@tuned", ReadOptions(metric=METRIC))] == [
        "tuned"
    ]


def test_one_model_that_ran_its_tasks_twice_is_two_runs_named_by_their_dates(tmp_path: Path):
    place = group(tmp_path, "small")
    second(place, keep="samples_*")
    assert [(run[:18], benchmark) for run, benchmark in runs(place)] == [
        ("sums-small/2026-11", "few, sums"),
        ("sums-small/2027-01", "few, sums"),
    ]
    assert len({run for run, _ in runs(place)}) == 2


def test_one_call_for_each_task_is_one_run(tmp_path: Path):
    place = group(tmp_path, "small")
    (few,) = place.glob("samples_few_2*.jsonl")
    second(place, keep=few.name)
    few.unlink()
    assert runs(place) == [("sums-small", "few, sums")]


def test_one_call_for_each_task_with_other_arguments_is_two_runs(tmp_path: Path):
    place = group(tmp_path, "small")
    (few,) = place.glob("samples_few_2*.jsonl")
    second(place, keep=few.name, load_in_4bit=True)
    few.unlink()
    assert [benchmark for _, benchmark in runs(place)] == ["sums", "few"]
    assert len({run for run, _ in runs(place)}) == 2


def test_tasks_are_one_comparison_with_a_line_for_each_and_a_mean_that_weighs_them_alike(tmp_path):
    small, large = (group(tmp_path / m, m) for m in ("small", "large"))
    options = ReadOptions(metric=METRIC)
    arms = [arm for place in (small, large) for arm in read_arms(str(place), options)]
    table = compare_arms(arms)
    assert [line.items for line in table.lines] == [17, 17]
    assert [(line.task, line.items) for line in table.tasks] == [("few", 5), ("sums", 12), ("", 17)]
    control, other = zip(*(line.figures for line in table.tasks), strict=True)
    assert control[2].score == pytest.approx(np.mean([control[0].score, control[1].score]))
    differences = [figure.difference for figure in other]
    assert differences[2] == pytest.approx(np.mean(differences[:2]))
    assert table.lines[0].score == pytest.approx(
        (5 * control[0].score + 12 * control[1].score) / 17
    )
    assert all(figure.difference is None for figure in control)
