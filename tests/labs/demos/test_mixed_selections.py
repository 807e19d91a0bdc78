"""RL data of a trained selector: what it prefers, what it draws and what is similar, each set once;
its beam is what its own probabilities say.
"""

import itertools
import json
import tomllib
from pathlib import Path

import pytest

from assay.experiment.selection_tables import SelectionsSpec
from assay.lab.monitor.observer import Silent
from assay.labs.demos.demonstrations import POOL
from assay.labs.demos.generate import TrainedSelector, proposals_of, trained_selector
from assay.tasks.task import BenchmarkOptions
from tests.from_files import start
from tests.labs.demos.kinds_lab import EXPERIMENT, read_kinds

MIXED = """
[selections.rl]
data = "train"
kind = "mixed"
selector = "run:kinds@weigh.last"
width = 4
similar = 2
random = 1
"""
TABLES = EXPERIMENT.partition("[data.beams]")[0].replace('"kinds"', '"later"')
LATER = f"""{TABLES}{MIXED}
[data.rl]
source = "selections:rl"

[stage.weigh]
method = "rce"
data   = "rl"
candidates = "stored"
steps  = 2
prompts = 2
optimizer = {{ lr = 1e-3 }}
"""
SPEC = SelectionsSpec.model_validate(tomllib.loads(MIXED)["selections"]["rl"])
ROW = read_kinds("train", BenchmarkOptions({})).rows[3]


@pytest.fixture(scope="module")
def selector(lab: Path) -> TrainedSelector:
    return trained_selector("run:kinds@weigh.last", lab, Silent(), 7)


def test_the_beam_is_the_likeliest_selections_of_the_selector(selector):
    choice = selector.choice(ROW)
    pairs: list[tuple[int, ...]] = [*itertools.permutations(choice.pool, 2)]
    values = dict(zip(pairs, selector.logps(choice, pairs), strict=True))
    wide = SPEC.model_copy(update={"width": 36})
    beams = [each for each in proposals_of(selector, ROW, wide) if each.method == "beam"]
    best = max(values, key=lambda pair: values[pair])
    assert beams[0].picks == best
    assert [each.score for each in beams] == pytest.approx([values[each.picks] for each in beams])


def test_every_origin_is_there_and_every_set_once(selector):
    few = SPEC.model_copy(update={"width": 1, "similar": 1})
    found = proposals_of(selector, ROW, few)
    methods = [each.method for each in found]
    assert methods[0] == "beam" and {*methods} <= {"beam", "retrieval", "sample", "random"}
    assert len({frozenset(each.picks) for each in found}) == len(found)
    assert found == proposals_of(selector, ROW, few), "the same at every call"
    assert all({*each.picks} <= {*ROW.extra[POOL]} for each in found)


def test_a_run_learns_from_what_another_runs_selector_found(lab):
    file = lab / "later.toml"
    file.write_text(LATER)
    (run,) = start(file, root=lab)
    (stored,) = lab.glob("generated/rl-*/selections.json")
    written = json.loads(stored.read_text())
    assert written["_meta"]["selector"].startswith("runs/kinds/")
    entries = [entry for key, entry in written.items() if key.isdecimal()]
    methods = {each["gen_method"] for entry in entries for each in entry["pointer_candidates"]}
    assert {"beam", "sample"} <= methods
    for entry in entries:
        for each in entry["pointer_candidates"]:
            assert each["logprob_score"] <= 0
            assert each["vqa_correct"] == int(each["vqa_acc_score"] > 0)
    assert json.loads(run.manifest.read_text())["data"]["rl"]["train"]["rows"] == 12
