"""Work is spread and its results are gathered whatever dies, and what cannot be spread is refused
in one line before anything starts. None of this needs Ray; `test_ray.py` kills its real nodes."""

import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from assay.data.files import sha256_file
from assay.engines import environments, ray_pool
from assay.engines.ray_pool import (
    MOST_LOST,
    Node,
    NodeNeeds,
    RayPool,
    as_they_come,
    look,
    look_at_nodes,
    need_ray,
)
from assay.errors import InputError, RunFailure
from tests.engines.local_pool import AFTER, BEFORE, LocalPool
from tests.test_architecture import MODULES, imported, parsed

ONE = NodeNeeds(1.0)


def squared(number: int) -> int:
    if number == 13:
        raise ValueError("unlucky")
    return number * number


def spread(pool: LocalPool, numbers: list[int], needs: NodeNeeds = ONE) -> list[int]:
    return [*as_they_come(cast(RayPool, pool), needs, [(squared, (number,)) for number in numbers])]


@pytest.mark.parametrize("seed", range(8))
def test_every_result_comes_once_whatever_dies(seed: int) -> None:
    chance = random.Random(seed)
    dying = {n: chance.choice([BEFORE, AFTER]) for n in chance.sample(range(1, 40), 6)}
    pool = LocalPool(lambda number: dying.get(number, ""))
    assert sorted(spread(pool, [*range(12)])) == [number * number for number in range(12)]
    assert pool.died and len(pool.hosts) == 2 + pool.died, "one takes the place of each dead"
    pool.deaths = lambda number: ""
    assert sorted(spread(pool, [1, 2])) == [1, 4]


def test_processes_stay_for_the_next_evaluation() -> None:
    pool = LocalPool()
    spread(pool, [1, 2, 3])
    first = set(pool.hosts)
    spread(pool, [4, 5, 6])
    assert set(pool.hosts) == first and len(first) == 2 and not pool.dropped


def test_work_that_kills_whatever_takes_it_on_ends_and_says_so() -> None:
    pool = LocalPool(lambda number: "" if number % 2 else BEFORE)  # each begins, and dies at it
    with pytest.raises(RunFailure, match=f"{MOST_LOST} processes died at it: the node is gone"):
        spread(pool, [1])


def test_what_a_call_raises_is_raised_and_the_processes_at_work_end() -> None:
    pool = LocalPool()
    with pytest.raises(ValueError, match="unlucky"):
        spread(pool, [13, 1, 2, 3, 4])
    assert {*pool.dropped, *pool.idle} == set(pool.hosts)


def test_processes_that_no_node_has_room_for_are_refused_before_and_fail_later(monkeypatch) -> None:
    monkeypatch.setattr(ray_pool, "PATIENCE", 0.0)
    with pytest.raises(InputError, match="no node of the cluster has 2 CPUs"):
        spread(LocalPool(), [1], NodeNeeds(2.0))
    with pytest.raises(InputError, match="1 CPUs and 1 GPUs"):
        spread(LocalPool(), [1], NodeNeeds(1.0, 1.0))
    pool = LocalPool(lambda number: BEFORE)
    coming = as_they_come(cast(RayPool, pool), ONE, [(squared, (1,))])

    def gone() -> list[Node]:
        return [] if pool.calls else [Node("1", "one", 1.0)]

    pool.nodes = gone  # type: ignore[method-assign]
    with pytest.raises(RunFailure, match=r"no node of the cluster has 1 CPUs.*came in 0 s"):
        next(coming)


def test_room_that_is_lost_is_waited_for() -> None:
    pool, looks = LocalPool(), iter([[Node("1", "one", 1.0)], []])
    pool.nodes = lambda: next(looks, [Node("1", "one", 1.0)])  # type: ignore[method-assign]
    assert spread(pool, [3]) == [9] and next(looks, None) is None


def test_sockets_of_a_cluster_here_lie_where_their_paths_are_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("long" * 20)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    folder = ray_pool.own_folder("--on")
    folder.rmdir()
    assert folder.parent == Path("/tmp") and not [*deep.iterdir()]
    monkeypatch.setattr(ray_pool.os, "access", lambda place, how: False)
    with pytest.raises(InputError, match="--on: Ray's sockets take at most 107 bytes"):
        ray_pool.own_folder("--on")


