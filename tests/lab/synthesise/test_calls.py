"""Calls of made rows fit the schemas of their tools, in BFCL's words too."""

import pytest

from assay.data.row import Message, Row, ToolCall
from assay.experiment.experiment import Experiment
from assay.experiment.read_file import made
from assay.lab.monitor.observer import Silent
from assay.lab.session.session import Session
from assay.lab.synthesise.make import Prover
from assay.runs.run_directory import RunDirectory
from tests.models.folders import save_tiny_model

PARAMETERS = {
    "type": "dict",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "by": {"enum": ["h"]}},
    "required": ["city"],
}
TOOLS = ({"name": "weather.get", "parameters": PARAMETERS}, {"name": "now"})
VALUES = {
    "name": "tools",
    "task": "tools",
    "model": {"policy": "path:model", "teacher": {"source": "scripted:x.jsonl"}},
    "data": {"d": {"source": "path:d.jsonl", "format": "xlam"}},
    "synthesise": {
        "t": {
            "data": "d",
            "prompt": "p",
            "rows": 1,
            "reward": "strict_binary",
            "rendering": "hermes",
        }
    },
}


@pytest.fixture(scope="module")
def prover(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tools")
    save_tiny_model(folder / "model")
    experiment = made(Experiment, VALUES)
    session = Session(experiment, RunDirectory(folder, "tools", "x"), 1, Silent())
    with Prover(session, "t", experiment.synthesise["t"]) as found:
        yield found


def row(*calls, said=""):
    turn = Message("assistant", said, tuple(ToolCall(name, given) for name, given in calls))
    return Row(f"r{len(calls)}", (Message("user", "Warm?"), turn), TOOLS)


def test_arguments_of_another_type_or_name_and_absent_ones_do_not_fit(prover):
    cases = {
        "": {"city": "Oslo", "days": 2, "by": "h"},
        "is not of type 'integer'": {"city": "Oslo", "days": "two"},
        "'city' is a required property": {"days": 2},
        "'town' was unexpected": {"city": "Oslo", "town": "x"},
        "is not one of ['h']": {"city": "Oslo", "by": "k"},
    }
    rows = [row(("weather.get", given)) for given in cases.values()]
    found = prover.calls([*rows, row(("now", {}), ("weather.get", {}))])
    for (reason, why), said in zip(found, cases, strict=False):
        assert (reason == "calls") == bool(said) and said in why
    assert found[-1][1].startswith("weather.get: ")


def test_every_answer_of_a_conversation_has_to_earn_the_full_reward(prover):
    call = ToolCall("weather.get", {"city": "Oslo"})
    talk = (
        Message("user", "Warm?"),
        Message("assistant", "", (call,)),
        Message("tool", "4"),
        Message("assistant", "It is 4 degrees."),
    )
    broken = Message("assistant", "<tool_call>\n{never closed")
    rows = [Row("good", talk, TOOLS), Row("bad", (*talk[:3], broken, talk[0], talk[3]), TOOLS)]
    good, bad = prover.golds(rows)
    assert good == ("", "")
    assert bad[0] == "gold" and bad[1].startswith("turn 2: ")
