"""A real process on a free loopback port: the checkpoint's own answers, the token, a clean end."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from assay.agents.http import HOST
from assay.data.renderings.rendering import Renderer
from assay.errors import InputError
from assay.lab.models.language_encoder import LanguageEncoder
from assay.models.load import load_model
from assay.models.precision import choose_precision
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.cpu.sampler import LocalSampler
from assay.serve.connections import bound, token_for_clients
from assay.serve.server import greeting
from tests.cli.conftest import assert_one_line, call
from tests.models.folders import save_tiny_model
from tests.serve.scripted import Says, served

CODE = "import sys; sys.argv[0] = 'assay'; from assay.cli.main import app; app()"
TALK = [{"role": "user", "content": "hi"}]


def started(*arguments: object) -> subprocess.Popen[str]:
    """`assay ARGUMENTS` in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", CODE, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def first_lines(process: subprocess.Popen[str], last: str) -> str:
    """Standard error up to the line that begins with `last`."""
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if line.startswith(last):
            return said
    raise AssertionError(said)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model's folder."""
    place = tmp_path_factory.mktemp("lab") / "model"
    save_tiny_model(place)
    return place


@pytest.fixture
def process(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The server of the tiny model with a token of its own making."""
    made = started("serve", "path:model", "--lab", folder.parent, "--port", 0, "--name", "tiny")
    yield made
    made.kill()
    made.communicate()


@pytest.mark.slow
def test_a_process_answers_as_the_lab_samples_and_ends_cleanly(process, folder: Path) -> None:
    said = first_lines(process, "token:")
    url = re.search(r"at (http://127\.0\.0\.1:\d+/v1),", said)
    token = re.search(r"token: (\S+)", said)
    assert url and token
    headers = {"Authorization": f"Bearer {token[1]}"}
    with httpx.Client(base_url=url[1], headers=headers, timeout=60) as http:
        body = {"model": "tiny", "prompt": "once", "max_tokens": 12, "temperature": 0}
        answer = http.post("/completions", json=body).json()
        drawn = http.post("/completions", json={**body, "temperature": 1.0, "seed": 3}).json()
        chat = http.post("/chat/completions", json={"model": "tiny", "messages": TALK})
        assert chat.status_code == 200 and len(chat.json()["choices"]) == 1
        assert (
            http.post("/completions", json=body, headers={"Authorization": ""}).status_code == 401
        )

    loaded = load_model(folder, choose_precision())
    sampler = LocalSampler(loaded.model, loaded.end_tokens, choose_precision().compute)
    context = tuple(loaded.tokenizer.encode("once"))
    decode = LanguageEncoder(Renderer(loaded.tokenizer, "hermes"), loaded.end_tokens).decode
    for reply, sampling, seed in ((answer, Sampling(0, 12), 0), (drawn, Sampling(1.0, 12), 3)):
        (turn,) = sampler.sample([context], [SampleKey(seed, "prompt 0", 0)], sampling)
        assert reply["choices"][0]["text"] == decode(turn.actions)
        assert reply["usage"]["completion_tokens"] == len(turn.actions)

    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert f"served tiny at {url[1]}" in out
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(url[1].split(":")[2].split("/")[0]))) != 0


def test_only_this_machine_can_reach_the_port_and_a_taken_one_is_refused() -> None:
    with bound(0) as listening:
        host, port = listening.getsockname()
        assert host == "127.0.0.1"
        with pytest.raises(InputError, match=str(port)):
            bound(port)


@pytest.mark.parametrize("token", ["", "two words", "ü", "line\n"])
def test_a_token_that_no_header_can_carry_is_refused(token: str, monkeypatch) -> None:
    monkeypatch.setenv("ASSAY_SERVE_TOKEN", token)
    with pytest.raises(InputError, match="ASSAY_SERVE_TOKEN"):
        token_for_clients(HOST)


def test_a_token_comes_from_a_file_before_the_environment(monkeypatch, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("of-the-file\n")
    monkeypatch.setenv("ASSAY_SERVE_TOKEN", "mine")
    assert token_for_clients("0.0.0.0", file) == ("of-the-file", False)
    file.write_text("not a token\n")
    for bad in (file, tmp_path / "nothing", tmp_path):
        with pytest.raises(InputError) as refused:
            token_for_clients(HOST, bad)
        assert "not a token" not in str(refused.value) and str(bad) in str(refused.value)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_other_machines_are_let_in_only_with_a_token_that_somebody_chose(host, monkeypatch) -> None:
    monkeypatch.delenv("ASSAY_SERVE_TOKEN", raising=False)
    with pytest.raises(InputError, match="no token is set"):
        token_for_clients(host)
    monkeypatch.setenv("ASSAY_SERVE_TOKEN", "mine")
    assert token_for_clients(host) == ("mine", False)
    model = served(Says(lambda *_: "x"))
    said = greeting(model, "http://x/v1", host, None)
    assert any("not encrypted" in line for line in said) and "mine" not in "".join(said)


@pytest.mark.parametrize("host", ["", "no such host", "300.1.1.1", "192.0.2.1"])
def test_an_address_that_is_none_of_this_machine_is_refused(host: str) -> None:
    with pytest.raises(InputError, match="--host"):
        bound(0, host)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["path:nothing"], "nothing"),
        (["nobody@sft.last"], "nobody"),
        (["openai:gpt"], "behind an endpoint"),
        (["path:model", "--rendering", "morse"], "morse"),
        (["path:model", "--host", "0.0.0.0"], "no token is set"),
        (["path:model", "--token-file", "nothing.txt"], "nothing.txt"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line(
    folder: Path, arguments, words, monkeypatch
) -> None:
    monkeypatch.delenv("ASSAY_SERVE_TOKEN", raising=False)
    assert_one_line(call("serve", *arguments, "--lab", folder.parent, "--port", 0), words)