def test_what_a_killed_command_left_behind_is_removed_by_the_next(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(ray_pool.tempfile, "gettempdir", lambda: "/tmp")
    monkeypatch.setattr(environments.psutil, "pid_exists", lambda pid: pid != 987654321)
    dead, living = (Path(f"/tmp/assay-ray-{pid}-test") for pid in (987654321, os.getpid()))
    for folder in (dead, living):
        (folder / "session").mkdir(parents=True)
    try:
        shutil.rmtree(ray_pool.own_folder("--on"))
        assert living.exists() and not dead.exists()
    finally:
        shutil.rmtree(living)


@pytest.mark.parametrize("address", ["", "ray://head", "head:port", "head:70000", "a/b:6379"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(InputError, match=r"--on: .* is no address of a cluster \(write ray for"):
        need_ray(address, "--on")


def test_without_ray_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_pool, "find_spec", lambda name: None)
    with pytest.raises(InputError) as refused:
        need_ray("ray", "--on")
    assert str(refused.value) == "--on: Ray is not installed (pip install 'assay-lab[ray]')"


def test_an_address_without_a_cluster_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_pool, "find_spec", lambda name: None if name == "grpc" else name)
    with pytest.raises(InputError, match=r"no Ray cluster at 127.0.0.1:9: Connection refused"):
        need_ray("127.0.0.1:9", "--on")
    with pytest.raises(InputError, match="Ray's client needs grpcio"):
        need_ray("ray://127.0.0.1:9", "--on")


UNFIT = {
    "no lab": "does not see the lab",
    "another lab": "has another folder at",
    "no locks": "does not see locks",
    "older": "has Assay .*, and this is 0.0.1",
    "other file": "does not have the same",
    "no Assay": "cannot work: No module named 'no'",
}


class Seen(LocalPool):
    """Nodes of which the second is unfit."""

    unfit = ""

    def on_node(self, node: Node, function: Callable[..., Any], *arguments: Any) -> Any:
        """Nothing is pickled."""
        root, token, secret, assay, files = arguments
        if node.id == "2":
            self.there = self.there[: 1 if self.unfit == "gone" else 2]
            if self.unfit in ("no Assay", "gone"):
                return self.slots.submit(cast(Any, __import__), "no.assay.here")
            token = "none" if self.unfit == "no lab" else token
            secret = "" if self.unfit == "another lab" else secret
            assay = "0.0.1" if self.unfit == "older" else assay
            files = dict.fromkeys(files, "" if self.unfit == "other file" else sha256_file(FILE))
            if self.unfit == "no locks":
                (root / "free").write_text(secret)
                token = "free"
        return self.slots.submit(look, root, token, secret, assay, files)

    def take(self, ticket: Any) -> Any:
        """Nothing was pickled."""
        return ticket.result()


FILE = Path(__file__)


@pytest.mark.parametrize("name", UNFIT)
def test_a_node_that_cannot_work_in_the_lab_is_refused_before_anything_starts(
    name: str, tmp_path: Path
) -> None:
    pool = Seen()
    look_at_nodes(cast(RayPool, pool), tmp_path, [FILE])
    pool.unfit = name
    with pytest.raises(InputError, match=f"node two .*{UNFIT[name]}"):
        look_at_nodes(cast(RayPool, pool), tmp_path, [FILE])
    assert not [*tmp_path.glob(".ray-*")], "the token is gone"


def test_a_node_that_leaves_while_it_is_looked_at_refuses_nothing(tmp_path: Path) -> None:
    pool = Seen()
    pool.unfit = "gone"
    look_at_nodes(cast(RayPool, pool), tmp_path)


def test_one_module_imports_ray_and_none_by_being_imported() -> None:
    def roots(file: Path) -> set[str]:
        return {name.partition(".")[0] for _, name in imported(parsed(file))}

    named = [file for file in MODULES if re.search(r"\bray\b", file.read_text(encoding="utf-8"))]
    inside = {file.name for file in named if "ray" in roots(file)}
    assert inside == {"ray_pool.py", "verl_on_cpu.py"}, "the second runs where verl is installed"
    code = "import sys; sys.modules['ray'] = None; import assay.engines.ray_pool, assay.cli.main"
    subprocess.run([sys.executable, "-c", code], check=True)
