"""A served model is measured item by item: the same scores as in process, abstentions never 0."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from assay.data.row import Row
from assay.labs.tools.parsing import call_text
from assay.labs.tools.single_turn import target_calls
from assay.runs.records import read_columns, stored_messages
from assay.serve.server import running
from assay.tasks.task import BenchmarkOptions, benchmark, task
from tests.cli.conftest import answer, assert_one_line, call
from tests.serve.scripted import CONTEXT, MODEL, TOKEN, Says, served

BENCHMARK = "bfcl/simple_python"
TAKEN = 12
TRAINING = """
[data.a]
source = "bfcl:live_simple"
[stage.sft]
method = "sft"
data = "a"
steps = 1
"""


def items() -> list[Row]:
    """The items that the evaluations below take."""
    return list(benchmark(task("tools"), BENCHMARK, BenchmarkOptions()).items)


@contextmanager
def server(
    say: Callable[[str, Row], str], monkeypatch: pytest.MonkeyPatch, key: str = TOKEN
) -> Iterator[str]:
    """The server of a model that knows which item it is asked; the environment names it."""
    questions = {item.prompt[-1].content: item for item in items()}

    def says(prompt: str, _: object) -> str:
        (asked,) = [item for text, item in questions.items() if f"{text}<|im_end|>" in prompt]
        return say(prompt, asked)

    with running(served(Says(says)), TOKEN, 0) as address:
        monkeypatch.setenv("OPENAI_BASE_URL", address)
        monkeypatch.setenv("OPENAI_API_KEY", key)
        yield address


def odd(item: Row) -> bool:
    return int(item.id.rpartition("_")[2]) % 2 == 1


def half_right(prompt: str, item: Row) -> str:
    """The target for odd items, words for even ones."""
    return call_text(target_calls(item)) if odd(item) else "No idea."


def evaluate(root: Path, *more: object):
    """`assay eval` of the served model on a few items."""
    arguments = ("--benchmark", BENCHMARK, "--take", TAKEN, "--json", "--lab", root)
    return call("eval", f"openai:{MODEL}", *arguments, *more)


def test_scores_are_the_answers_own_and_tokens_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server(half_right, monkeypatch) as url:
        result = answer(evaluate(tmp_path, "--rendering", "hermes"))["result"]
        again = answer(evaluate(tmp_path, "--rendering", "hermes"))["result"]
    assert result["made"] and not again["made"] and result["abstained"] == 0
    columns = read_columns(
        Path(result["file"]), ["item_id", "score", "prompt_tokens", "completion_tokens", "error"]
    )
    by_item = dict(zip(columns["item_id"], columns["score"], strict=True))
    known = {item.id: float(odd(item)) for item in items() if item.id in by_item}
    assert by_item == known and len(known) == TAKEN
    assert all(0 < count < CONTEXT for count in columns["prompt_tokens"])
    assert all(columns["completion_tokens"])
    assert set(columns["error"]) == {"", "simple_function_checker:wrong_count"}
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    texts = [file.read_bytes() for file in files]
    assert any(url.encode() in text for text in texts)
    assert not any(TOKEN.encode() in text for text in texts)


def test_what_is_not_answered_abstains_with_its_reason_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sometimes(prompt: str, item: Row) -> str:
        if odd(item):
            return call_text(target_calls(item))
        raise RuntimeError("no memory")

    monkeypatch.setattr("assay.rollout.engines.endpoint.client.FIRST_PAUSE", 0.001)
    words = ("--benchmark", BENCHMARK, "--take", TAKEN, "--lab", tmp_path)
    with server(sometimes, monkeypatch):
        shown = call("eval", f"openai:{MODEL}", *words)
        result = answer(evaluate(tmp_path))["result"]
    # The interval of the score, not the range that abstentions leave.
    assert re.search(r"100\.0% \(\d+\.\d% to 100\.0%\)", shown.stdout)
    loud = "have no score, most often: endpoint: HTTP 500"
    assert loud in " ".join(shown.stdout.split())
    # Said when the record is finished, too, which is all that a run of several evaluations shows.
    assert "warning: base on " in shown.stdout + shown.stderr
    columns = read_columns(Path(result["file"]), ["item_id", "score", "why"])
    evens = [int(i.rpartition("_")[2]) % 2 == 0 for i in columns["item_id"]]
    assert [score is None for score in columns["score"]] == evens and any(evens)
    assert result["score"] == 1.0 and result["abstained"] == sum(evens)
    assert list(result["abstentions"].values()) == [sum(evens)]
    assert list(result["abstentions"]) == ["endpoint: HTTP 500"]


def test_a_wrong_key_stops_the_evaluation_and_leaves_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server(half_right, monkeypatch, key="wrong"):
        assert_one_line(evaluate(tmp_path), "401", "OPENAI_API_KEY")
    assert not (tmp_path / "runs").exists()


def test_an_experiment_of_evaluations_alone_runs_through_an_endpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server(half_right, monkeypatch) as url:
        monkeypatch.delenv("OPENAI_BASE_URL")
        file = experiment(tmp_path, f'endpoint = "{url}"')
        result = call("run", file, "--lab", tmp_path, "--json")
        resumed = call("run", file, "--lab", tmp_path, "--json", "--or-resume")
    assert result.exit_code == 0, result.stderr
    (line,) = answer(result)["result"]["runs"][0]["evaluations"][0]["lines"]
    assert line["items"] == TAKEN and 0 < line["score"] < 1
    assert answer(resumed)["result"]["runs"][0]["did"] == "left alone"
    manifest = json.loads(next(tmp_path.rglob("manifest.json")).read_text())
    assert manifest["base_weights"] == {"source": f"openai:{MODEL}", "endpoint": url}


def test_a_check_asks_whether_the_endpoint_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server(half_right, monkeypatch) as url:
        file = experiment(tmp_path, f'endpoint = "{url}"')
        assert call("check", file, "--lab", tmp_path).exit_code == 0
    closed = call("check", file, "--lab", tmp_path)
    assert closed.exit_code == 2 and "does not answer" in closed.stdout + closed.stderr


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ('rendering = "template_bare"', "a server renders by its own chat template"),
        ("template_options = { enable_thinking = true }", "the server renders"),
    ],
)
def test_a_check_refuses_what_no_endpoint_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, problem: str
) -> None:
    with server(half_right, monkeypatch) as url:
        file = experiment(tmp_path, f'endpoint = "{url}"')
        file.write_text(f"{file.read_text()}{setting}\n")
        refused = call("check", file, "--lab", tmp_path)
    assert refused.exit_code == 2 and problem in refused.stdout + refused.stderr


def experiment(root: Path, more: str) -> Path:
    """An experiment file that measures the served model."""
    file = root / "served.toml"
    file.write_text(
        f'name = "served"\nmodel = "openai:{MODEL}"\ntask = "tools"\n{more}\n'
        f'[evaluate.calls]\nbenchmark = "{BENCHMARK}"\nrole = "report"\ncheckpoints = ["base"]\n'
        f'take = {{ rows = {TAKEN}, how = "first" }}\n'
    )
    return file


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (TRAINING, "trained"),
        ('endpoint = "http://user:key@host/v1"', "OPENAI_API_KEY"),
        ("", "OPENAI_BASE_URL"),
    ],
)
def test_what_an_endpoint_cannot_do_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str, words: str
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    result = call("run", experiment(tmp_path, more), "--lab", tmp_path)
    assert_one_line(result, words)


def test_what_was_said_in_a_dialogue_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = served(Says(lambda *_: "I do not know."), context=20_000)
    with running(model, TOKEN, 0) as address:
        monkeypatch.setenv("OPENAI_BASE_URL", address)
        monkeypatch.setenv("OPENAI_API_KEY", TOKEN)
        words = ("--benchmark", "bfcl/multi_turn_base", "--take", 2, "--lab", tmp_path)
        result = call("eval", f"openai:{MODEL}", *words)
    assert result.exit_code == 0, result.stderr
    (file,) = tmp_path.glob("runs/*/*/evaluations/*/base.parquet")
    columns = read_columns(file, ["score", "error", "messages"])
    assert columns["score"] == [0.0, 0.0]
    assert set(columns["error"]) == {"multi_turn:empty_turn_model_response"}
    for line in columns["messages"]:
        said = stored_messages(line)
        roles = [message.role for message in said]
        assert roles == ["assistant", "user"] * (len(roles) // 2) + ["assistant"]
        assert {m.content for m in said if m.role == "assistant"} == {"I do not know."}
