"""A router names a fixed workflow for each kind of problem, and answers as that workflow does."""

import pytest

from assay.data.row import Message, Row
from assay.errors import InputError
from assay.labs.workflows.run_program import FIXED_SOURCES, routed, table_of
from assay.labs.workflows.task import FixedArms


def row(kind: str = "math", **extra: object) -> Row:
    return Row("a", (Message("user", "?"),), gold="1", extra={"problem_type": kind, **extra})


def answers(source: str, *rows: Row) -> list[str]:
    return [each.text for each, _ in FixedArms()[source].answers({}, rows)]


HARD, EASY = row(topic="words", level="2"), row(topic="words", level="1")


def test_the_most_exact_entry_decides() -> None:
    source = "workflow:words/2=programmer,words=custom,qa=direct,*=review-and-revise"
    found = answers(source, HARD, EASY, row("qa"), row())
    names = ("programmer", "custom", "direct", "review-and-revise")
    assert found == [answers(f"workflow:{name}", row())[0] for name in names]
    assert len({*found}) == 4


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("words=programer", "programmer"),
        ("words=", "no workflow ''"),
        ("words=custom,words=direct", "'words' has two workflows"),
    ],
)
def test_a_wrong_table_is_refused_by_name(text: str, words: str) -> None:
    with pytest.raises(InputError) as refused:
        table_of(text)
    assert words in str(refused.value) + str(refused.value.fix)


def test_a_problem_that_no_entry_fits_is_refused() -> None:
    with pytest.raises(InputError, match="no workflow for 'words'"):
        routed(table_of("arithmetic=custom"), EASY)


def test_a_workflow_of_operators_that_are_not_offered_is_refused() -> None:
    """Its programs would all be invalid: 0 % looks like a bad workflow."""
    few = row(operators=("Custom", "Programmer"))
    FixedArms()["workflow:custom"].check(few)
    FixedArms()["workflow:direct"].check(row())
    with pytest.raises(InputError, match="calls AnswerGenerate, which 'a' does not offer"):
        FixedArms()["workflow:direct"].check(few)


def test_other_sources_are_no_arms_of_this_kind() -> None:
    arms = FixedArms()
    assert "workflow:nothing" not in arms and "selector:a=custom" not in arms
    assert [*arms] == [f"workflow:{name}" for name in FIXED_SOURCES] and len(arms) == len([*arms])
