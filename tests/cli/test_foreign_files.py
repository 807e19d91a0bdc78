"""`assay compare` and `assay report` on files that other tools wrote, as a user calls them."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import answer, assert_one_line, call
from tests.data.results.produced import FOLDER, copied
from tests.pages.synthetic import add_scores, empty_run

LM_EVAL = "lm_eval/{}/samples_sums_2*.jsonl"
STRICT = ("--metric", "exact_match,strict-match")


def lm_eval(folder: str) -> Path:
    (file,) = FOLDER.glob(LM_EVAL.format(folder))
    return file


def table(folder: Path, name: str, **runs: list) -> Path:
    """A CSV file of runs on the items item_0, item_1, ..."""
    lines = [f"item_{n},{run},{s}" for run, scores in runs.items() for n, s in enumerate(scores)]
    file = folder / name
    file.write_text("\n".join(["item,run,score", *lines]) + "\n")
    return file


BASE, TUNED = [0] * 20, [1] * 9 + [0] * 11


@pytest.fixture(autouse=True)
def lab(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty lab, where the pages of comparisons go."""
    root = tmp_path_factory.mktemp("lab")
    monkeypatch.setenv("ASSAY_LAB", str(root))
    return root


def whole(*arguments: object) -> dict:
    """Everything that the command prints for programs."""
    found = call(*arguments, "--json")
    assert found.exit_code == 0, found.stderr
    return answer(found)


def result(*arguments: object) -> dict:
    return whole(*arguments)["result"]


def marks(found: dict) -> dict[str, str]:
    """What could not be checked, and of which runs."""
    return {f["what"].partition(":")[0]: f["evidence"] for f in found["findings"]}


@pytest.mark.parametrize(
    ("first", "second", "metric", "unknown"),
    [
        (lm_eval("sums-small"), lm_eval("sums-large"), STRICT[1], False),
        (FOLDER / "verl/ray_trainer/0.jsonl", FOLDER / "verl/v1/10.jsonl", None, True),
        (
            FOLDER / "trl/completions/completions_00001.parquet",
            FOLDER / "trl/completions/completions_00002.parquet",
            "short",
            True,
        ),
        (
            FOLDER / "bfcl/score/small/non_live/BFCL_v4_simple_python_score.json",
            FOLDER / "bfcl/score/large/non_live/BFCL_v4_simple_python_score.json",
            None,
            True,
        ),
    ],
    ids=["lm-eval", "verl", "trl", "bfcl"],
)
def test_two_files_of_every_tool_are_judged(
    first: Path, second: Path, metric: str | None, unknown: bool
):
    allow = ("--allow", "model_args") if metric == STRICT[1] else ()
    found = whole("compare", first, second, *(("--metric", metric) if metric else ()), *allow)
    lines = found["result"]["lines"]
    shown = [line for f in (first, second) for line in runs_of(f, metric)]
    assert [line["score"] for line in lines] == [run["score"] for run in shown]
    comparison = lines[1]["to_control"]["comparison"]
    assert comparison["verdict"] in ("better", "worse", "undecided", "equivalent")
    assert comparison["difference"] == pytest.approx(lines[1]["score"] - lines[0]["score"])
    assert ("settings unknown" in marks(found)) is unknown
    parts = {name: part["kind"] for name, part in found["result"]["parts"].items()}
    assert parts["base weights"] == ("unknown" if unknown else "tested")
    assert parts["checker"] == ("unknown" if unknown else "same")
    assert parts["items"] == "same" and parts["data"] == parts["reward"] == "unknown"
    assert 0 <= lines[1]["to_control"]["agreement"] <= 1


def runs_of(file: Path, metric: str | None) -> list[dict]:
    return result("report", file, "--metric", metric or default(file))["runs"]


def default(file: Path) -> str:
    return "valid" if "bfcl" in file.parts else "score"


