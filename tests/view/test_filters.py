"""A filter keeps what plain Python keeps of the same records, and an address keeps the filter."""

import random
from dataclasses import replace
from urllib.parse import parse_qsl

import pytest

from assay.runs.history import History, samples_in
from assay.runs.records import outcome, write_samples
from assay.view.completions import Completions, Filter, read_filter
from tests.view.labs import lab, sample


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory):
    return lab(tmp_path_factory.mktemp("filtered"))


def within(value, low, high) -> bool:
    return (low is None and high is None) or (
        value is not None and (low is None or value >= low) and (high is None or value <= high)
    )


def kept(sample, count: int, f: Filter) -> bool:
    """The meaning of a filter, of one sample."""
    became = outcome(sample.reward, sample.error, sample.outcome)
    return (
        within(sample.reward, f.score_from, f.score_to)
        and within(count, f.length_from, f.length_to)
        and f.outcome in ("", became)
        and f.row in ("", sample.row)
        and f.text.lower() in sample.text.lower()
    )


def ids(run, f: Filter, answers: bool) -> list[str]:
    found = Completions(run).find(replace(f, size=10_000), answers)
    assert found.count == len(found.lines)
    assert found.unscored == sum(line["score"] is None for _, line in found.lines)
    return [line["id"] for _, line in found.lines]


def some_filter(draw: random.Random) -> Filter:
    """Two or three random conditions."""
    choices = {
        "score_from": (0.0, 0.5, 1.0),
        "score_to": (0.0, 0.5, 1.0),
        "length_from": (2, 3, 9),
        "length_to": (2, 3, 31),
        "outcome": ("right", "wrong", "abstained", "no_call", "nowhere"),
        "row": ("row_1", "odd", "simple_python_3"),
        "text": ("NEEDLE", "oslo", "a%_b", "\\", ".*"),
        "step_from": (2, 5),
        "step_to": (3, 5),
    }
    names = draw.sample(sorted(choices), draw.choice((1, 2, 3)))
    return Filter(**{name: draw.choice(choices[name]) for name in names})


@pytest.mark.parametrize("seed", range(40))
def test_a_filter_of_samples_is_that_of_plain_python(run, seed):
    f, history = some_filter(random.Random(seed)), History(run)
    expected = [
        s.id
        for step in history.sampled("rl")
        if within(step, f.step_from, f.step_to)
        for s in history.samples("rl", step, tokens=True)
        if kept(s, len(s.tokens), f)
    ]
    assert ids(run, f, False) == expected


@pytest.mark.parametrize("seed", range(20))
def test_a_filter_of_answers_is_that_of_plain_python(run, seed):
    f, history = some_filter(random.Random(1000 + seed)), History(run)
    expected = [
        s.id
        for record in history.evaluations
        for name in history.measured(record)
        for s in samples_in(record.file(run.evaluations, name))
        if kept(s, 31, f)
    ]
    assert ids(run, f, True) == expected


@pytest.mark.parametrize("text", ["BLUE", "i look", "plan it", '"sky"', "look {"])
def test_the_text_of_a_conversation_is_all_that_was_said_in_it(run, text):
    assert ids(run, Filter(text=text, step_from=6), False) == ["rl/6/talk#0"]


@pytest.mark.parametrize("text", ["assistant", "tool_calls", "role"])
def test_how_a_conversation_is_stored_is_no_text_of_it(run, text):
    assert not ids(run, Filter(text=text, step_from=6), False)


def test_pages_together_are_the_whole(run):
    whole, f = ids(run, Filter(), False), Filter(size=7)
    pages = [Completions(run).find(replace(f, page=n), False).lines for n in range(1, 14)]
    assert [line["id"] for page in pages for _, line in page] == whole


@pytest.mark.parametrize("seed", range(20))
def test_an_address_keeps_the_filter(seed):
    f = some_filter(random.Random(seed))
    assert read_filter(dict(parse_qsl(f.address()))) == f


def test_a_step_that_is_trained_again_is_read_again(tmp_path):
    run = lab(tmp_path)
    completions = Completions(run)
    before = completions.find(Filter(), False).count
    assert not completions.find(Filter(text="written anew"), False).count
    write_samples(run.samples("rl", 4), [sample(4, "odd", 0, text="written anew")] * 16)
    assert completions.find(Filter(text="written anew"), False).count == 16
    run.samples("rl", 6).unlink()
    run.samples("rl", 5).unlink()
    write_samples(run.samples("rl", 7), [sample(7, "odd", n) for n in range(4)])
    assert completions.find(Filter(), False).count == before - 1
    assert completions.find(Filter(step_from=7), False).count == 4
