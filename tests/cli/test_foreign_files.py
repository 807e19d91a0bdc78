"""`assay compare` and `assay report` on files that other tools wrote, as a user calls them."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import answer, assert_one_line, call
from tests.data.results.produced import FOLDER, copied

LM_EVAL = "lm_eval/{}/samples_sums_2*.jsonl"
BFCL = "bfcl/score/{}/non_live/BFCL_v4_simple_python_score.json"
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
        (BFCL.format("small"), BFCL.format("large"), None, True),
    ],
    ids=["lm-eval", "bfcl"],
)
def test_two_files_of_every_tool_are_judged(
    first: Path | str, second: Path | str, metric: str | None, unknown: bool
):
    allow = ("--allow", "model_args") if metric == STRICT[1] else ()
    by = ("--metric", metric) if metric else ()
    found = whole("compare", FOLDER / first, FOLDER / second, *by, *allow)
    lines = found["result"]["lines"]
    alone = result("compare", FOLDER / first, *by)
    assert [line["score"] for line in alone["lines"]] == [lines[0]["score"]]
    comparison = lines[1]["to_control"]["comparison"]
    assert comparison["verdict"] in ("better", "worse", "undecided", "equivalent")
    assert comparison["difference"] == pytest.approx(lines[1]["score"] - lines[0]["score"])
    assert ("settings unknown" in marks(found)) is unknown
    parts = {name: part["kind"] for name, part in found["result"]["parts"].items()}
    assert parts["base weights"] == ("unknown" if unknown else "tested")
    assert parts["checker"] == ("unknown" if unknown else "same")
    assert parts["items"] == "same" and parts["data"] == parts["reward"] == "unknown"
    assert 0 <= lines[1]["to_control"]["agreement"] <= 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("report", "{one}"), ("one.csv", "assay compare")),
        (("compare", "{one}", "absent.csv"), ("absent.csv", "no such file")),
        (("compare", "{one}", "--fail-on", "worse"), ("--fail-on", "no run was compared")),
        (("compare", "{one}", "{one}"), ("itself",)),
        (("compare", "{one}", "{fewer}"), ("other items", "20 and 3, 3 of them shared")),
        (("compare", "{one}", "{words}"), ("words.csv:2", "score", "not a number")),
        (("compare", "{one}", "{stranger}"), ("stranger.json", "no known format", "--item")),
        (("compare", "{two}", "--control", "bsae"), ("--control", "'bsae'", "'base'")),
        (("compare", "{small}", "{large}"), ("2 metrics", "exact_match,strict-match", "--metric")),
        (("compare", "{broken}", "{inspect}", "--metric", "match"), ("unfinished", "error")),
    ],
)
def test_bad_input_ends_in_one_line(tmp_path: Path, arguments: tuple[str, ...], words: tuple):
    files = {
        "one": table(tmp_path, "one.csv", tuned=TUNED),
        "two": table(tmp_path, "two.csv", base=BASE, tuned=TUNED),
        "fewer": table(tmp_path, "fewer.csv", fewer=[1, 0, 1]),
        "words": table(tmp_path, "words.csv", words=["good"]),
        "stranger": tmp_path / "stranger.json",
        "small": lm_eval("sums-small"),
        "large": lm_eval("sums-large"),
        "broken": FOLDER / "inspect_ai/broken.eval",
        "inspect": FOLDER / "inspect_ai/small.eval",
    }
    files["stranger"].write_text('{"loss": 1}')
    assert_one_line(call(*(word.format(**files) for word in arguments)), *words)


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
    (run,) = result("compare", files[1], *columns)["lines"]
    assert (run["checkpoint"], run["score"]) == ("tuned", 0.45)
    assert_one_line(call("compare", *files, "--item", "example_id"), "--score")


def test_files_of_a_folder_above_keep_their_names(tmp_path: Path, monkeypatch, lab: Path):
    for folder, scores in (("one", BASE), ("two", TUNED), ("here", BASE)):
        (tmp_path / folder).mkdir()
        table(tmp_path / folder, "x.csv", x=scores)
    monkeypatch.chdir(tmp_path / "here")
    shown = result("compare", "../one/x.csv", "../two/x.csv")
    assert [each["checkpoint"] for each in shown["lines"]] == ["../one/x.csv@x", "../two/x.csv@x"]
    assert Path(shown["page"]).name == "two-x-csv-x-vs-one-x-csv-x-on-score.html"


def test_the_lab_knows_which_way_its_own_rewards_go():
    assert_one_line(call("compare", "a", "b", "--lower-is-better"), "--higher-is-better")


def test_a_contradiction_ends_with_exit_code_2_in_compare_and_report(tmp_path: Path):
    folder = copied("lm_eval/sums-small", tmp_path)
    (log,) = folder.glob("results_*.json")
    log.write_text(log.read_text().replace(f'"{STRICT[1]}": 0.1', f'"{STRICT[1]}": 0.4'))
    files = next(folder.glob("samples_sums_2*")), lm_eval("sums-large")
    for command in (("compare", *files), ("compare", files[0])):
        found = call(*command, *STRICT, "--json")
        assert found.exit_code == 2
        (told,) = [f for f in answer(found)["findings"] if f["severity"] == "error"]
        assert f"results.sums.{STRICT[1]} is 0.466667, by the rows 0.166667" in told["evidence"]
        assert log.name in told["evidence"]
    assert call("compare", files[1], *STRICT).exit_code == 0