def test_other_settings_in_the_logs_make_the_verdict_not_comparable_unless_allowed():
    files = (lm_eval("sums-large"), lm_eval("two_examples"))
    (line,) = result("compare", *files, *STRICT)["lines"][1:]
    comparison = line["to_control"]["comparison"]
    assert comparison["verdict"] == "not comparable"
    wanted = {"evaluation.sums.examples", "evaluation.sums.prompts_sha256"}
    assert wanted <= set(comparison["confounds"])
    found = result("compare", *files, *STRICT, "--allow", "evaluation")
    assert found["lines"][1]["to_control"]["comparison"]["verdict"] != "not comparable"
    assert "evaluation.sums.examples" in found["allowed"]


def test_a_run_of_the_lab_stands_beside_a_file(tmp_path: Path):
    run = empty_run(tmp_path)
    add_scores(run, "base", [float(s) for s in BASE])
    add_scores(run, "rl.step-000030", [float(s) for s in TUNED])
    lines = [f"simple_python_{n},other,{s}" for n, s in enumerate(BASE)]
    file = tmp_path / "other.csv"
    file.write_text("\n".join(["item,run,score", *lines]) + "\n")
    found = whole("compare", "demo", file, "--lab", tmp_path)
    shown = found["result"]["lines"]
    assert [line["score"] for line in shown] == [9 / 20, 0.0]
    assert shown[1]["to_control"]["comparison"]["verdict"] == "worse"
    assert marks(found)["settings unknown"] == "other"


def test_a_report_shows_every_run_and_metric_with_interval_repeats_and_errors():
    runs = result("report", FOLDER / "inspect_ai/large.json")["runs"]
    assert [(r["run"], r["metric"]) for r in runs] == [
        ("mockllm/large", "match"),
        ("mockllm/large", "includes"),
    ]
    for run in runs:
        assert (run["items"], run["repeats"], run["abstained"], run["errors"]) == (12, 2, 2, 2)
        assert run["interval"]["low"] <= run["score"] <= run["interval"]["high"]
        assert run["settings_known"]
    english = call("report", FOLDER / "inspect_ai/broken.eval").stdout
    assert "mockllm/broken is unfinished: its status is error" in english
    chinese = call("report", FOLDER / "inspect_ai/broken.eval", "--lang", "zh").stdout
    assert "未完成" in chinese and "得分" in chinese


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("report", "absent.jsonl"), ("absent.jsonl", "no such file")),
        (("compare", "{one}", "absent.csv"), ("absent.csv", "no such file")),
        (("report", "{one}", "--format", "lmeval"), ("--format", "did you mean 'lm-eval'")),
        (("report", "{one}", "--metric", "scoer"), ("one.csv", "'scoer'", "'score'")),
        (("compare", "{one}"), ("only one run", "assay report FILE")),
        (("compare", "{one}", "{one}"), ("itself",)),
        (("compare", "{one}", "{fewer}"), ("other items", "20 and 3, 3 of them shared")),
        (("compare", "{one}", "{none}"), ("20 and 2, 0 of them shared",)),
        (("compare", "{one}", "{words}"), ("words.csv:2", "score", "not a number")),
        (("compare", "{one}", "{stranger}"), ("stranger.json", "no known format", "--format")),
        (("compare", "{two}", "--control", "bsae"), ("--control", "'bsae'", "'base'")),
        (("compare", "{two}@bsae", "{one}"), ("two.csv", "'bsae'", "'base'")),
        (("compare", "{small}", "{large}"), ("2 metrics", "exact_match,strict-match", "--metric")),
        (("compare", "{broken}", "{inspect}", "--metric", "match"), ("unfinished", "error")),
    ],
)
def test_bad_input_ends_in_one_line(tmp_path: Path, arguments: tuple[str, ...], words: tuple):
    files = {
        "one": table(tmp_path, "one.csv", tuned=TUNED),
        "two": table(tmp_path, "two.csv", base=BASE, tuned=TUNED),
        "fewer": table(tmp_path, "fewer.csv", fewer=[1, 0, 1]),
        "none": tmp_path / "none.csv",
        "words": table(tmp_path, "words.csv", words=["good"]),
        "stranger": tmp_path / "stranger.json",
        "small": lm_eval("sums-small"),
        "large": lm_eval("sums-large"),
        "broken": FOLDER / "inspect_ai/broken.eval",
        "inspect": FOLDER / "inspect_ai/small.eval",
    }
    files["none"].write_text("item,score\nx,1\ny,0\n")
    files["stranger"].write_text('{"loss": 1}')
    assert_one_line(call(*(word.format(**files) for word in arguments)), *words)


