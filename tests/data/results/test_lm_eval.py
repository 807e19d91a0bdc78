"""Sample logs of lm-eval: scores are those that lm-eval itself averaged."""

import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest

from assay.data.loaded import DataError
from assay.data.results.foreign_result import Result
from assay.data.results.readers import read_results
from tests.data.results.produced import FOLDER, PRODUCED, copied

METRIC = "exact_match,strict-match"


def log_of(samples: Path) -> dict:
    """What lm-eval wrote about the same run."""
    (file,) = samples.parent.glob("results_*.json")
    return json.loads(file.read_text())


def samples(folder: str, task: str = "sums") -> Path:
    (file,) = (FOLDER / "lm_eval" / folder).glob(f"samples_{task}_2*.jsonl")
    return file


def mean(result: Result) -> float:
    return float(np.mean([answer.score for answer in result.answers if answer.score is not None]))


@pytest.mark.parametrize("file", PRODUCED["lm-eval"], ids=lambda file: file.parent.name)
def test_every_metric_and_filter_has_the_mean_that_lm_eval_printed(file: Path):
    log = log_of(file)
    for result in read_results(file):
        metric = result.metric if "," in result.metric else f"{result.metric},none"
        assert mean(result) == pytest.approx(log["results"][result.benchmark][metric])
        assert len(result.answers) == log["n-samples"][result.benchmark]["effective"]
        assert (result.run, result.unfinished) == (log["model_name"], "")
        assert result.checker == f"lm-evaluation-harness {result.metric}"


def test_settings_hold_the_configuration_and_tell_models_and_examples_apart():
    small, large, examples = (
        read_results(samples(name))[0] for name in ("sums-small", "sums-large", "two_examples")
    )
    assert small.configured and small.settings["model_args"]["share"] == 0.4
    apart = {key for key in small.settings if small.settings[key] != large.settings[key]}
    assert apart == {"base_weights", "model_args"}
    apart = {key for key in large.settings if large.settings[key] != examples.settings[key]}
    assert apart == {"evaluation"}
    two, none = (result.settings["evaluation"]["sums"] for result in (examples, large))
    assert {key for key in two if two[key] != none[key]} == {"task", "examples", "prompts_sha256"}
    assert (none["examples"], two["examples"]) == (0, 2)
    assert large.questions == examples.questions


def test_without_the_results_file_settings_are_unknown(tmp_path: Path):
    folder = copied("lm_eval/sums-small", tmp_path)
    next(folder.glob("results_*.json")).unlink()
    result = read_results(next(folder.glob("samples_sums_2*")))[0]
    assert not result.configured and result.run == "sums-small"
    assert [list(part) for part in result.settings["evaluation"].values()] == [["prompts_sha256"]]


def test_a_cut_off_sample_log_is_unfinished(tmp_path: Path):
    file = next(copied("lm_eval/sums-small", tmp_path).glob("samples_sums_2*"))
    lines = file.read_text().splitlines()
    file.write_text("\n".join(lines[:5]) + "\n")
    assert [result.unfinished for result in read_results(file)] == ["5 of 12 questions"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda text: text + text.splitlines(keepends=True)[2],
            (":25", "doc_id", "'2' is also the item of line 3"),
        ),
        (lambda text: text.replace('"doc_id": 4,', ""), (":5", "doc_id", "missing")),
        (
            lambda text: text.replace('"exact_match": ', '"exact_match": "x", "y":'),
            ("no metric is a number",),
        ),
    ],
)
def test_damage_is_named_by_file_and_line(tmp_path: Path, change, words: tuple[str, ...]):
    file = next(copied("lm_eval/sums-small", tmp_path).glob("samples_sums_2*"))
    file.write_text(change(file.read_text()))
    with pytest.raises(DataError) as refusal:
        read_results(file)
    assert all(word in str(refusal.value) for word in (file.name, *words)), refusal.value


def rewritten(folder: Path, name: str, change, as_array: bool = False) -> Path:
    """The log of `sums` under another name, each line changed."""
    file = next(folder.glob("samples_sums_2*.jsonl"))
    rows = [change(json.loads(line)) for line in file.read_text().splitlines()]
    file.unlink()
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / name).write_text(json.dumps(rows, indent=2) if as_array else lines)
    return folder / name


def scores(results: list[Result]) -> dict[str, list[float | None]]:
    return {result.metric: [answer.score for answer in result.answers] for result in results}


@pytest.mark.parametrize("as_array", [True, False], ids=["array", "lines"])
def test_logs_of_leaderboards_end_in_json_and_have_their_results_beside_them(tmp_path, as_array):
    before = read_results(samples("sums-small"))
    folder = copied("lm_eval/sums-small", tmp_path)
    name = samples("sums-small").name.replace(".jsonl", ".json")
    found = read_results(rewritten(folder, name, dict, as_array))
    assert scores(found) == scores(before)
    assert [r.settings for r in found] == [r.settings for r in before]
    assert {r.run for r in read_results(folder)} == {"sums-small"}


