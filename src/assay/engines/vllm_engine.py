"""vLLM in a process of its own, started with the interpreter of its environment.

The process runs `vllm_worker` and ends with this one, however this one ends. On a CPU weights go
over as a safetensors file in memory (/dev/shm), on CUDA as handles of the tensors themselves
(vLLM's weight transfer, `ipc`). Adapters are merged: vLLM's CPU kernels sample six times slower
with one apart, and cannot score.
"""

import atexit
import base64
import json
import os
import pickle
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from threading import TIMEOUT_MAX, Event, Timer
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch.multiprocessing.reductions import reduce_tensor  # type: ignore[attr-defined]

from assay.engines import environments
from assay.engines.handover import Columns, HandedOver
from assay.errors import RunFailure
from assay.models.folder import WEIGHTS
from assay.models.weight_files import State

SCRIPT = Path(__file__).with_name("vllm_worker.py")
MEMORY = Path("/dev/shm")
PREFIX = "assay-engine-"
CACHE_GIB = 2.0
"""Keys and values held on a CPU."""


@dataclass(frozen=True, slots=True)
class EngineOpening:
    """All that an engine is opened with; samplers that agree in it share one."""

    folder: str
    """A whole model of the same shape, whose weights are replaced, with its tokenizer."""
    dtype: str
    device: str
    patience: float = inf
    """Seconds for which the process may say nothing."""


@dataclass
class VllmEngine:
    """One model in vLLM's process, whose weights are replaced again and again."""

    opening: EngineOpening
    process: "subprocess.Popen[str]"
    log: Path
    folder: Path
    """In memory, for what is handed over."""
    owner: object = None
    """The sampler whose weights it has."""
    held: HandedOver = field(default_factory=HandedOver)
    """What it was handed over last."""
    asleep: bool = False

    def load(self, state: State) -> None:
        """Take over weights by the names of files, and forget keys and values of earlier ones."""
        if self.opening.device != "cpu":
            # First the weights' memory alone, because the trainer's copy is held meanwhile.
            self._wake("weights")
            self._transfer(state)
            self._wake("kv_cache")
            self.asleep = False
            return
        file = self.folder / WEIGHTS
        try:
            save_file(state, file, metadata={"format": "pt"})
            self.ask("load", folder=str(self.folder))
        finally:
            file.unlink(missing_ok=True)

    def _transfer(self, state: State) -> None:
        """By CUDA's handles, which the process opens while `state` is held here."""
        torch.cuda.synchronize()
        gpu = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
        handles = [{gpu: reduce_tensor(tensor)[1]} for tensor in state.values()]
        update = {
            "names": list(state),
            "dtype_names": [str(tensor.dtype).removeprefix("torch.") for tensor in state.values()],
            "shapes": [list(tensor.shape) for tensor in state.values()],
            "ipc_handles_pickled": base64.b64encode(pickle.dumps(handles)).decode(),
        }
        self.ask("receive", update=update)
        torch.cuda.ipc_collect()

    def sleep(self) -> None:
        """Give memory back where the trainer needs it; weights come before it is asked again."""
        if self.opening.device != "cpu" and not self.asleep:
            self.ask("sleep")
            self.owner, self.asleep = None, True

    def _wake(self, part: str) -> None:
        if self.asleep:
            torch.cuda.empty_cache()
            self.ask("wake", part=part)

    def read(self, columns: Columns) -> State:
        """Columns of the weights that it computes with; none of those that it cannot give."""
        file = self.folder / "read.safetensors"
        try:
            self.ask("read", columns=columns, file=str(file))
            return load_file(file)
        finally:
            file.unlink(missing_ok=True)

    def reused(self, prompt: list[int]) -> int:
        """How many tokens of a prompt its prefix cache holds."""
        return self.ask("reused", prompt=prompt)

    def sample(
        self,
        prompts: list[list[int]],
        seeds: list[int],
        ends: list[int],
        settings: Mapping[str, Any],
    ) -> list[tuple[list[int], list[float], bool]]:
        """Tokens, their log-probs, and whether an end or a stop string was met, of each prompt."""
        return self.ask("sample", prompts=prompts, seeds=seeds, ends=ends, settings=settings)

    def score(self, contexts: list[list[int]], actions: list[list[int]]) -> list[list[float]]:
        """Log-probs of all actions at temperature 1."""
        return self.ask("score", contexts=contexts, actions=actions)

    def score_cached(
        self, contexts: list[list[int]], actions: list[list[int]]
    ) -> list[list[float]]:
        """Of each last action, by way of the prefix cache."""
        return self.ask("score_cached", contexts=contexts, actions=actions)

    def ask(self, do: str, **request: Any) -> Any:
        """What the process answers. Raises RunFailure where it fails, is gone or says nothing."""
        assert self.process.stdin is not None and self.process.stdout is not None
        late, patience = Event(), self.opening.patience
        # It may stop in the middle of a line, so that reading one would never end.
        timer = Timer(min(patience, TIMEOUT_MAX), lambda: (late.set(), self.process.kill()))
        timer.start()
        try:
            self.process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        if late.is_set():
            limit = f"{patience / 60:g} minutes (engine.patience)"
            raise RunFailure(f"vLLM's process was asked to {do} and said nothing for {limit}")
        if not line:
            how = environments.how_ended(self.process.wait())
            words = environments.last_words_in(self.log)
            raise RunFailure(f"vLLM's process ended ({how}): {words}")
        reply = json.loads(line)
        if "error" in reply:
            raise RunFailure(f"vLLM failed to {do}: {reply['error'][-environments.LAST_WORDS :]}")
        return reply["answer"]

    def close(self) -> None:
        """End the process and remove its folder."""
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


