"""Files of stored selections are read by what their pointers mean, or refused by file, query and
field; what is written is read back.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from assay.data.row import Message
from assay.errors import InputError
from assay.labs.demos.demonstrations import Demonstration, DemonstrationSet, Query, query_row
from assay.labs.demos.outcomes import Accuracy
from assay.labs.demos.selection_file import (
    SelectionFile,
    file_text,
    query_entry,
    read_selection_file,
)

POOL = [40, 7, 93, 12]


def candidate(**changes: Any) -> dict[str, Any]:
    """A candidate as Lever-Plus writes it for a pool: (7, 12)."""
    return {
        "pointer": [1, 3],
        "pointer_pos": [1, 3],
        "pointer_global": [7, 12],
        "gen_method": "beam",
        "beam_rank": 0,
        "beam_score": -1.25,
        "logprob_score": -1.25,
        "temperature": None,
        "vqa_raw_generation": "cat.",
        "vqa_pred_answer": "cat",
        "vqa_correct": 1,
        "vqa_acc_score": 0.6,
        "vqa_gt_prob": 0.31,
        "vqa_rel_token_f1": 1.0,
        "vqa_rel_edit_sim": 1.0,
        "vqa_rel_score": 1.0,
        "vqa_eval_mode": "vqaEval",
        "eval_split_used": "train",
        "eval_failed": False,
        **changes,
    }


def without(entry: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key not in names}


def of_global_pointers(**changes: Any) -> dict[str, Any]:
    """A candidate of the files without pools, whose pointers are numbers of demonstrations."""
    return without(candidate(pointer=[7, 12], **changes), "pointer_global", "pointer_pos")


def content(*candidates: dict[str, Any], pool: list[int] | None = POOL) -> dict[str, Any]:
    query = {"query_id": 3, "question_id": 2971475, "image_id": 5, "question": "what animal?"}
    entry = {"query": query, "pointer_candidates": list(candidates)}
    return {"3": entry if pool is None else {**entry, "candidate_pool_ids": pool}, "_meta": {}}


def read(folder: Path, written: Any) -> SelectionFile:
    file = folder / "rl_data.json"
    file.write_text(written if isinstance(written, str) else json.dumps(written))
    return read_selection_file(file)


@pytest.mark.parametrize(
    ("given", "pool"),
    [
        (candidate(), POOL),
        (without(candidate(), "pointer_pos"), POOL),
        (of_global_pointers(), POOL),
        (of_global_pointers(), None),
        (of_global_pointers() | {"pointer_pos": [1, 3]}, POOL),
        (of_global_pointers() | {"pointer_pos": [400, 12]}, None),
        (candidate(pointer_pos=[400, 12]), POOL),
    ],
    ids=[
        *("places and numbers", "no positions", "numbers", "no pool", "numbers and positions"),
        *("positions in a pool that was not kept", "positions before the pools were made anew"),
    ],
)
def test_every_convention_means_the_same_demonstrations(tmp_path, given, pool):
    (query,) = read(tmp_path, content(given, pool=pool)).queries
    assert query.number == 3 and query.question_id == "2971475"
    assert query.pool == (None if pool is None else tuple(POOL))
    (found,) = query.candidates
    assert found.picks == (7, 12)
    assert found.outcome.accuracy == Accuracy(0.6)
    assert (found.outcome.gold_probability, found.outcome.relevance) == (0.31, 1.0)


FAULTS = {
    "out of range": (candidate(pointer=[1, 4]), "pointer: 4 is out of range: the pool holds 4"),
    "other": (candidate(pointer=[1, 2]), r"pointer: means the demonstrations \[7, 93\], and"),
    "none": (without(candidate(), "pointer"), "pointer: is no list"),
    "mode": (candidate(vqa_eval_mode="strict"), "vqa_eval_mode: 'strict' is none of"),
    "score": (candidate(vqa_acc_score=60.0), "vqa_acc_score: 60 is not between 0 and 1"),
    "no score": (without(candidate(), "vqa_acc_score"), "vqa_acc_score: missing"),
    "half": (candidate(vqa_correct=0, vqa_acc_score=0.3), "1 is every score above 0"),
    "number": (candidate(vqa_gt_prob="0.3"), "vqa_gt_prob: '0.3' is no number"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_line_with_file_query_and_field(tmp_path, fault):
    given, said = FAULTS[fault]
    with pytest.raises(InputError, match=said) as refused:
        read(tmp_path, content(candidate(), given))
    message = str(refused.value)
    assert "rl_data.json: query 3: pointer_candidates[1]" in message and "\n" not in message


def test_places_that_are_given_as_numbers_are_refused(tmp_path):
    with pytest.raises(InputError, match="1 is not in candidate_pool_ids"):
        read(tmp_path, content(of_global_pointers() | {"pointer": [1, 3]}))


def test_mixed_conventions_are_refused_with_the_two_queries(tmp_path):
    written = content(candidate())
    written["8"] = content(of_global_pointers())["3"]
    with pytest.raises(InputError, match=r"mixed index conventions.*query 3 has"):
        read(tmp_path, written)
    written = {"1": content(of_global_pointers())["3"], "2": content(candidate())["3"]}
    with pytest.raises(InputError, match=r"query 2.*mixed index conventions"):
        read(tmp_path, written)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("[1, 2]", "is no object of queries"),
        ('{"_meta": {}}', "holds no query"),
        ('{"1": []}', "query 1: is no object"),
    ],
)
def test_what_is_no_file_of_selections_is_refused(tmp_path, written, said):
    with pytest.raises(InputError, match=said):
        read(tmp_path, written)


@pytest.mark.parametrize(
    ("changes", "mode"),
    [
        ({"vqa_eval_mode": "train"}, "official"),
        ({"vqa_eval_mode": "simple_match"}, "fallback"),
        ({"vqa_eval_mode": "vqaEval", "eval_failed": True}, "error"),
        ({"vqa_eval_mode": None, "eval_split_used": "fallback"}, "fallback"),
    ],
)
def test_what_scored_an_answer_is_known_whichever_script_wrote_it(tmp_path, changes, mode):
    (query,) = read(tmp_path, content(candidate(**changes))).queries
    assert query.candidates[0].outcome.accuracy.mode == mode


def test_a_written_file_gives_the_candidates_again(tmp_path):
    first = read(tmp_path, content(candidate()))
    shown = tuple(Demonstration(str(n), Message("user", f"q{n}"), "a") for n in range(100))
    query = Query("2971475", Message("user", "what animal?"), ("cat",))
    row = query_row(DemonstrationSet("animals", "", shown), query, POOL, 2)
    entry = query_entry(row, 3, first.queries[0].candidates)
    assert entry["candidate_pool_ids"] == POOL
    assert [each["pointer"] for each in entry["pointer_candidates"]] == [[1, 3]]
    assert entry["query"]["gt_answers_raw"] == ["cat"]
    again = read(tmp_path, file_text({3: entry}, {}))
    assert again.queries == first.queries
