"""Guards fire when a condition held for as many steps in a row as they say, and never before."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from assay.experiment.tables import GuardSpec, MilestoneSpec
from assay.lab.monitor.guards import GuardWatch, firing, met, pass_guards, passed_steps
from assay.runs.run_directory import RunDirectory

CUT = GuardSpec(metric="cut", above=0.5, steps=3)


def lines(*values: float | None, metric: str = "cut") -> list[dict]:
    return [{"step": step, metric: value} for step, value in enumerate(values, 1)]


@given(
    st.lists(st.sampled_from([0.2, 0.5, 0.6, 0.9, None]), max_size=8),
    st.integers(1, 4),
    st.integers(0, 8),
)
def test_a_guard_fires_exactly_where_the_last_steps_that_count_all_meet_it(values, steps, after):
    spec = GuardSpec(metric="cut", above=0.5, steps=steps)
    counting = values[after:] if after < len(values) else []
    last = counting[-steps:]
    expected = len(last) == steps and all(v is None or v > 0.5 for v in last)
    found = firing("g", spec, "rl", lines(*values), after)
    assert bool(found) == expected
    assert f"rl step {len(values)}:" in found or not expected


def test_the_bound_itself_does_not_meet_the_condition_and_what_is_not_finite_does():
    assert not met(CUT, 0.5) and met(CUT, 0.51)
    below = GuardSpec(metric="cut", below=0.5)
    assert not met(below, 0.5) and met(below, 0.49)
    for spec in (CUT, below):
        assert all(met(spec, value) for value in (None, math.nan, math.inf, -math.inf))


def test_a_guard_of_one_stage_leaves_the_others_alone():
    spec = GuardSpec(metric="cut", above=0.5, stage="rl")
    assert firing("g", spec, "sft", lines(0.9)) == ""
    assert firing("g", spec, "rl", lines(0.9))


def test_what_stopped_the_run_is_said_with_condition_and_last_value():
    found = firing("long", CUT, "rl", lines(0.1, 0.7, 0.8, 0.95))
    assert found == (
        "guard 'long' stopped the run at rl step 4: cut was above 0.5 for 3 steps in a row, "
        "last 0.95"
    )
    broken = firing("long", GuardSpec(metric="cut", below=0), "rl", lines(None))
    assert broken.endswith("cut was below 0, last not finite")


def test_a_watch_that_goes_on_decides_like_one_that_saw_everything():
    whole = GuardWatch({"g": CUT}, "rl", {}, [])
    decisions = []
    values = [0.9, 0.2, 0.9, 0.9, 0.9, 0.9, 0.1, 0.9, 0.9]
    for step, value in enumerate(values, 1):
        whole.see(step, {"cut": value})
        resumed = GuardWatch({"g": CUT}, "rl", {}, [*lines(*values[:step])])
        decisions.append(bool(whole.fired()))
        assert bool(resumed.fired()) == decisions[-1]
    assert [step for step, fired in enumerate(decisions, 1) if fired] == [5, 6]


def test_the_wish_to_go_on_is_kept_by_guard_and_stage(tmp_path: Path):
    run = RunDirectory(tmp_path, "demo", "1")
    run.path.mkdir(parents=True)
    assert passed_steps(run.path, "rl") == {}
    pass_guards(run, ["a", "b"], "rl", 4)
    pass_guards(run, ["a"], "rl", 9)
    pass_guards(run, ["a"], "sft", 2)
    assert passed_steps(run.path, "rl") == {"a": 9, "b": 4}


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (GuardSpec, {"metric": "cut"}),
        (GuardSpec, {"metric": "cut", "above": 0.5, "below": 0.5}),
        (GuardSpec, {"metric": "cut", "above": math.inf}),
        (MilestoneSpec, {"stage": "rl"}),
        (MilestoneSpec, {"stage": "rl", "step": 3, "above": 0.5}),
    ],
)
def test_a_condition_that_makes_no_sense_is_refused(kind, values):
    with pytest.raises(ValidationError):
        kind(**values)
