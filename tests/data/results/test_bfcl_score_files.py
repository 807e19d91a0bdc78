"""BFCL's files: what the score file leaves out is in the result file, and the two must agree."""

import json
from pathlib import Path

import pytest

from assay.data.loaded import DataError
from assay.data.results.bfcl_files import source_of
from assay.data.results.readers import read_results
from tests.data.results.produced import FOLDER, copied

NAME = "non_live/BFCL_v4_simple_python"


@pytest.mark.parametrize("model", ["small", "large"])
def test_scores_are_those_that_bfcl_counted_whichever_of_the_two_files_is_named(model: str):
    score, result = (
        FOLDER / "bfcl" / kind / model / f"{NAME}_{kind}.json" for kind in ("score", "result")
    )
    header = json.loads(score.read_text().splitlines()[0])
    (first,), (second,) = read_results(score), read_results(result)
    assert first == second
    assert (first.run, first.benchmark) == (model, "BFCL_v4_simple_python")
    right = [answer for answer in first.answers if answer.score == 1]
    assert (len(right), len(first.answers)) == (header["correct_count"], header["total_count"])


def pair(folder: Path) -> tuple[Path, Path]:
    root = copied("bfcl", folder)
    return (
        root / "score/small" / f"{NAME}_score.json",
        root / "result/small" / f"{NAME}_result.json",
    )


def test_a_score_file_without_its_result_file_says_where_to_put_it(tmp_path: Path):
    score, result = pair(tmp_path)
    result.unlink()
    with pytest.raises(
        DataError, match=r"_score\.json: the result file is missing .*_result\.json"
    ):
        read_results(score)


def test_results_that_were_generated_again_are_refused(tmp_path: Path):
    score, result = pair(tmp_path)
    lines = result.read_text().splitlines()
    result.write_text("\n".join(lines[:-1]) + "\n")
    with pytest.raises(DataError, match=r"\d+ answers|does not occur"):
        read_results(score)
    wrong = json.loads(score.read_text().splitlines()[1])["id"]
    result.write_text("\n".join(lines).replace(f'"{wrong}"', '"simple_python_99"') + "\n")
    with pytest.raises(DataError, match=rf"score\.json:2: id: '{wrong}' does not occur"):
        read_results(score)


@pytest.mark.parametrize(
    ("item", "source"),
    [
        ("multi_turn_base_17", "multi_turn_17"),
        ("multi_turn_long_context_170", "multi_turn_170"),
        ("live_simple_3-2-0", "live_simple-2"),
        ("simple_python_3", "simple_python_3"),
    ],
)
def test_entries_made_from_one_scene_or_one_function_doc_are_one_cluster(item: str, source: str):
    assert source_of(item) == source


def renumbered(score: Path, change) -> None:
    header, *lines = score.read_text().splitlines()
    rows = [change(n, json.loads(line)) for n, line in enumerate(lines, 1)]
    score.write_text("\n".join([header, *map(json.dumps, rows)]) + "\n")


def test_lines_that_are_counted_from_1_go_by_the_id_in_their_prompt(tmp_path: Path):
    score, result = pair(tmp_path)
    before = read_results(score)
    for number in (int, str):
        renumbered(score, lambda n, row, kind=number: row | {"id": kind(n)})
        assert read_results(score) == before
        # Items that are called as lines are counted would otherwise get a neighbour's mark.
    result.write_text(result.read_text().replace("simple_python_", ""))
    renumbered(score, lambda n, row: row | {"prompt": {"id": row["prompt"]["id"].split("_")[-1]}})
    wrong = [a.item for a in before[0].answers if a.score == 0]
    assert [a.item for a in read_results(score)[0].answers if a.score == 0] == [
        item.removeprefix("simple_python_") for item in wrong
    ]


def test_a_wrong_answer_without_a_sure_item_is_refused(tmp_path: Path):
    score, _ = pair(tmp_path)
    renumbered(score, lambda n, row: {**row, "id": n, "prompt": "text"})
    with pytest.raises(DataError, match=r"score\.json:2: id: 1 may be the number of a line"):
        read_results(score)
    score, _ = pair(tmp_path / "two")
    renumbered(score, lambda n, row: {**row, "prompt": {"id": "simple_python_11"}})
    with pytest.raises(DataError, match=r"but prompt\.id 'simple_python_11'"):
        read_results(score)
