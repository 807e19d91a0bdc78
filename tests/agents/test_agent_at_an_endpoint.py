"""The same agent with a checkpoint and with a served model: both are measured, and compared item by
item."""

from pathlib import Path

import pytest

from assay.serve.server import running
from tests.agents.test_agent_runs import AGENT, EDITS
from tests.cli.conftest import answer, assert_one_line, call
from tests.serve.scripted import MODEL, TOKEN, Says, served
from tests.tiny_labs import make_lab

TABLES = """
[evaluate.test]
data   = "sums"
role   = "report"
checkpoints = ["base"]
sampling = { max_tokens = 12 }
"""


def measured(folder: Path, name: str, model: str) -> dict:
    file = make_lab(folder, until="[stage.sft]", tables=TABLES, edits=EDITS)
    text = file.read_text().replace('"path:model"', f'"{model}"').replace('"tiny"', f'"{name}"')
    file.write_text(text)
    (folder / "agent.py").write_text(AGENT)
    done = call("run", file, "--lab", folder, "--json")
    assert done.exit_code == 0, done.stderr
    return answer(done)


def test_an_agent_is_measured_with_a_checkpoint_and_with_an_endpoint_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(served(Says(lambda prompt, _: "ab" * 6)), TOKEN, 0) as address:
        monkeypatch.setenv("OPENAI_BASE_URL", address)
        monkeypatch.setenv("OPENAI_API_KEY", TOKEN)
        measured(tmp_path, "served", f"openai:{MODEL}")
    measured(tmp_path, "own", "path:model")
    done = call("compare", "own", "served", "--allow", "model", "--lab", tmp_path, "--json")
    assert done.exit_code == 0, done.stderr
    own, other = answer(done)["result"]["lines"]
    assert own["items"] == other["items"] == 12 and other["abstained"] == 0
    assert other["score"] == pytest.approx(2 / 12)
    assert other["to_control"]["comparison"]["items"] == 12


def test_a_limit_on_tokens_that_nobody_knows_is_refused_in_one_line(tmp_path: Path) -> None:
    file = make_lab(tmp_path, until="[stage.sft]", tables=TABLES + 'reward = "accuracy"\n')
    text = file.read_text().replace('"path:model"', '"openai:some"')
    file.write_text(
        text.replace('format = "messages"', 'format = "messages"\nmax_prompt_tokens = 9', 1)
    )
    assert_one_line(call("check", file, "--lab", tmp_path), "data.sums.max_prompt_tokens", "known")


def test_one_command_measures_an_agent_with_a_model_and_with_an_endpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_lab(tmp_path)
    (tmp_path / "agent.py").write_text(AGENT)
    options = ["--benchmark", "path:sums.jsonl", "--max-tokens", 12, "--lab", tmp_path, "--json"]

    def told(model: str) -> dict:
        done = call("eval", model, "--agent", "path:agent.py:solve", *options)
        assert done.exit_code == 0, done.stderr
        return answer(done)["result"]

    with running(served(Says(lambda prompt, _: "ab" * 6)), TOKEN, 0) as address:
        monkeypatch.setenv("OPENAI_BASE_URL", address)
        monkeypatch.setenv("OPENAI_API_KEY", TOKEN)
        other = told(f"openai:{MODEL}")
    own = told("path:model")
    assert other["items"] == own["items"] == 16 and other["score"] == pytest.approx(2 / 12)
    assert not told("path:model")["made"]
    (tmp_path / "agent.py").write_text(AGENT.replace("/ 12", "/ 24"))
    assert told("path:model")["score"] == pytest.approx(own["score"] / 2)
    wrong = call(
        "eval", "path:model", "--benchmark", "math/gsm8k", "--agent", "path:agent.py:solve"
    )
    assert_one_line(wrong, "--agent", "path:FILE")
    done = call(
        "compare", own["run"], other["run"], "--allow", "model", "--lab", tmp_path, "--json"
    )
    assert done.exit_code == 0, done.stderr
    assert [line["items"] for line in answer(done)["result"]["lines"]] == [16, 16]
