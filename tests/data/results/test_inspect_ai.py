"""Logs of inspect-ai, zipped and not: scores are those that inspect-ai itself averaged."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from assay.compare.arm import ReadOptions, read_arms
from assay.data.loaded import DataError
from assay.data.results.foreign_result import LOCAL_HEADER, ZSTANDARD, read_members
from assay.data.results.readers import read_results
from assay.errors import InputError
from tests.data.results.produced import FOLDER, copied

LOGS = FOLDER / "inspect_ai"


def header(file: Path) -> dict:
    if file.suffix == ".json":
        return json.loads(file.read_text())
    return json.loads(read_members(file, lambda name: name == "header.json")["header.json"])


@pytest.mark.parametrize("name", ["small.eval", "large.json"])
def test_every_scorer_has_the_accuracy_that_inspect_ai_printed(name: str):
    log = header(LOGS / name)
    printed = {s["name"]: s["metrics"]["accuracy"]["value"] for s in log["results"]["scores"]}
    results = read_results(LOGS / name)
    assert [result.metric for result in results] == list(printed) == ["match", "includes"]
    for result in results:
        scores = [answer.score for answer in result.answers if answer.score is not None]
        assert np.mean(scores) == pytest.approx(printed[result.metric])
        assert (result.benchmark, result.unfinished) == ("sums", "")
        assert len(result.answers) == 24
        assert {answer.repeat for answer in result.answers} == {0, 1}


def test_the_zip_is_one_that_python_cannot_unpack():
    with zipfile.ZipFile(LOGS / "small.eval") as archive:
        assert {member.compress_type for member in archive.infolist()} == {ZSTANDARD}


def test_a_failed_sample_is_an_abstention_with_its_error():
    answers = read_results(LOGS / "large.json")[0].answers
    failed = {(a.item, a.repeat): (a.score, a.error) for a in answers if a.error}
    assert failed.keys() == {("sum-4", 0), ("sum-4", 1)}
    assert all(score is None and "did not answer" in why for score, why in failed.values())


def test_a_log_that_stopped_or_was_cut_off_is_unfinished(tmp_path: Path):
    assert {r.unfinished for r in read_results(LOGS / "broken.eval")} == {"its status is error"}
    cut = changed(tmp_path, lambda log: log["samples"].pop())
    assert {r.unfinished for r in read_results(cut)} == {"23 of 24 samples"}


def made(folder: Path, scores: dict, **more: object) -> Path:
    """A log of one sample by the documented form."""
    sample = {"id": 1, "epoch": 1, "input": "?", "target": "!", "scores": scores, **more}
    log = {"version": 2, "status": "success", "plan": {}, "samples": [sample]}
    file = folder / "log.json"
    file.write_text(json.dumps({**log, "eval": {"task": "t", "model": "m"}}))
    return file


@pytest.mark.parametrize(
    ("value", "score"),
    [("C", 1.0), ("I", 0.0), ("Yes", 1.0), ("0.25", 0.25), (float("nan"), None)],
)
def test_values_count_as_inspect_ai_counts_them(tmp_path: Path, value: object, score: object):
    (result,) = read_results(made(tmp_path, {"s": {"value": value}}))
    assert [answer.score for answer in result.answers] == [score]


@pytest.mark.parametrize(
    ("tone", "names"),
    [("curt", {"tone"}), ({"a": "x", "b": "y"}, {"tone.a", "tone.b"}), ([1, 0], {"tone"})],
    ids=["word", "table of words", "list"],
)
def test_a_second_scorer_without_numbers_is_named_and_costs_nothing(tmp_path, tone, names):
    file = made(tmp_path, {"match": {"value": "C"}, "tone": {"value": tone}})
    (result,) = read_results(file)
    assert (result.metric, result.answers[0].score) == ("match", 1.0)
    assert {*result.left_out} == names
    with pytest.raises(InputError, match=r"holds no metric 'tone.* of numbers"):
        read_arms(str(file), ReadOptions(metric=min(names)))


def test_a_packed_member_with_other_bytes_is_a_damaged_zip(tmp_path: Path):
    file = copied("inspect_ai", tmp_path / "logs") / "small.eval"
    with zipfile.ZipFile(file) as archive:
        member = max(archive.infolist(), key=lambda m: m.compress_size)
    content = bytearray(file.read_bytes())
    start = member.header_offset + LOCAL_HEADER.size + len(member.filename)
    content[start : start + member.compress_size] = b"\xff" * member.compress_size
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"small.eval: is a damaged zip"):
        read_members(file, lambda name: name == member.filename)


def test_the_metadata_of_samples_name_their_clusters(tmp_path: Path):
    def paged(log: dict) -> None:
        for sample in log["samples"]:
            sample["metadata"] = {"cluster": "one", "page": sample["id"]}

    file = changed(tmp_path, paged)
    assert set(read_results(file)[0].clusters.values()) == {"one"}
    by_page = read_results(file, cluster="page")[0].clusters
    assert by_page == {item: item for item in by_page}
    assert read_results(LOGS / "large.json")[0].clusters == {}
    with pytest.raises(DataError, match="pages: is no source"):
        read_results(file, cluster="pages")


def test_what_a_log_reduced_otherwise_than_by_the_mean_is_named_as_left_out(tmp_path: Path):
    def reduced(log: dict) -> None:
        log["eval"]["config"]["epochs_reducer"] = ["mean", "pass_at_2"]
        score = log["results"]["scores"][0]
        wrong = {**score["metrics"], "accuracy": {"name": "accuracy", "value": 0.99}}
        log["results"]["scores"].append({**score, "reducer": "pass_at_2", "metrics": wrong})

    results = read_results(changed(tmp_path, reduced))
    assert [r.metric for r in results] == ["match", "includes"]
    assert all(r.left_out == ("pass_at_2",) and not r.contradictions for r in results)


def changed(folder: Path, change, name: str = "large.json") -> Path:
    """A produced log, changed."""
    file = copied("inspect_ai", folder) / name
    log = json.loads(file.read_text())
    change(log)
    file.write_text(json.dumps(log))
    return file


def sampling(file: Path) -> dict:
    return read_results(file)[0].settings["evaluation"]["sums"]["sampling"]


def test_the_plans_settings_win_over_the_models_where_it_has_some(tmp_path: Path):
    asked = {"temperature": 0.1, "top_p": 0.5, "max_tokens": 5}

    def settings(log: dict) -> None:
        log["eval"]["model_generate_config"] = asked
        log["plan"]["config"] = {"temperature": 0.4, "max_tokens": None}

    assert sampling(changed(tmp_path, settings)) == {**asked, "temperature": 0.4}


def call(config: dict, **event: object) -> dict:
    return {"event": "model", "model": "mockllm/large", "config": config, **event}


def test_what_the_model_was_called_with_wins_over_what_the_log_was_asked_for(tmp_path: Path):
    def settings(log: dict) -> None:
        log["plan"]["config"] = {"temperature": 0.4, "seed": 3}
        for sample in log["samples"]:
            sample["events"] = [
                call({"temperature": 0.9, "seed": sample["epoch"]}),
                call({"temperature": 0.1}, model="mockllm/other"),
                call({"temperature": 0.2}, role="grader"),
                {"event": "span_begin", "type": "scorers"},
                call({"temperature": 0.3}),
            ]

    file = changed(tmp_path, settings)
    assert sampling(file) == {"temperature": 0.9}
    assert read_results(file)[0].settings["random_seeds"] == {"seed": 3}


def contradicted(file: Path) -> set[str]:
    found = [{c.field for c in result.contradictions} for result in read_results(file)]
    assert all(each == found[0] for each in found)
    return found[0]


def first_right(log: dict) -> dict:
    """The first answer that `match` has as right."""
    return next(
        s["scores"]["match"] for s in log["samples"] if s["scores"]["match"]["value"] == "C"
    )


@pytest.mark.parametrize("name", ["small.eval", "large.json", "broken.eval"])
def test_a_log_as_inspect_ai_wrote_it_contradicts_nothing(name: str):
    assert contradicted(LOGS / name) == set()


def test_a_mean_that_the_samples_do_not_have_is_named(tmp_path: Path):
    flipped = changed(tmp_path / "row", lambda log: first_right(log).update(value="I"))
    assert contradicted(flipped) == {"results.match.accuracy"}

    def edited(log: dict) -> None:
        log["results"]["scores"][1]["metrics"]["accuracy"]["value"] = 0.99

    assert contradicted(changed(tmp_path / "sum", edited)) == {"results.includes.accuracy"}


def test_another_metric_that_is_called_accuracy_is_not_held_against_a_mean(tmp_path: Path):
    def own(log: dict) -> None:
        log["results"]["scores"][0]["metrics"]["accuracy"]["value"] = 0.99
        log["eval"]["scorers"] = [{"name": "match", "metrics": [{"name": "accuracy"}]}]

    assert contradicted(changed(tmp_path, own)) == set()


def test_samples_of_another_model_are_named(tmp_path: Path):
    def other(log: dict) -> None:
        log["stats"]["model_usage"] = {"mockllm/large": {}}
        for sample in log["samples"]:
            sample["model_usage"] = {"mockllm/small": {}}

    assert contradicted(changed(tmp_path, other)) == {"eval.model"}