def test_a_damaged_file_is_named_and_the_others_are_still_compared(tmp_path: Path):
    folder = copied("trl/completions", tmp_path)
    first, second = sorted(folder.iterdir())
    third = folder / "completions_00003.parquet"
    third.write_bytes(second.read_bytes()[:2000])
    shown = call("compare", first, third, second, "--metric", "short")
    assert_one_line(shown, "completions_00003.parquet", "damaged parquet")
    assert "completions_00001" in shown.stdout and "completions_00002" in shown.stdout
    alone = call("compare", first, third, "--metric", "short")
    assert_one_line(alone, "completions_00003.parquet", "damaged parquet")
    assert not alone.stdout
    control = call("compare", third, first, second, "--metric", "short")
    assert_one_line(control, "completions_00003.parquet")
    assert not control.stdout


def test_a_table_of_bfcl_is_shown_with_what_was_not_run_and_without_the_average_over_it(
    tmp_path: Path,
):
    file = tmp_path / "data_multi_turn.csv"
    head = "Rank,Model,Multi Turn Overall Acc,Base,Miss Func,Miss Param,Long Context"
    file.write_text(f"{head}\n1,thinking,15.00%,60.00%,N/A,N/A,N/A")
    shown = call("report", file).stdout
    assert "60.0%" in shown and "53.1% to 66.5%" in shown and "15.0%" not in shown
    assert "counts categories that were not run as 0 there: Multi Turn Overall Acc" in shown


def rollouts(folder: Path, name: str, rewards: list[int]) -> Path:
    """A file that no reader knows."""
    rows = [{"example_id": n, "info": {"cost": r}} for n, r in enumerate(rewards)]
    file = folder / name
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_files_of_any_tool_are_compared_and_reported_by_their_columns(tmp_path: Path):
    files = [rollouts(tmp_path, f"{n}.jsonl", s) for n, s in (("base", BASE), ("tuned", TUNED))]
    columns = ("--item", "example_id", "--score", "info.cost")
    assert_one_line(call("compare", *files), "--item and --score")
    line = result("compare", *files, *columns)["lines"][1]
    assert line["to_control"]["comparison"]["verdict"] == "worse"
    higher = result("compare", *files, *columns, "--higher-is-better")["lines"][1]
    assert higher["to_control"]["comparison"]["verdict"] == "better"
    (run,) = result("report", files[1], *columns)["runs"]
    assert (run["run"], run["metric"], run["score"]) == ("tuned", "info.cost", 0.45)
    assert_one_line(call("compare", *files, "--item", "example_id"), "--score")


def test_the_lab_knows_which_way_its_own_rewards_go():
    assert_one_line(call("compare", "a", "b", "--lower-is-better"), "--higher-is-better")


def test_a_contradiction_ends_with_exit_code_2_in_compare_and_report(tmp_path: Path):
    folder = copied("lm_eval/sums-small", tmp_path)
    (log,) = folder.glob("results_*.json")
    log.write_text(log.read_text().replace(f'"{STRICT[1]}": 0.1', f'"{STRICT[1]}": 0.4'))
    files = next(folder.glob("samples_sums_2*")), lm_eval("sums-large")
    for command in (("compare", *files), ("report", files[0])):
        found = call(*command, *STRICT, "--json")
        assert found.exit_code == 2
        (told,) = [f for f in answer(found)["findings"] if f["severity"] == "error"]
        assert f"results.sums.{STRICT[1]} is 0.466667, by the rows 0.166667" in told["evidence"]
        assert log.name in told["evidence"]
    assert call("report", files[1], *STRICT).exit_code == 0
