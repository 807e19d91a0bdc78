"""Functions that misbehave on purpose; the tests call them by name in a worker."""

import ctypes
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from importlib.metadata import version
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


def burn_in_children(children: int) -> None:
    """Each process stays below its own limit of CPU time, being followed by another in time."""
    for _ in range(1000):
        pids = [os.fork() for _ in range(children)]
        if 0 in pids:
            until = time.process_time() + 0.2
            while time.process_time() < until:
                pass
            os._exit(0)
        for pid in pids:
            os.waitpid(pid, 0)


def big_file() -> None:
    with Path("big").open("wb") as file:
        for _ in range(64):
            file.write(bytes(1 << 20))


def many_processes() -> None:
    for _ in range(60):
        subprocess.Popen(["sleep", "1000"])
    time.sleep(1000)


def many_hogs(children: int, megabytes: int) -> None:
    """Each process stays below its own limit of memory."""
    for _ in range(children):
        if os.fork() == 0:
            kept = bytearray(b"x") * (megabytes << 20)
            time.sleep(1000 + len(kept))
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


def system_call(number: int, *arguments: int) -> int:
    """The error number of a system call, 0 where it went through."""
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(number, *map(ctypes.c_long, arguments))
    return ctypes.get_errno() if result == -1 else 0


def call_system(numbers: dict[str, list[int]]) -> dict[str, int]:
    return {name: system_call(*call) for name, call in numbers.items()}


def open_sockets(families: list[int]) -> list[int]:
    """The families of which a socket could be had."""
    had = []
    for family in families:
        try:
            socket.socket(family, socket.SOCK_DGRAM).close()
            had.append(family)
        except OSError:
            continue
    return had


def version_of(package: str) -> str:
    """The version of a package that the worker can import."""
    return version(package)


def read_file(path: str) -> str:
    return Path(path).read_text()


def fill(folder: str, size: int) -> int:
    """Makes files of `size` bytes until there is no room; how many there are."""
    for count in range(100_000):
        try:
            Path(folder, f"{count}").write_bytes(bytes(size))
        except OSError:
            return count
    return -1


def fork_until_refused() -> int:
    children = 0
    while True:
        try:
            if os.fork() == 0:
                time.sleep(1000)
        except OSError:
            return children
        children += 1


def limit_itself() -> int:
    """Its limit of open files, after it has lowered that and its rank."""
    os.nice(1)
    resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
    return resource.prlimit(0, resource.RLIMIT_NOFILE)[0]


def find_in_memory(first: list[int], last: list[int]) -> int:
    """How often two halves stand side by side in this process's memory."""
    head, tail, found = bytes(first), bytes(last), 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, rights = line.split()[:2]
        start, end = (int(part, 16) for part in span.split("-"))
        if not rights.startswith("rw") or end - start > 1 << 28:
            continue
        data = ctypes.string_at(start, end - start)
        at = data.find(head)
        while at >= 0:
            found += data[at + len(head) : at + len(head) + len(tail)] == tail
            at = data.find(head, at + 1)
        del data
    return found


def find_planted(first: list[int], last: list[int]) -> int:
    """The same, with both halves put side by side beforehand."""
    planted = bytearray([*first, *last])
    found = find_in_memory(first, last)
    return found if planted else 0


def named(function: str, arguments: dict[str, Any]) -> Any:
    return globals()[function](**arguments)


def killed_first_time(folder: str, times: int) -> str:
    """Kills its supervisor, as the machine might, until `times` files say that it did."""
    if len(list(Path(folder).iterdir())) >= times:
        return "lived"
    Path(folder, str(os.getpid())).touch()
    os.kill(os.getppid(), 9)
    time.sleep(1000)
    return "never"


def fork_and_stop_supervisor(children: int, pid_file: str) -> None:
    """A supervisor that answers no more, over children that come and go all the time."""
    Path(pid_file).write_text(str(os.getpid()))
    os.kill(os.getppid(), 19)
    for _ in range(children):
        if os.fork() == 0:
            while True:
                if os.fork() == 0:
                    os._exit(0)
                os.wait()
    time.sleep(1000)
