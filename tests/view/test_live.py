"""A page is told when its runs record something; curves, colours and tokens are what they say."""

import asyncio
from dataclasses import replace
from urllib.parse import parse_qs

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from assay.judge.intervals import Interval
from assay.pages.facts import Curve
from assay.pages.words import words
from assay.runs.metrics import append_metrics
from assay.runs.status import hold_run, stored_status, write_status
from assay.view import live
from assay.view.curves_page import RANGE, pooled
from assay.view.live import changes, live_address
from assay.view.sample_page import advantage_class, completion_blocks, pieces_of, shade
from assay.view.window import Window
from tests.pages.synthetic import empty_run


async def never() -> bool:
    return False


def test_a_run_tells_that_it_grew_and_that_it_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(live, "EVERY", 0.0)
    run = empty_run(tmp_path)
    window = Window({"lab": tmp_path})
    write_status(run.path, replace(stored_status(run.path), status="running"))

    async def told() -> list[str]:
        address = live_address(window, [f"lab/{run}"])
        (seen,) = parse_qs(address)["seen"]
        # What is recorded before the page that asked listens is not missed.
        append_metrics(run.metrics, "rl", 1, 2.0, reward_mean=0.5)
        events = changes(window, [f"lab/{run}"], seen, never)
        found = [await anext(events), await anext(events)]
        write_status(run.path, replace(stored_status(run.path), status="finished"))
        async for event in events:
            found.append(event)
        return found

    with hold_run(run.path):
        events = asyncio.run(told())
    kinds = [event.partition("\n")[0] for event in events]
    assert kinds[0].startswith("retry") and kinds[1] == "event: grown"
    assert kinds[-1] == "event: ended"


def test_seeds_are_their_mean_between_the_lowest_and_the_highest():
    nothing: tuple[Interval | None, ...] = (None, None)
    one = Curve("reward_mean", (1, 2), (0.2, 0.4), nothing)
    two = Curve("reward_mean", (1, 3), (0.6, 0.9), nothing)
    found = pooled([one, two])
    assert found.steps == (1, 2, 3)
    assert found.values == pytest.approx((0.4, 0.4, 0.9))
    assert found.limits == (Interval(0.2, 0.6, RANGE), None, None)


def test_the_pieces_of_tokens_are_the_text_and_no_character_is_cut():
    letters = {letter: n for n, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(letters, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    text = 'é 中文 {"a": 1}\n🙂'
    ids = tokenizer.encode(text).ids
    pieces = pieces_of(tokenizer, ids)
    assert "".join(pieces) == text and len(pieces) == len(ids)
    assert not any("\ufffd" in piece for piece in pieces)


def test_a_colour_grows_with_what_it_stands_for():
    likely = [shade(nats, 5.0) for nats in (0.0, 0.005, 0.5, 3.0, 50.0)]
    assert likely == ["p0", "p0", "p1", "p4", "p6"]
    better = [advantage_class(each) for each in (None, 0.0, 0.4, -1.2, 9.0)]
    assert better == ["p0", "p0", "g1", "b3", "g6"]


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("plain", ["Code"]),
        ("<think>a</think>b", ["Folded", "Code"]),
        ("x <think>a</think> y <think>b", ["Code", "Folded", "Code", "Folded"]),
        ("", ["Code"]),
    ],
)
def test_thoughts_are_folded_wherever_they_stand(text, kinds):
    assert [type(block).__name__ for block in completion_blocks(text, words())] == kinds
