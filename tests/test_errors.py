"""An error names what would have been right, in one line that can be read."""

from assay.errors import MOST_NAMES, nearest


def test_names_that_are_alike_are_offered():
    assert nearest("tyni", ["tiny", "other"]) == "did you mean 'tiny'?"


def test_of_many_unlike_names_some_are_listed_and_the_rest_counted():
    names = [f"item-{i:04d}" for i in range(1319)]
    said = nearest("zzz", names)
    assert said.startswith("known: item-0000, item-0001")
    assert said.endswith(f"and {1319 - MOST_NAMES} more")
    assert nearest("zzz", names[:MOST_NAMES]).endswith(names[MOST_NAMES - 1])
