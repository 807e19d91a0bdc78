"""Verbs in the form that a desk wants: no demonstration has a query's answer, desk or verb."""

from collections import Counter
from dataclasses import replace

import pytest

from assay.errors import InputError
from assay.tasks.demos.demonstrations import POOL, DemonstrationSet, keep, set_of
from assay.tasks.demos.pools import right_answers
from assay.tasks.demos.verbs import (
    DESKS,
    FORMS,
    PEOPLE,
    SIDES,
    VERBS,
    demonstrations,
    past_of,
    read_verbs,
    verb_queries,
)
from assay.tasks.task import BenchmarkOptions


def rows_of(side: str, **options):
    return read_verbs(side, BenchmarkOptions(options)).rows


def desk_of(text: str) -> str:
    return text.rpartition("Desk: ")[2]


@pytest.mark.parametrize("side", SIDES)
def test_no_pool_has_a_querys_answer_its_verb_or_its_desk(side: str) -> None:
    for row in rows_of(side, pool=16):
        shown = [set_of(row).demonstrations[number] for number in row.extra[POOL]]
        verb = row.id.split("-")[1]
        assert not right_answers(row)
        assert verb not in {each.id.split("-")[1] for each in shown}
        assert desk_of(row.prompt[0].content) not in {desk_of(d.asked.content) for d in shown}


def test_more_questions_of_each_verb_come_behind_the_first_and_none_is_asked_twice() -> None:
    first, more = rows_of("train"), rows_of("train", each=6)
    assert more[: len(first)] == first and len(more) > 5 * len(first)
    assert (
        len({row.prompt[0].content for row in more}) == len({row.id for row in more}) == len(more)
    )
    assert {row.conversation for row in more} == {row.conversation for row in first}


@pytest.mark.parametrize("each", [0, "two"])
def test_no_questions_of_a_verb_are_refused(each: object) -> None:
    with pytest.raises(InputError, match=r"options\.each"):
        rows_of("train", each=each)


def test_an_answer_that_is_put_into_a_pool_is_found() -> None:
    (row, *_) = rows_of("test")
    planted = replace(demonstrations().demonstrations[0], id="planted", answer=row.gold[0])
    every = (*demonstrations().demonstrations, planted)
    keeping = keep(DemonstrationSet("planted", "", every))
    pool = [len(every) - 1, *row.extra[POOL][1:]]
    changed = replace(row, extra={**row.extra, "demonstrations": keeping, POOL: pool})
    assert right_answers(changed) == [len(every) - 1]


def test_sides_share_no_verb_and_a_desk_wants_one_form() -> None:
    verbs = Counter(past_of(entry)[0] for entries in VERBS.values() for entry in entries)
    desks = Counter(desk for sides in DESKS.values() for side in sides for desk in side)
    assert set(verbs.values()) == set(desks.values()) == {1}


@pytest.mark.parametrize(
    ("entry", "past"),
    [
        ("walk", "walked"),
        ("bake", "baked"),
        ("agree", "agreed"),
        ("study", "studied"),
        ("obey", "obeyed"),
        ("stop:stopped", "stopped"),
        ("teach:taught", "taught"),
    ],
)
def test_the_past_is_spelt_as_the_rules_say_or_as_it_is_written(entry: str, past: str) -> None:
    assert past_of(entry) == (entry.partition(":")[0], past)


@pytest.mark.parametrize("side", SIDES)
def test_every_verb_is_asked_in_every_form_by_a_desk_that_wants_it(side: str) -> None:
    expected = {"past": "{1}", "future": "will {0}", "chance": "may {0}"}
    forms = [entry for entry in map(past_of, VERBS[side]) for _ in FORMS]
    for query, pair in zip(verb_queries(side), forms, strict=True):
        form = query.id.rpartition("-")[2]
        person, _, rest = query.asked.content.partition(": ")
        pronoun, _, said = query.answers[0].partition(" ")
        assert said == expected[form].format(*pair)
        assert person in PEOPLE[pronoun] and rest.startswith(f"{pair[0]}. Desk: ")
        assert desk_of(rest) in DESKS[form][0]


def test_who_and_which_desk_do_not_follow_from_the_form() -> None:
    """All 3 x 3 pairs of a form and a pronoun are asked, and every desk of queries."""
    asked = verb_queries("train")
    pairs = Counter((q.id.rpartition("-")[2], q.answers[0].split()[0]) for q in asked)
    desks = Counter(desk_of(q.asked.content) for q in asked)
    assert len(pairs) == len(FORMS) * len(PEOPLE) and min(pairs.values()) > 20
    assert len(desks) == 9 and min(desks.values()) > 20


def test_another_side_is_named_with_those_that_exist() -> None:
    with pytest.raises(InputError, match="side of verbs"):
        rows_of("shown")