def contradicted(folder: Path, task: str = "sums") -> set[str]:
    found = read_results(next(folder.glob(f"samples_{task}_2*")))
    assert all(result.contradictions == found[0].contradictions for result in found)
    return {each.field for each in found[0].contradictions}


def edited(folder: Path, change, line=None) -> Path:
    """The produced run with its results file changed, and each row of `sums`."""
    place = copied("lm_eval/sums-small", folder)
    log = next(place.glob("results_*.json"))
    about = json.loads(log.read_text())
    log.write_text(json.dumps(change(about) or about))
    if line is not None:
        rewritten(place, next(place.glob("samples_sums_2*")).name, lambda r: r | line(r))
    return place


@pytest.mark.parametrize("file", PRODUCED["lm-eval"], ids=lambda file: file.parent.name)
def test_a_run_as_lm_eval_wrote_it_contradicts_nothing(file: Path):
    assert all(result.contradictions == () for result in read_results(file))


def test_a_mean_that_the_rows_do_not_have_is_named(tmp_path: Path):
    place = edited(tmp_path, lambda log: log["results"]["sums"].update({METRIC: 0.5}))
    assert contradicted(place) == {f"results.sums.{METRIC}"}
    assert contradicted(place, "sums_choice") == set()
    (stated,) = {c.stated for r in read_results(place) for c in r.contradictions}
    assert stated == 0.5


def test_rows_that_were_changed_or_are_of_another_run_are_named(tmp_path: Path):
    place = copied("lm_eval/sums-small", tmp_path)
    mine = next(place.glob("samples_sums_2*"))
    mine.write_text(samples("sums-large").read_text())
    assert f"results.sums.{METRIC}" in contradicted(place)
    mine.write_text(samples("two_examples").read_text())
    assert "task_hashes.sums" in contradicted(place)


@pytest.mark.parametrize("way", ["perplexity", "median", "house"])
def test_what_is_no_mean_over_documents_is_not_held_against_one(tmp_path: Path, way: str):
    def other(log: dict) -> None:
        log["configs"]["sums"]["metric_list"] = [{"metric": "exact_match", "aggregation": way}]
        log["results"]["sums"][METRIC] = 3.25

    assert contradicted(edited(tmp_path, other)) == set()


def asked(**settings: object):
    """Rows that were asked for with these settings beside their own."""
    return lambda row: {"arguments": [[row["arguments"]["gen_args_0"]["arg_0"], settings]]}


@pytest.mark.parametrize(
    ("stated", "used", "command", "known"),
    [
        ({"temperature": 0.0}, {"temperature": 0.9}, "", {"temperature": [0.9]}),
        ({"until": ["a"]}, {"until": ["b"]}, "", {"until": [["b"]]}),
        ({"until": ["a"]}, {"until": ["a", "</s>"]}, "", {"until": ["a"]}),
        ({"temperature": 0.0, "until": ["a"]}, {"temperature": 0.0}, "", {"until": ["a"]}),
        ({"temperature": 0.0}, {"temperature": 0.9}, "temperature=0.9", {"temperature": 0.9}),
    ],
)
def test_settings_that_the_rows_were_made_with_win_over_those_of_the_results_file(
    tmp_path: Path, stated: dict, used: dict, command: str, known: dict
):
    def change(log: dict) -> None:
        log["configs"]["sums"]["generation_kwargs"] = stated
        log["config"]["gen_kwargs"] = command

    place = edited(tmp_path, change, asked(**used))
    assert settings_in(place)["sampling"] == stated | known | {"repeats": 1}


def settings_in(folder: Path) -> dict:
    result = read_results(next(folder.glob("samples_sums_2*")))[0]
    return result.settings["evaluation"]["sums"]


@pytest.mark.parametrize("name", ["system_instruction", "chat_template"])
def test_a_text_is_known_by_its_own_checksum(tmp_path: Path, name: str):
    for text, sha in (("Be good", "another"), ("Be good", None), (None, "another")):
        place = edited(
            tmp_path / f"{text} {sha}", lambda log, t=text, s=sha: log | {name: t, f"{name}_sha": s}
        )
        own = hashlib.sha256(b"Be good").hexdigest() if text else sha
        assert settings_in(place)["rendering"][f"{name}_sha"] == own


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
        t: [a.score for a in found.answers if a.item.startswith(f"{t}/")] for t in ("few", "sums")
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


def test_each_call_is_a_run_and_two_of_one_model_are_told_apart_by_their_dates(tmp_path: Path):
    place = group(tmp_path, "small")
    for file in [*place.glob("results_*.json"), *place.glob("samples_few_2*.jsonl")]:
        later = re.sub(r"_2026-\d\d", "_2027-01", file.name)
        file.with_name(later).write_text(file.read_text())
    found = [(r.run.partition("/")[2][:7], r.benchmark) for r in read_results(place)]
    assert [each for each in dict.fromkeys(found) if "few" in each[1]] == [
        ("2026-11", "few, sums"),
        ("2027-01", "few"),
    ]
