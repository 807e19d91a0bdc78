"""An error names what would have been right, in one line that can be read."""

import pytest

from assay.errors import FEW_NAMES, MOST_CHARACTERS, MOST_NAMES, InputError, nearest, within


def test_names_that_are_alike_are_offered():
    few = nearest("tyni", ["tiny", "other"])
    assert few == "did you mean 'tiny'? known: other, tiny"
    many = nearest("tyni", ["tiny", *(f"other-{n}" for n in range(FEW_NAMES))])
    assert many == "did you mean 'tiny'?"
    assert nearest("tyni", ["tiny", *"abcdefghijk"]).endswith(
        "known: a, b, c, d, e, f, g, h, i, j, k, tiny"
    )


def test_what_somebody_sent_is_cut_in_a_message_at_both_ends() -> None:
    said = str(InputError("a" + "x" * (1 << 20) + "z", field="name"))
    assert len(said) < MOST_CHARACTERS + 50 and said.startswith("name: ax") and said.endswith("xz")
    assert str(InputError("x" * MOST_CHARACTERS)) == "x" * MOST_CHARACTERS


def test_of_many_unlike_names_some_are_listed_and_the_rest_counted():
    names = [f"item-{i:04d}" for i in range(1319)]
    said = nearest("zzz", names)
    assert said.startswith("known: item-0000, item-0001")
    assert said.endswith(f"and {1319 - MOST_NAMES} more")
    assert nearest("zzz", names[:MOST_NAMES]).endswith(names[MOST_NAMES - 1])


@pytest.mark.parametrize(
    ("raised", "shown"),
    [
        (InputError("no run", fix="make one"), "data.old: no run (make one)"),
        (InputError("no field", field="order.by"), "data.old.order.by: no field"),
        (InputError("no row", field="data.older.mix"), "data.older.mix: no row"),
        (InputError("no column", file="a.csv", line=2), "a.csv:2: no column"),
    ],
)
def test_an_error_without_a_place_gets_the_one_that_is_worked_on(raised, shown):
    with pytest.raises(InputError) as found, within("data.old"):
        raise raised
    assert found.value is raised and str(raised) == shown
