"""Ray itself: nodes killed at random in the middle of a sweep and of evaluations lose and double
nothing, a paid call least of all. The endpoint counts what it is asked.

What needs no Ray (splitting, merging, refusals) is in `test_ray_pool.py`.
"""

import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from assay.runs.history import History
from assay.runs.records import ANSWERS, read_columns
from assay.runs.run_directory import runs_of
from tests.lab.sweep.test_missing_runs import tiny_sweep, wait_for
from tests.tiny_labs import make_lab

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
CODE = "from assay.cli.main import app; app()"
CHANCE = random.Random(7)
RAYS_OWN = re.compile(r"^(?:\[20\d\d-|20\d\d-|\x1b|\((?:raylet|pid|autoscaler)).*", re.MULTILINE)
"""Lines that Ray itself writes."""


class Nodes:
    """A cluster of a head without CPUs and two nodes of one CPU, on loopback."""

    def __init__(self, cluster: Any):
        self.cluster = cluster
        self.address = cluster.address
        cluster.add_node(num_cpus=1)
        cluster.add_node(num_cpus=1)

    def kill_one(self) -> None:
        """SIGKILL to all processes of a node drawn at random; a fresh one takes its place."""
        node = CHANCE.choice(sorted(self.cluster.worker_nodes, key=lambda node: node.node_id))
        self.cluster.remove_node(node, allow_graceful=False)
        self.cluster.add_node(num_cpus=1)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    os.environ |= {
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    pytest.importorskip("ray", reason="make test-all, or pip install 'assay-lab[ray]'")
    from ray.cluster_utils import Cluster  # type: ignore[import-not-found]

    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
    )
    try:
        yield Nodes(cluster)
    finally:
        cluster.shutdown()


def assay(*words: object, log: Path, **environment: str) -> subprocess.Popen[bytes]:
    """`assay WORDS` in a process of its own."""
    command = [sys.executable, "-c", CODE, *map(str, words)]
    with log.open("ab") as stream:
        return subprocess.Popen(
            command, env={**os.environ, **environment}, stdout=stream, stderr=stream
        )


def killed_thrice(
    process: subprocess.Popen[bytes], nodes: Nodes, log: Path, far: Callable[[int], bool]
) -> None:
    """Kill a node when the process is as far as `far` says, three times; wait for its end."""
    for number in range(3):
        reached = partial(far, number)
        assert wait_for(lambda far=reached: far() or process.poll() is not None, 240)
        assert process.poll() is None, log.read_text()
        nodes.kill_one()
    assert process.wait(300) == 0, log.read_text()


def trained(root: Path) -> dict[str, Any]:
    """The steps and the final weights of every run of the tiny sweep, by name."""
    found = {}
    for name in ("s.batch-2", "s.batch-4"):
        (run,) = runs_of(root, name)
        weights = sorted(run.path.glob("checkpoints/sft/step-000060/*.safetensors"))
        steps = [line["step"] for line in History(run).lines("sft")]
        found[name] = steps, [file.read_bytes() for file in weights]
    return found


def test_a_sweep_whose_nodes_are_killed_resumes_on_others_bit_for_bit(
    nodes: Nodes, tmp_path: Path
) -> None:
    alone, spread = tmp_path / "alone", tmp_path / "spread"
    for folder in (alone, spread):
        folder.mkdir()
        tiny_sweep(folder)
        base = folder / "base.toml"
        base.write_text(base.read_text().replace("batch  = 4", "batch = 4\ncheckpoint_every = 10"))
    log = tmp_path / "log.txt"
    words = ("fill", spread / "sweep.toml", "--lab", spread, "--on", nodes.address)
    process = assay(*words, log=log)

    def steps() -> int:
        return sum(len(f.read_text().splitlines()) for f in spread.glob("runs/*/*/metrics.jsonl"))

    killed_thrice(process, nodes, log, lambda number: steps() >= 12 + 30 * number)
    lines = log.read_text()
    assert "is lost" in lines and "resumed on" in lines
    assert not RAYS_OWN.findall(lines)
    words = ("fill", alone / "sweep.toml", "--lab", alone, "--workers", 2)
    assert assay(*words, log=log).wait(300) == 0
    assert trained(spread) == trained(alone)
    assert trained(spread)["s.batch-2"][0] == [*range(1, 61)]
    assert not [*spread.glob("sweeps/s/logs/.*")] and not [*spread.glob(".ray-*")]


