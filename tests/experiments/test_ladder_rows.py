"""The rows that the ladders of demonstrations and of workflows draw from the files beside them."""

import json
from dataclasses import asdict
from functools import cache

import pytest

from assay.data.hashing import sha256_text
from assay.data.row import Row
from assay.errors import InputError
from assay.tasks.demos.demonstrations import POOL, set_of
from assay.tasks.demos.pools import right_answers
from assay.tasks.demos.task import TASK as DEMOS
from assay.tasks.task import BenchmarkOptions, benchmark, read_source, task
from assay.tasks.workflows.programs.validate import validate
from assay.tasks.workflows.task import TASK as WORKFLOWS
from tests.experiments.files import ROOT, shipped

FILES = {
    "verbs": "demos/verbs.py",
    "subjects": "demos/subjects.py",
    "workflows": "workflows/problems.py",
}
TWO = {"operators": ["Custom", "Programmer"]}
TESTED = {"sources": [f"{name}:test" for name in ("arithmetic", "calendar", "order", "asdiv")]}
TESTED |= {"rows": 60, "price": 24000.0, **TWO}
DRAWN = {
    ("verbs", "verbs:train", '{"pool": 8, "shots": 2}'): "e128c8529c3f",
    ("verbs", "verbs:train", '{"pool": 8, "shots": 2, "each": 6}'): "6c40ac2ad187",
    ("verbs", "demos/verbs", '{"pool": 8, "shots": 2}'): "af8a91772120",
    ("workflows", "executor:asdiv", "{}"): "40987fb4e183",
    ("workflows", "executor:generated", "{}"): "12b53e58eafa",
    ("workflows", "order:rl", json.dumps(TWO)): "0caa8a0d6fce",
    ("workflows", "asdiv:dev", json.dumps(TWO)): "285bbc2b3b9b",
    ("workflows", "calendar:rl", json.dumps({**TWO, "programs": 4})): "3ee9ee53bee6",
    ("workflows", "workflows/problems", json.dumps(TESTED)): "609706ce75bd",
}
"""sha256 of the rows by file, source or benchmark, and options, as the results were made with."""


@cache
def rows_of(file: str, name: str, options: str) -> tuple[Row, ...]:
    chosen = BenchmarkOptions(json.loads(options), ROOT)
    own = task(f"path:experiments/{FILES[file]}", ROOT)
    scheme, _, side = name.partition(":")
    return (
        read_source(own, scheme, side, chosen).rows if side else benchmark(own, name, chosen).items
    )


@pytest.mark.parametrize("drawn", DRAWN, ids=lambda each: f"{each[1]} {each[2]}")
def test_the_ladders_rows_are_those_of_their_results(drawn: tuple[str, str, str]) -> None:
    lines = [
        json.dumps(asdict(row), sort_keys=True, default=str, ensure_ascii=False)
        for row in rows_of(*drawn)
    ]
    assert sha256_text("\n".join(lines))[:12] == DRAWN[drawn]


@pytest.mark.parametrize("side", ["train", "dev", "test"])
def test_no_pool_has_a_querys_answer_its_verb_or_its_desk(side: str) -> None:
    for row in rows_of("verbs", f"verbs:{side}", '{"pool": 16}'):
        shown = [set_of(row).demonstrations[number] for number in row.extra[POOL]]
        desk = row.prompt[0].content.rpartition("Desk: ")[2]
        assert not right_answers(row)
        assert row.id.split("-")[1] not in {each.id.split("-")[1] for each in shown}
        assert desk not in {each.asked.content.rpartition("Desk: ")[2] for each in shown}


def test_every_generated_program_of_the_warm_up_is_valid() -> None:
    """Of each strategy and type of problem."""
    warm_up = shipped("workflows/warm_up.py")
    for kind, names in warm_up.STRATEGIES.items():
        drawn = warm_up.draw_programs(kind, 3 * len(names), warm_up.random.Random(1))
        assert {each.strategy for each in drawn} == set(names)
        assert not any(validate(each.source, code_problem=kind == "code") for each in drawn)


def test_what_a_lab_once_brought_is_named_with_its_file() -> None:
    for own, scheme in ((DEMOS, "verbs"), (DEMOS, "easy-vqa"), (WORKFLOWS, "arithmetic")):
        with pytest.raises(InputError, match=r"is no longer built in: experiments/\w+/\w+\.py"):
            read_source(own, scheme, "train", BenchmarkOptions())
    with pytest.raises(InputError, match=r"path:experiments/demos/verbs\.py"):
        benchmark(DEMOS, "demos/verbs", BenchmarkOptions({"pool": 8}))


def test_the_cost_curve_chooses_on_training_problems_and_is_shown_on_the_test() -> None:
    curve = shipped("workflows/cost_curve.py")
    kinds = ("sums/1", "sums/2")
    cheap = curve.Measured(kinds, curve.np.array([1.0, 0.0]), curve.np.array([1.0, 1.0]))
    dear = curve.Measured(kinds, curve.np.array([1.0, 1.0]), curve.np.array([4.0, 4.0]))
    arms = {"cheap": cheap, "dear": dear}
    points = {(p.name, p.price): p for p in curve.curve(arms, arms, {}, (0.0, 0.1, 0.2))}
    assert points["best fixed", 0.0].table == {"*": "dear"}
    assert points["best fixed", 0.2].table == {"*": "cheap"}
    routed = points["router by topic and level", 0.1]
    assert routed.table == {"sums/1": "cheap", "sums/2": "dear"}
    assert (routed.solved, routed.cost, routed.net) == pytest.approx((1.0, 2.5, 0.75))
