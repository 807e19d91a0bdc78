"""What the frozen model reads: what many prompts share comes first, and the query last."""

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from assay.data.row import Message, Row
from assay.labs.demos.demonstrations import Query, conversation, query_row
from assay.models.prefix_tree import lay_branches
from tests.labs.demos.made_sets import asked, queries, shown

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


def test_no_shots_is_the_query_under_the_same_instruction() -> None:
    assert told(conversation(ROWS[1], ())) == [("system", "Answer."), ("user", "wants 1")]


def test_a_set_without_instruction_has_no_system_message() -> None:
    bare = query_row(
        type(SET)("bare", "", SET.demonstrations), Query("q", asked("x"), ("a",)), (0,), 1
    )
    assert [role for role, _ in told(conversation(bare, (0,)))] == ["user", "assistant", "user"]


@given(picked, picked)
def test_selections_share_the_prompt_up_to_their_first_other_demonstration(one, other) -> None:
    left, right = (conversation(ROWS[0], picks[::-1]) for picks in (one, other))
    same = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    same = min(len(one), len(other)) if same is None else same
    assert left[: 1 + 2 * same] == right[: 1 + 2 * same]


def tokens_of(row: Row, picks: tuple[int, ...]) -> tuple[int, ...]:
    """Two tokens for each message: its role and its text."""
    return tuple(hash(part) for message in told(conversation(row, picks)) for part in message)


def test_all_pairs_of_a_pool_for_several_queries_lay_each_shared_beginning_once() -> None:
    pairs = list(permutations(range(6), 2))
    sequences = sorted(tokens_of(row, pair) for row in ROWS for pair in pairs)
    laid = lay_branches(sequences)
    # The instruction once, each first demonstration once, each second one once after it, then the
    # queries; every message is two tokens, one of which is the role, alike for all.
    messages = 1 + 2 * 6 + 2 * 30 + 3 * 30
    assert len(laid.tokens) <= 2 * messages
    assert len(laid.tokens) < sum(map(len, sequences)) / 2.5
