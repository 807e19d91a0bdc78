"""A round names the keys in which it differs from the round before, each whole."""

from pathlib import Path

import pytest

from assay.pages.story import changes, lineage
from assay.pages.words import words
from tests.pages.synthetic import SPEC, empty_run

ROUNDS = """
[stage.one]
method = "grpo"
data = "train"
steps = 4
prompts = 2
start = "base"
clip = {{ low = 0.2, high = 0.2 }}
reward = {{ right = {{ kind = "math.accuracy", value = 100 }}, empty = {{ kind = "text.repeats", \
value = -1 }}, said = {{ kind = "text.one_script", weight = 0.25 }} }}

[stage.two]
method = "grpo"
data = "train"
steps = 4
prompts = 2
start = "one.last"
clip = {{ low = 0.2, high = 0.28 }}
reward = {{ right = {{ kind = "math.accuracy", value = 100 }}, empty = {{ kind = "text.repeats", \
value = -10 }}, said = {{ kind = "text.one_script", weight = 0.25 }}, \
long = {{ kind = "text.length_bonus", options = {{ start = 620, rate = 2.3 }} }} }}
"""


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_key_that_changed_is_listed_whole_and_no_other(tmp_path: Path, lang: str) -> None:
    run = empty_run(tmp_path, spec=SPEC.split("[stage.sft]")[0] + ROUNDS)
    run.checkpoint("one", 4).mkdir(parents=True)
    (node,) = [each for each in lineage(run) if each.label == "two"]
    assert changes(node, words(lang)) == [
        "clip.high 0.2 → 0.28",
        "reward.empty.value −1 → −10",
        "reward.long.kind – → text.length_bonus",
        "reward.long.options.rate – → 2.3",
        "reward.long.options.start – → 620",
    ]
