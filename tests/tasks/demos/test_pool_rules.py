"""Rules about pools: one for all queries, none with the right answer."""

from assay.data.row import Message
from assay.tasks.demos.demonstrations import Demonstration, DemonstrationSet, Query, query_row
from assay.tasks.demos.rules import few_used, one_pool, right_answer_in_pool
from tests.lab.improve.evidence_of import evidence, measured, stage

DEMONSTRATIONS = DemonstrationSet(
    "letters",
    "",
    tuple(Demonstration(str(n), Message("user", f"{n}?"), "ABCD"[n % 4]) for n in range(40)),
)
"""Number n has the answer "ABCD"[n % 4]."""


def rows(pools, answer="A"):
    queries = [Query(f"q{n}", Message("user", "?"), (answer,)) for n in range(len(pools))]
    made = [query_row(DEMONSTRATIONS, q, p, 1) for q, p in zip(queries, pools, strict=True)]
    return {row.id: row for row in made}


OWN = [[n, n + 7, n + 14] for n in range(20)]
SHARED = [[0, 1]] * 20
HOLDS, LACKS = [0, 1, 2], [1, 2, 3]


def test_a_pool_of_the_first_rows_for_every_query_is_named():
    """The reports' inference: the first K rows of the training set, K = 2."""
    (found,) = one_pool(evidence(stage(), rows={"train": rows(SHARED)}))
    figures = {"queries": "20", "union": "2", "size": "2"}
    assert found.evidence[0].figures == figures and found.stake.share == 1
    assert (found.aim, found.about) == ("correct", "data.train")


def test_pools_of_their_own_are_left_alone_and_an_order_makes_no_other_pool():
    assert not [*one_pool(evidence(stage(), rows={"train": rows(OWN)}))]
    assert [*one_pool(evidence(stage(), rows={"train": rows([[0, 1], [1, 0]])}))]


HALF = [1.0, 0.0] * 10


def test_two_demonstrations_for_fifty_queries_are_named_from_the_records_alone():
    picks = [[n % 2] for n in range(20)]
    made = measured(
        {"base": HALF, "rl.step-000004": HALF}, {"base": picks, "rl.step-000004": picks}
    )
    (found,) = few_used(evidence(stage(), measured=[made]))
    assert found.evidence[0].figures == {"distinct": "2", "queries": "20", "shots": "1"}
    varied = {name: [[n] for n in range(20)] for name in made.arms}
    sound = measured({"base": HALF, "rl.step-000004": HALF}, varied)
    assert not [*few_used(evidence(stage(), measured=[sound]))]


def asked(pools, values):
    """An evaluation of rows with these pools whose answers are selections."""
    picks = {"base": [pool[:1] for pool in pools]}
    return measured({"base": values}, picks, name="train.dev"), {"train": rows(pools)}


def test_pools_without_the_right_answer_are_worth_what_their_queries_score_less():
    pools = [HOLDS] * 20 + [LACKS] * 20
    values = [*[1.0] * 18, 0.0, 0.0, *[1.0] * 4, *[0.0] * 16]
    made, data = asked(pools, values)
    (found,) = right_answer_in_pool(evidence(stage(), measured=[made], rows=data))
    figures = found.evidence[0].figures
    assert (figures["lacking"], figures["queries"], figures["size"]) == ("20", "40", "3")
    assert (figures["with"], figures["without"]) == ("90.0%", "20.0%")
    assert abs(found.stake.share - 0.7 * 0.5) < 1e-9 and found.stake.at_most


def test_a_pool_that_makes_no_difference_is_no_reason_to_enlarge_it():
    made, data = asked([HOLDS, LACKS] * 20, [1.0, 1.0, 0.0, 0.0] * 10)
    assert not [*right_answer_in_pool(evidence(stage(), measured=[made], rows=data))]
    made, data = asked([HOLDS] * 40, HALF * 2)
    assert not [*right_answer_in_pool(evidence(stage(), measured=[made], rows=data))]
