"""Counts by sign and by verdict are kept apart, and cells that share items are not many results."""

from assay.judge.families import tally
from assay.judge.verdict import not_comparable
from tests.judge.simulated import judge_family, single_pass

A, B, C = frozenset("abc"), frozenset("cd"), frozenset("xy")


def test_signs_and_verdicts_are_counted_out_of_what_was_compared():
    control = single_pass([1.0] * 30 + [0.0] * 70)
    others = {
        "up": single_pass([1.0] * 60 + [0.0] * 40),
        "little up": single_pass([1.0] * 31 + [0.0] * 69),
        "down": single_pass([0.0] * 100),
        "same": control,
    }
    found = judge_family(control, others)
    found["unfair"] = not_comparable(found["up"], ["model"])
    counts = tally(found, 7, 2, dict.fromkeys(found, A))
    assert (counts.run, counts.missing, counts.compared) == (7, 2, 4)
    assert (counts.improved, counts.declined, counts.unchanged) == (2, 1, 1)
    assert (counts.better, counts.worse, counts.not_comparable) == (1, 1, 1)
    assert counts.undecided + counts.equivalent == 2
    assert (counts.largest_gain, counts.largest_loss) == ("up", "down")
    assert counts.groups == 1
