"""A run whose queries do not have pools of their own is refused before it starts."""

from dataclasses import replace

import pytest

from assay.errors import Finding
from assay.lab.check.subject import Number
from assay.labs.demos.checks import pools_at
from assay.labs.demos.demonstrations import Query
from assay.labs.demos.pools import POOL_OPTIONS, with_pools
from tests.cli.conftest import answer, assert_one_line, call
from tests.labs.demos.helped_lab import make_helped_lab
from tests.labs.demos.made_sets import asked, queries, shown

ROWS = with_pools(shown(40), queries(12), {**POOL_OPTIONS, "pool": 6, "shots": 2})


def planted(pool) -> list:
    return [replace(row, extra={**row.extra, "pool": list(pool(row))}) for row in ROWS]


def found(rows) -> tuple[dict, list[Finding]]:
    seen = list(pools_at("data.train", rows))
    numbers = {each.name: each.value for each in seen if isinstance(each, Number)}
    return numbers, [each for each in seen if isinstance(each, Finding)]


def test_pools_of_their_own_are_counted_and_nothing_is_found():
    numbers, findings = found(ROWS)
    assert numbers["pool_demonstrations"] == 6 and numbers["different_pools"] == 12
    assert 0.8 < numbers["pools_with_a_right_answer"] <= 1
    assert not findings


def test_the_first_rows_as_the_pool_of_all_are_an_error():
    """Also in another order for each query."""
    for rows in (
        planted(lambda row: range(2)),
        planted(lambda row: [0, 1][:: 1 - 2 * (len(row.id) % 2)]),
    ):
        (finding,) = [each for each in found(rows)[1] if each.severity == "error"]
        assert "all queries pick from the same pool" in finding.what


@pytest.mark.parametrize("wrong", [40, -1, "3"])
def test_a_number_out_of_range_is_an_error(wrong):
    _, (finding,) = found(planted(lambda row: [*row.extra["pool"][:5], wrong]))
    assert "names a demonstration that there is not" in finding.what
    assert "12 of 12" in finding.evidence


def test_a_query_in_its_own_pool_is_an_error_by_id_and_by_words():
    own = shown(40)
    by_id = with_pools(
        own, [Query("other", asked("wants 0"), ("a",))], {**POOL_OPTIONS, "shots": 1}
    )
    (row,) = by_id
    number = row.extra["pool"][0]
    same_id = replace(row, id=f"d{number}")
    same_words = replace(row, messages=(asked(f"ASKS  {number}"),))
    for each in (same_id, same_words):
        assert [f.what for f in found([each])[1]] == ["data.train: a query is in its own pool"]
    assert not found([row])[1]


def test_pools_without_right_answers_are_warned_of():
    rows = [replace(row, extra={**row.extra, "answers": ["z"]}) for row in ROWS]
    numbers, (finding,) = found(rows)
    assert numbers["pools_with_a_right_answer"] == 0 and finding.severity == "warning"


def test_a_run_on_the_first_rows_is_refused_and_leaves_nothing(tmp_path, monkeypatch):
    file = make_helped_lab(tmp_path)
    text = file.read_text().replace("selector:oracle", "selector:random")
    sound = call(
        "check", file, "--lab", tmp_path, "--set", "model.policy=selector:random", "--json"
    )
    assert answer(sound)["result"]["counts"]["error"] == 0, sound.output
    file.write_text(text.replace("helped/test", "helped/first"))
    assert_one_line(call("run", file, "--lab", tmp_path), "all queries pick from the same pool")
    assert not (tmp_path / "runs").exists()