_open: list[VllmEngine] = []
"""At most one: its weights fill memory."""


def opened(opening: EngineOpening) -> VllmEngine:
    """The engine that is opened so; another one that is open is closed first.

    Raises InputError where vLLM is not installed, RunFailure where it does not start.
    """
    for engine in list(_open):
        if engine.opening == opening and engine.process.poll() is None:
            return engine
        close_all()
    _open.append(_started(opening))
    return _open[0]


@atexit.register
def close_all() -> None:
    """End what is open."""
    while _open:
        _open.pop().close()


def _started(opening: EngineOpening) -> VllmEngine:
    python = environments.python_of(environments.need_vllm())
    _remove_abandoned()
    place = MEMORY if os.access(MEMORY, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=place))
    log = folder / "log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [str(python), "-I", str(SCRIPT), str(os.getpid()), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=_surroundings(opening.device),
        )
    engine = VllmEngine(opening, process, log, folder)
    try:
        engine.ask(
            "open",
            folder=opening.folder,
            dtype=opening.dtype,
            device=opening.device,
            memory_gib=CACHE_GIB,
        )
    except BaseException:
        engine.close()
        raise
    return engine


def _surroundings(device: str) -> dict[str, str]:
    # One process, so that nothing is left when it is killed. Threads wait without spinning: the
    # trainer's run on the same cores.
    clean = environments.surroundings()
    if device != "cpu":  # handles of tensors are opened on the GPU that holds them
        place = torch.cuda.current_device()
        visible = clean.get("CUDA_VISIBLE_DEVICES", "")
        clean["CUDA_VISIBLE_DEVICES"] = visible.split(",")[place] if visible else str(place)
    return clean | {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": str(torch.get_num_threads()),
        "OMP_WAIT_POLICY": "PASSIVE",
        "HF_HUB_OFFLINE": "1",
    }


def _remove_abandoned() -> None:
    """Folders in memory of processes that were killed."""
    for folder in MEMORY.glob(f"{PREFIX}*"):
        pid = int(folder.name.removeprefix(PREFIX).partition("-")[0])
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            shutil.rmtree(folder, ignore_errors=True)
        except PermissionError:
            continue  # of another user, whose process lives
