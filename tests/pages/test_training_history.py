"""Curves show what was recorded, gaps included."""

import re

from assay.judge.intervals import Interval
from assay.pages.charts import Checkpoints, curve_panel, interval_bar, ticks
from assay.pages.facts import Curve
from assay.pages.words import number


def one_curve(*values, limits=None):
    steps = tuple(range(1, len(values) + 1))
    return Curve("nll", steps, values, limits or (None,) * len(values))


def test_intervals_are_drawn_as_a_band_that_breaks_where_there_is_none():
    known = Interval(0.0, 1.0, "Wilson")
    drawn = curve_panel([one_curve(0.5, 0.4, 0.6, limits=(known, None, known))], "x", number)
    (band,) = re.findall(r'<path d="([^"]*)" class="band"/>', drawn)
    assert band.count("M") == 2 and "M44 10L44 126Z" in band
    assert 'class="band"' not in curve_panel([one_curve(0.5, 0.4)], "x", number)


def test_checkpoints_are_marked_and_the_chosen_one_has_a_line():
    drawn = curve_panel(
        [one_curve(0.5, 0.4, 0.6)], "x", number, checkpoints=Checkpoints((2, 3), chosen=[3])
    )
    assert drawn.count('l-3.5 6h7z" class="mark"') == 2
    assert re.findall(r'<line x1="([\d.]*)" y1="10" [^>]*class="chosen-line"/>', drawn) == ["312"]


def test_a_value_that_was_not_finite_breaks_the_line_and_is_marked():
    drawn = curve_panel([one_curve(1.0, None, 2.0, 3.0)], "x", number)
    assert drawn.count("×") == 1
    assert 'd="M44 126h.01M' in drawn


def test_ticks_are_round_and_enclose_the_values():
    assert ticks(0.03, 0.97) == [0.0, 0.5, 1.0]
    assert ticks(0.75, 0.75)[-1] == ticks(1.0, 1.0)[-1] == 1.0  # no share is above 1
    assert ticks(0.262, 0.434) == [0.2, 0.3, 0.4, 0.5]
    for low, high in ((0.0, 0.0), (5.0, 5.0), (-3.0, -3.0), (1e-6, 9e-6)):
        found = ticks(low, high)
        assert found[0] <= low and found[-1] >= high and len(found) >= 2


def test_texts_in_drawings_are_escaped():
    drawn = curve_panel([one_curve(0.5)], '"><script>', number)
    assert "<script" not in drawn and '"><' not in drawn.split(">")[0]


def test_an_interval_is_drawn_to_scale():
    drawn = interval_bar(0.5, Interval(0.25, 0.75, "Wilson"), (0.0, 1.0))
    assert '<rect x="52" y="7" width="96"' in drawn
    assert '<circle cx="100"' in drawn