def columns(root: Path) -> dict[str, list[Any]]:
    """The one record of a lab, without the times."""
    (file,) = root.glob("runs/*/*/evaluations/*/base.parquet")
    names = [*ANSWERS.names, "prompt_sha256", "messages"]
    found = read_columns(file, ["item_id"], [n for n in names if n not in ("item_id", "seconds")])
    return {**found, "item_id": read_columns(file, ["item_id"])["item_id"]}


def test_an_evaluation_whose_nodes_are_killed_has_the_answers_of_one_process(
    nodes: Nodes, tmp_path: Path
) -> None:
    log, labs = tmp_path / "log.txt", [tmp_path / "alone", tmp_path / "spread"]
    words = ["eval", "path:model", "--benchmark", "math/gsm8k", "--option", "format=messages"]
    words += ["--option", 'path="test.jsonl"', "--temperature", 1, "--max-tokens", 60]
    words += ["--repeats", 400]
    for lab in labs:
        make_lab(lab)
    alone, spread = labs
    process = assay(*words, "--lab", spread, "--on", nodes.address, log=log)

    def chunks() -> int:
        return len([*spread.glob("runs/*/*/evaluations/*/base.parts/*.parquet")])

    killed_thrice(process, nodes, log, lambda number: chunks() > number)
    assert assay(*words, "--lab", alone, log=log).wait(300) == 0
    found = columns(spread)
    assert found == columns(alone)
    assert len({*zip(found["item_id"], found["repeat"], strict=True)}) == 3200


def test_a_head_that_wants_a_token_is_told_in_one_line(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="make test-all, or pip install 'assay-lab[ray]'")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ray = [sys.executable, "-m", "ray.scripts.scripts"]
    head = [*ray, "start", "--head", f"--port={port}", "--num-cpus=1", "--block"]
    head += ["--include-dashboard=false", f"--temp-dir=/tmp/assay-token-{port}"]
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a" * 64}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = subprocess.Popen(head, env={**os.environ, **token}, **quiet)
    try:
        assert wait_for(lambda: not port_is_free(port), 120)
        tiny_sweep(tmp_path)
        words = ("fill", tmp_path / "sweep.toml", "--lab", tmp_path, "--on", f"127.0.0.1:{port}")
        log = tmp_path / "log.txt"
        assert assay(*words, log=log).wait(60) == 2
        (line,) = log.read_text().splitlines()
        assert "wants another token" in line and "RAY_AUTH_TOKEN" in line
    finally:
        started.terminate()
        started.wait(60)
        shutil.rmtree(f"/tmp/assay-token-{port}", ignore_errors=True)


def port_is_free(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) != 0


OWN = """
import json, os, psutil, sys
from pathlib import Path
from assay.engines.ray_pool import NodeNeeds, as_they_come, connect, leave, look_at_nodes

def found():
    pool = connect("ray", "--on")
    look_at_nodes(pool, Path(sys.argv[1]))
    answers = [*as_they_come(pool, NodeNeeds(1.0), [(pow, (n, 2)) for n in range(4)])]
    own = {p.pid for p in psutil.Process().children(recursive=True)} | {os.getpid()}
    ports = [c for c in psutil.net_connections() if c.status == "LISTEN" and c.pid in own]
    leave()
    return sorted(answers), sorted({c.laddr.ip for c in ports})

twice = [found(), found()]
left = [p.name() for p in psutil.Process().children(recursive=True) if p.name() == "raylet"]
print(json.dumps([twice, left]))
"""


def test_a_cluster_of_ones_own_listens_to_loopback_alone_and_ends_with_the_command(
    tmp_path: Path,
) -> None:
    pytest.importorskip("ray", reason="make test-all, or pip install 'assay-lab[ray]'")
    command = [sys.executable, "-c", OWN, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    twice, left = json.loads(done.stdout.splitlines()[-1])
    for answers, listening in twice:
        assert answers == [0, 1, 4, 9]
        assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}
    assert not left and not [*tmp_path.iterdir()]
