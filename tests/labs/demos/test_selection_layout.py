"""What the frozen model reads: what many prompts share comes first, and the query last."""

from hypothesis import given
from hypothesis import strategies as st

from assay.data.row import Message
from assay.labs.demos.demonstrations import conversation, query_row
from tests.labs.demos.made_sets import queries, shown

SET = shown(6)
ROWS = [query_row(SET, query, range(6), 2) for query in queries(3)]
picked = st.lists(st.integers(0, 5), max_size=4, unique=True)


def told(messages: tuple[Message, ...]) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in messages]


def test_the_first_pick_stands_next_to_the_query() -> None:
    assert told(conversation(ROWS[0], (4, 1))) == [
        ("system", "Answer."),
        ("user", "asks 1"),
        ("assistant", "b"),
        ("user", "asks 4"),
        ("assistant", "b"),
        ("user", "wants 0"),
    ]


@given(picked, picked)
def test_selections_share_the_prompt_up_to_their_first_other_demonstration(one, other) -> None:
    left, right = (conversation(ROWS[0], picks[::-1]) for picks in (one, other))
    same = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    same = min(len(one), len(other)) if same is None else same
    assert left[: 1 + 2 * same] == right[: 1 + 2 * same]
