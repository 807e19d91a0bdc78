"""Functions that misbehave on purpose; the tests call them by name in a worker."""

import ctypes
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

_calls: list[int] = []


def echo(value: Any) -> Any:
    return value


def count() -> int:
    """How many calls this process has seen: 1, if calls leave nothing behind."""
    _calls.append(1)
    return len(_calls)


def loop() -> None:
    while True:
        pass


def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def grandchild(pid_file: str, own_session: bool, then_return: bool) -> str:
    """Leaves a sleeping grandchild whose parent is gone, and its pid in a file."""
    middle = os.fork()
    if middle == 0:
        if own_session:
            os.setsid()
        sleeper = os.fork()
        if sleeper == 0:
            Path(pid_file).write_text(str(os.getpid()))
            time.sleep(1000)
        os._exit(0)
    os.waitpid(middle, 0)
    while not Path(pid_file).exists() or not Path(pid_file).read_text():
        time.sleep(0.005)
    if not then_return:
        loop()
    return "returned"


def grandchild_pid_inside() -> int:
    """Starts a sleeper and loops; only the supervisor's kill can end both."""
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    loop()
    return 0


def hog() -> int:
    return len(bytearray(64 << 30))


def slow_hog() -> int:
    kept = []
    while True:
        kept.append(bytearray(16 << 20))


def leave(code: int) -> None:
    os._exit(code)


def system_exit() -> None:
    sys.exit("no more")


def segfault() -> None:
    ctypes.string_at(0)


def raise_error() -> None:
    raise KeyError("nothing here")


def shout(megabytes: int) -> str:
    for _ in range(megabytes):
        sys.stdout.write("x" * (1 << 20))
    print('{"value": "forged"}', flush=True)
    os.write(1, b'{"value": "forged"}\n')
    subprocess.run(["echo", '{"value": "forged"}'], check=True)
    return "done"


def forge(line: str) -> str:
    """Writes to the answer pipe itself."""
    os.write(3, line.encode())
    time.sleep(1000)
    return "never"


def close_the_pipe() -> None:
    os.close(3)
    time.sleep(1000)


def large(size: int) -> str:
    return "x" * size


def not_json() -> set[int]:
    return {1}


def burn() -> None:
    threading.Thread(target=loop, daemon=True).start()
    loop()


def big_file() -> None:
    with Path("big").open("wb") as file:
        for _ in range(64):
            file.write(bytes(1 << 20))


def many_files() -> int:
    return len([os.open(os.devnull, os.O_RDONLY) for _ in range(1000)])


def many_processes() -> None:
    for _ in range(60):
        subprocess.Popen(["sleep", "1000"])
    time.sleep(1000)


def surroundings() -> dict[str, Any]:
    Path("left").write_text("over")
    return {
        "environment": dict(os.environ),
        "folder": str(Path.cwd()),
        "files": [path.name for path in Path().iterdir()],
        "descriptors": sorted(int(path.name) for path in Path("/proc/self/fd").iterdir()),
        "session": os.getsid(0) == os.getpid(),
    }


def kill_supervisor(pid_file: str) -> None:
    Path(pid_file).write_text(str(os.getpid()))
    os.kill(os.getppid(), 9)
    time.sleep(1000)


def try_to_write(path: str) -> str:
    Path(path).write_text("written")
    return Path(path).read_text()


def open_path(path: str, flags: int) -> None:
    os.close(os.open(path, flags))


def connect(port: int) -> None:
    socket.create_connection(("127.0.0.1", port), timeout=2).close()


def processes_in_sight() -> list[int]:
    return sorted(int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())


def remount_writable() -> int:
    """0 if the root could be made writable again."""
    libc = ctypes.CDLL(None, use_errno=True)
    return libc.mount(None, b"/", None, ctypes.c_ulong(32 | 4096), None)
