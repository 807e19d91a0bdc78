"""Templates draw what their kinds say, and generated rows stay the same for good."""

import dataclasses
import hashlib
import json
import random
from collections.abc import Iterable
from typing import Any

import pytest

from assay.tasks.tools.drawing import FOLDER, Draw, Names, Side, tables
from assay.tasks.tools.generated_calls import draw_rows
from assay.tasks.tools.simulated import PAIRS, SCENES, draw_scene, draw_tasks
from tests.few import few

VALUES = {
    "pets": ["cat", "dog", "hen", "owl"],
    "pet": {"pool": "pets"},
    "size": {"integer": [2, 9]},
}


def names(seed: int = 0, side: Side = "train", **bound: Any) -> Names:
    return Names(Draw(random.Random(seed), side), VALUES, bound)


def sha256_of(drawn: Iterable[Any]) -> str:
    lines = (json.dumps(_plain(one), ensure_ascii=False) for one in drawn)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _plain(one: Any) -> dict[str, Any]:
    """As JSON has it, without what no drawn row or message has."""
    found = dataclasses.asdict(one)
    assert not found.pop("template_options", None) and not found.pop("columns", None)
    for message in found.get("messages", ()):
        assert not message.pop("parts") and not message.pop("name")
    return found


SHA256 = {
    ("tasks", "train"): "520c118a153cafa6ffeaeb6488bfb18be672847ea43c52abd268c91d22b74534",
    ("tasks", "held_out"): "fb0e7de058956316b2e74cfaef141dc3090f4b7568b332ddc0e229a7ae52e149",
    ("rows", "train"): "7c09231afd43f4792c4a3ad2e3b454c42ff2dc3df4c5406e6a42f643ec2e8234",
    ("rows", "held_out"): "63fe2a39730b9fa8fb9994a16d92454d22fbb130fdca764d892107c82e30d607",
}
"""Of the first 300."""


@few("side", ["train", "held_out"], fast=1)
def test_tasks_and_questions_are_those_that_earlier_runs_trained_on(side: Side):
    assert sha256_of(draw_tasks(300, side)) == SHA256["tasks", side]
    assert sha256_of(draw_rows(300, side)) == SHA256["rows", side]


def test_a_text_of_one_name_is_its_value_and_a_longer_text_writes_it():
    known = names(price=1.5, stocks=["AB", "CD"], stock={"open": True})
    assert known.fill("{price}") == 1.5
    assert known.fill("at {price}") == "at 1.5"
    assert known.fill("{price!s}") == "1.5"
    assert known.fill(["{stocks}", "{stocks[1]}", "{stock[open]}"]) == [["AB", "CD"], "CD", True]
    assert known.fill({"{stocks[0]}": {"x": "{price}"}, "n": 3}) == {"AB": {"x": 1.5}, "n": 3}


def test_later_entries_name_earlier_ones_and_what_is_bound_stays():
    bound = names().bind({"one": "{pet}", "two": "{one} and {one}"})
    assert bound["two"] == f"{bound['one']} and {bound['one']}"
    with pytest.raises(KeyError, match="nobody"):
        bound.fill("{nobody}")


def test_values_are_drawn_at_every_mention_and_a_pool_is_emptied_before_it_repeats():
    for seed in range(20):
        assert sorted(names(seed).fill(["{pet}", "{pet}"])) == ["cat", "hen"]
        assert sorted(names(seed, "held_out").fill(["{pet}", "{pet}"])) == ["dog", "owl"]
        assert set(names(seed).fill(["{pet}"] * 3)) == {"cat", "hen"}


def test_numbers_and_halves_keep_the_sides_apart():
    for seed in range(50):
        train, held_out = names(seed), names(seed, "held_out")
        assert train["size"] in (2, 4, 6, 8) and held_out["size"] in (3, 5, 7, 9)
        assert train.fill({"decimal": [2, 9]}) % 1 in (0.25, 0.5, 0.75)
        assert train.fill({"half": ["a", "b", "c"]}) in ("a", "c")
        assert held_out.fill({"half": ["a", "b", "c"]}) == "b"
        assert train.fill({"between": [1, 3]}) in (1, 2, 3)


def test_every_file_is_used_and_every_ask_of_every_scene_can_be_drawn():
    assert {file.stem for file in FOLDER.glob("*.toml")} == {*SCENES.values(), "calls", "words"}
    assert {name for pair in PAIRS for name in pair} <= set(SCENES)
    for name, file in SCENES.items():
        asks = tables(file)[name]["ask"]
        scene = draw_scene(Draw(random.Random(1), "train"), name, len(asks))
        assert len(scene.asks) == len(asks)
        assert all(ask.text and ask.reply and ask.calls for ask in scene.asks)
