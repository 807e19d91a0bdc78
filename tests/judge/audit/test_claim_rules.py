"""Words against numbers: directions, causes, labels and what was never run."""

import pytest

from tests.judge.audit.faults import found, metric

RISE, FALL = "[0.1, 0.2]", "[0.2, 0.1]"


@pytest.mark.parametrize(
    ("meaning", "values", "reads", "key"),
    [
        ("distance", FALL, "away", "distance_misread"),
        ("loss", RISE, "better", "misread_direction"),
        ("loss", FALL, "better", None),
        ("score", RISE, "worse", "misread_direction"),
        ("policy loss", FALL, "better", "policy_loss_read"),
        ("count", RISE, "better", None),
        ("score", FALL, "stable", None),
    ],
)
def test_a_course_means_one_thing(meaning: str, values: str, reads: str, key: str | None):
    text = metric(steps=[1, 2], values=values, meaning=f'"{meaning}"', reads=f'"{reads}"')
    assert [flaw.code for flaw in found(text)] == ([key] if key else [])


def test_three_places_are_each_held_against_the_first():
    said = "".join(
        f'[[mentions]]\nof = "file"\nplace = "{place}"\nsettings = {{ rows = {rows} }}\n'
        for place, rows in (("one", 5), ("two", 5), ("three", 6))
    )
    (flaw,) = found(said, "label_disagrees")
    assert (flaw.values["place"], flaw.values["other"]) == ("one", "three")


def test_numbers_agree_whatever_their_digits():
    said = "".join(
        f'[[mentions]]\nof = "file"\nsettings = {{ rate = {rate} }}\n' for rate in ("0.5", "0.50")
    )
    assert not found(said, "label_disagrees")


@pytest.mark.parametrize(("cells", "same"), [(3, False), (4, True)])
def test_few_equal_figures_may_be_chance(cells: int, same: bool):
    scores = ", ".join(f"c{i} = 5{i}.1" for i in range(cells))
    text = "".join(f'[[runs]]\nname = "{name}"\nscores = {{ {scores} }}\n' for name in "ab")
    assert bool(found(text, "same_values")) is same
