"""Programs that try to break the sandbox, and how each has to end.

A body stands in `async def __call__(self, problem)` unless it brings a class of its own; `problem`
is a JSON object of what a test wants attacked. `RAW` writes to the pipe on which programs speak.
"""

import textwrap
from dataclasses import dataclass

HEAD = """
import asyncio, ctypes, gc, io, itertools, json, os, pickle, re, resource, signal, socket
import subprocess, sys, threading, time
from pathlib import Path

class Workflow:
    def __init__(self, name, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.custom = operator.Custom(self.llm)

    async def __call__(self, problem):
"""
RAW = """
def say(text):
    data = text if isinstance(text, bytes) else text.encode()
    while data:
        data = data[os.write(3, data):]

def call(number, arguments="{}", name='"Custom"'):
    say('?{"id": %s, "name": %s, "arguments": %s}\\n' % (number, name, arguments))

"""
HANGS = 0.3
"""Seconds for what has to be killed."""


def workflow(body: str) -> str:
    """A program with a body."""
    if "class Workflow" in body:
        return textwrap.dedent(body)
    return HEAD + textwrap.indent(textwrap.dedent(RAW + textwrap.dedent(body)), " " * 8)


@dataclass(frozen=True)
class Attack:
    """A hostile program; `ends` are the ways in which it may end, as `test_hostile_programs.ending`
    says them: a failure's kind, "error KIND" or "answer TEXT"."""

    body: str
    ends: tuple[str, ...]
    deadline: float = 30.0


def attack(body: str, *ends: str, deadline: float = 30.0) -> Attack:
    return Attack(body, ends, deadline)


def hangs(body: str, *others: str) -> Attack:
    """Has to be killed at its deadline, unless it fails in one of the other ways before."""
    return Attack(body, ("deadline", *others), HANGS)


RESOURCES = {
    "fork bomb": hangs(
        """
        while True:
            try:
                os.fork()
            except OSError:
                pass
        """,
        "processes",
    ),
    "children of children in sessions of their own": hangs(
        """
        while True:
            if os.fork() == 0:
                os.setsid()
        """,
        "processes",
        "error raised BlockingIOError",
    ),
    "thread bomb": hangs(
        """
        while True:
            try:
                threading.Thread(target=time.sleep, args=(1000,)).start()
            except RuntimeError:
                pass
        """,
        "processes",
    ),
    "interpreters in sessions of their own": attack(
        """
        for _ in range(3):
            command = [sys.executable, "-c", "import time; time.sleep(1000)"]
            subprocess.Popen(command, start_new_session=True)
        return "started"
        """,
        "answer started",
    ),
    "memory at once": attack("bytearray(64 << 30)", "memory"),
    "memory in pieces": attack("[bytearray(32 << 20) for _ in itertools.count()]", "memory"),
    "endless list of a generator": attack("list(itertools.repeat(0))", "memory"),
    "memory of many processes": attack(
        """
        for _ in range(4):
            if os.fork() == 0:
                kept = bytearray(b"x") * (300 << 20)
                time.sleep(1000)
        time.sleep(1000)
        """,
        "memory",
    ),
    "number of a billion digits": hangs("9 ** 9 ** 9", "memory"),
    "regular expression that backtracks": hangs("re.match('(a+)+$', 'a' * 64 + 'b')"),
    "loop that swallows exceptions": hangs(
        """
        while True:
            try:
                raise KeyError
            except BaseException:
                pass
        """
    ),
    "loop in a thread behind a call": hangs(
        """
        def loop():
            while True: pass
        threading.Thread(target=loop).start()
        while True:
            await asyncio.sleep(0.01)
        """
    ),
    "signals ignored": hangs(
        """
        for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_IGN)
        signal.alarm(1)
        while True: pass
        """
    ),
    "handlers that raise for ever": hangs(
        """
        def handler(*_):
            raise ValueError
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        while True:
            try:
                time.sleep(1)
            except ValueError:
                pass
        """
    ),
    "stops itself": hangs("os.kill(os.getpid(), signal.SIGSTOP)"),
    "output without end": attack(
        """
        for _ in range(32):
            print("x" * (1 << 20), flush=True)
            os.write(2, b"x" * (1 << 20))
        return "printed"
        """,
        "answer printed",
    ),
    "answer without end": attack("return 'x' * (2 << 20)", "output"),
    "file over the limit": attack(
        """
        with open("big", "wb") as file:
            for _ in range(64):
                file.write(bytes(1 << 20))
        """,
        "error raised OSError",
    ),
    "files without end": attack(
        "for n in itertools.count(): Path(f'/dev/shm/{n}').touch()", "error raised OSError"
    ),
    "memory file system filled": attack(
        "for n in itertools.count(): Path(f'/dev/shm/{n}').write_bytes(bytes(1 << 20))",
        "error raised OSError",
    ),
    "open files without end": attack(
        "kept = [open('/dev/null') for _ in itertools.count()]", "error raised OSError"
    ),
    "recursion": attack(
        """
        def deeper(n):
            return deeper(n + 1)
        deeper(0)
        """,
        "error raised RecursionError",
    ),
    "recursion without Python's limit": attack(
        """
        sys.setrecursionlimit(1 << 30)
        value = []
        for _ in range(1 << 20):
            value = [value]
        repr(value)
        """,
        "crash",
        "memory",
    ),
}

ENDINGS = {
    "exit of the process": attack("os._exit(0)", "crash"),
    "abort": attack("os.abort()", "crash"),
    "kills itself": attack("os.kill(os.getpid(), signal.SIGKILL)", "crash"),
    "invalid memory": attack("ctypes.string_at(0)", "crash"),
    "exit in the constructor": attack(
        """
        import sys
        class Workflow:
            def __init__(self, *_):
                sys.exit(0)
        """,
        "error raised SystemExit",
    ),
    "exit at import": attack("raise SystemExit\nclass Workflow: pass", "error raised SystemExit"),
    "answer of another type": attack(
        """
        class Liar(str):
            def __str__(self): raise ZeroDivisionError
        return Liar("text")
        """,
        "error raised ZeroDivisionError",
    ),
    "exception without a text": attack(
        """
        class Deadly(BaseException):
            def __str__(self): raise self
            __repr__ = __str__
        raise Deadly
        """,
        "exception",
        "crash",
    ),
    "exception of a name of its own": attack(
        "raise type('solved ' * 100, (KeyError,), {})('why ' * 1000)", "error raised KeyError"
    ),
    "exception whose text never ends": hangs(
        """
        class Endless(Exception):
            def __str__(self):
                while True: pass
        raise Endless
        """
    ),
    "waits at exit": attack(
        """
        import atexit, threading, time
        class Sticky:
            def __del__(self): time.sleep(1000)
        kept = Sticky()
        class Workflow:
            def __init__(self, *_):
                atexit.register(time.sleep, 1000)
            async def __call__(self, problem):
                return "left"
        """,
        "answer left",
    ),
    "waits when it is forgotten": hangs(
        """
        import time
        class Workflow:
            def __init__(self, *_): pass
            def __del__(self): time.sleep(1000)
            async def __call__(self, problem):
                return "forgotten"
        """
    ),
    "daemon": attack(
        """
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                while True:
                    try:
                        os.write(3, b'={"value": {"answer": "daemon"}}\\n')
                    except OSError:
                        pass
                    time.sleep(0.001)
            os._exit(0)
        return "parent"
        """,
        "answer parent",
        "answer daemon",
    ),
    "threads that go on": attack(
        """
        threading.Thread(target=time.sleep, args=(1000,)).start()
        loop = asyncio.get_running_loop()
        loop.run_in_executor(None, time.sleep, 1000)
        async def stubborn():
            while True:
                try:
                    await asyncio.sleep(1000)
                except BaseException:
                    pass
        loop.create_task(stubborn())
        await asyncio.sleep(0)
        return "answered"
        """,
        "answer answered",
    ),
    "runs a second event loop": attack(
        "return asyncio.run(self.custom(problem, ''))", "error raised RuntimeError"
    ),
    "stops the event loop": attack(
        """
        asyncio.get_running_loop().stop()
        await asyncio.sleep(1000)
        """,
        "error raised RuntimeError",
    ),
    "cancels itself": attack(
        """
        asyncio.current_task().cancel()
        await asyncio.sleep(1000)
        """,
        "error raised CancelledError",
    ),
    "endless trace": hangs(
        """
        def trace(*_):
            while True: pass
        sys.settrace(trace)
        (lambda: 0)()
        """
    ),
}

ISOLATION = {
    "writes outside of its folder": attack(
        """
        done = []
        for path in json.loads(problem)["writable"] + ["/etc/x", "/usr/lib/x", "/x", "/dev/x",
                "/proc/1/comm", "/proc/sys/kernel/hostname", sys.prefix + "/lib/x"]:
            try:
                Path(path).write_text("x")
                done += [] if path.startswith("/tmp/") else [path]
            except OSError:
                pass
        return str(done)
        """,
        "answer []",
    ),
    "reads environments and memories": attack(
        """
        seen = []
        for path in Path("/proc").glob("[0-9]*/*"):
            if path.name in ("environ", "mem", "maps") and path.parent.name != str(os.getpid()):
                try:
                    with open(path, "rb") as file:
                        if file.read(4096): seen.append(str(path))
                except OSError:
                    pass
        return str(seen) + str(dict(os.environ))
        """,
        "answer []{}",
    ),
    "reads home, the lab and the golds": attack(
        """
        seen = []
        known = [*sys.path, sys.prefix, sys.base_prefix]
        def lead_to_python(path):
            return any(each.startswith(path) for each in known)
        for path in json.loads(problem)["secrets"] + ["/etc/passwd", "/root", "/home", "/var"]:
            try:
                if os.path.isdir(path):
                    inside = [os.path.join(path, name) for name in os.listdir(path)]
                    seen += [each for each in inside if not lead_to_python(each)]
                else:
                    seen.append(open(path).read())
            except OSError:
                pass
        return str(seen)
        """,
        "answer []",
    ),
    "reads what users install": attack(
        """
        seen = []
        for name in ("numpy", "psutil", "pytest", "torch"):
            try:
                __import__(name)
                seen.append(sys.modules[name].__file__ and name)
            except ImportError:
                pass
        import glob
        found = glob.glob(sys.prefix + "/lib/python*/site-packages/*")
        return str([name for name in seen if name != "psutil"] + found)
        """,
        "answer []",
    ),
    "leaves files": attack(
        """
        for folder in (".", "/tmp", "/run", "/dev/shm"):
            Path(folder, "left").write_text("over")
        return "left"
        """,
        "answer left",
    ),
    "finds what others left": attack(
        """
        return str([str(path) for folder in ("/tmp", "/run", "/dev/shm")
            for path in Path(folder).rglob("left")])
        """,
        "answer []",
    ),
    "sockets": attack(
        """
        reached = []
        def reach(kind, family, type_, address):
            try:
                with socket.socket(family, type_) as client:
                    client.settimeout(1)
                    client.connect(address)
                    client.send(b"x")
                    reached.append(kind)
            except OSError:
                pass
        target = json.loads(problem)
        reach("tcp", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", target["tcp"]))
        reach("udp", socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", target["udp"]))
        reach("net", socket.AF_INET, socket.SOCK_DGRAM, ("192.0.2.1", 53))
        reach("unix", socket.AF_UNIX, socket.SOCK_STREAM, target["unix"])
        reach("abstract", socket.AF_UNIX, socket.SOCK_STREAM, "\\0" + target["abstract"])
        for family, type_ in ((socket.AF_NETLINK, socket.SOCK_RAW), (socket.AF_VSOCK, 1),
                (socket.AF_PACKET, socket.SOCK_RAW)):
            try:
                socket.socket(family, type_)
                reached.append(str(family))
            except OSError:
                pass
        return str(reached)
        """,
        "answer []",
    ),
    "system calls": attack(
        """
        libc = ctypes.CDLL(None, use_errno=True)
        tries = {"ptrace": (16, 1, 0, 0), "unshare": (0x10000000,), "setns": (0, 0),
            "mount": (None, b"/", None, 32 | 4096, None), "chroot": (b".",), "setuid": (0,),
            "klogctl": (3, bytes(9), 9), "umount2": (b"/tmp", 2), "sethostname": (b"x", 1),
            "swapoff": (b"/",), "reboot": (0,)}
        if os.getuid() == 0: del tries["setuid"]
        done = [name for name, given in tries.items() if getattr(libc, name)(*given) != -1]
        return str(done)
        """,
        "answer []",
    ),
    "hinders the supervisor": attack(
        """
        done = []
        for attempt in (lambda: resource.prlimit(1, resource.RLIMIT_CPU, (1, 1)),
                lambda: os.setpriority(os.PRIO_PROCESS, 1, 19),
                lambda: os.sched_setaffinity(1, {0})):
            try:
                attempt()
                done.append(attempt)
            except OSError:
                pass
        for number in (9, 15, 19):
            for process in (1, -1):
                try:
                    os.kill(process, number)
                except OSError:
                    pass
        return str(done)
        """,
        "answer []",
    ),
    "pickles": attack(
        """
        class Bomb:
            def __reduce__(self):
                return os.system, ("echo x > /etc/x",)
        pickle.loads(pickle.dumps(Bomb()))
        return Bomb().__reduce__()[1][0]
        """,
        "answer echo x > /etc/x",
    ),
    "chain of subclasses": attack(
        """
        import subprocess
        found = [c for c in ().__class__.__base__.__subclasses__() if c.__name__ == "Popen"]
        try:
            return found[0](["/bin/sh", "-c", "cat /etc/passwd"], stdout=-1).communicate()[0]
        except FileNotFoundError:
            return "no shell"
        """,
        "answer no shell",
    ),
    "import hooks": attack(
        """
        class Hook:
            def find_spec(self, *_):
                raise ImportError("hooked")
        sys.meta_path[:] = [Hook()]
        sys.modules.clear()
        return "hooked"
        """,
        "answer hooked",
        "error raised KeyError",
        "error raised ImportError",
        "exception",
        "crash",
    ),
}

PIPE = {
    "forges the supervisor's verdict": attack(
        """say('!{"failure": "deadline", "why": "the lab"}\\n'); time.sleep(1000)""", "protocol"
    ),
    "forges a signed reply": attack(
        """say("00" * 16 + ' 0.1 ={"value": 1}\\n'); time.sleep(1000)""", "protocol"
    ),
    "forges a failure that is not its own to tell": attack(
        """say('={"failure": "deadline", "why": "the lab"}\\n'); time.sleep(1000)""", "protocol"
    ),
    "forges a key of the outcome": attack(
        """say('={"value": 1, "failure": null}\\n'); time.sleep(1000)""", "protocol"
    ),
    "writes into the supervisor's pipes": attack(
        """
        opened = []
        for number in range(64):
            try:
                descriptor = os.open(f"/proc/1/fd/{number}", os.O_WRONLY | os.O_NONBLOCK)
                os.write(descriptor, b'={"value": 1}\\n')
                opened.append(number)
            except OSError:
                pass
        return str(opened)
        """,
        "answer []",
    ),
    "floods of calls": attack("for n in range(1, 10_000): call(n)", "calls"),
    "too many calls, properly": attack(
        "for n in range(100): await self.custom(problem, str(n))", "calls"
    ),
    "too many calls at once": attack(
        """
        for n in range(1, 6): call(n, name='"slow"')
        time.sleep(1000)
        """,
        "calls",
    ),
    "too large a call, properly": attack("await self.custom('x' * (1 << 20), '')", "calls"),
    "a call without an end": attack("say('?' + 'x' * (1 << 22)); time.sleep(1000)", "calls"),
    "an answer without an end": attack("say('=' + 'x' * (1 << 22)); time.sleep(1000)", "output"),
    "noise without an end": attack("while True: say(os.urandom(1 << 16))", "protocol"),
    "empty lines": attack("while True: say(b'\\n' * (1 << 16))", "protocol"),
    "half a line, then nothing": hangs("say('?{\"id\": 1'); time.sleep(1000)"),
    "half a line, then the end": attack("say('?{\"id\": 1'); os._exit(0)", "crash"),
    "a line byte by byte": hangs(
        """
        say("=")
        while True:
            say(" ")
            time.sleep(0.002)
        """
    ),
    "deep call": attack("say('?' + '[' * 100_000 + '\\n'); time.sleep(1000)", "protocol"),
    "deep answer": attack(
        """say('={"value": ' + '[' * 99 + ']' * 99 + '}\\n'); time.sleep(1000)""", "protocol"
    ),
    "deep arguments": attack(
        "call(1, '{\"a\": ' + '[' * 50_000 + ']' * 50_000 + '}'); time.sleep(1000)", "protocol"
    ),
    "no JSON": attack("say('?hello\\n'); time.sleep(1000)", "protocol"),
    "no ASCII": attack("say(b'?\\xff\\xfe{}\\n'); time.sleep(1000)", "protocol"),
    "another encoding": attack("say('?{}\\n'.encode('utf-16')); time.sleep(1000)", "protocol"),
    "no number": attack("call(1, '{\"n\": NaN}'); time.sleep(1000)", "protocol"),
    "infinite number": attack("call(1, '{\"n\": 1e999}'); time.sleep(1000)", "protocol"),
    "long number": attack("call(1, '{\"n\": %s}' % ('9' * 100)); time.sleep(1000)", "protocol"),
    "endless number": attack("call(1, '{\"n\": %s}' % ('9' * 9999)); time.sleep(1000)", "protocol"),
    "half a surrogate": attack(r"""call(1, '{"n": "\\ud800"}'); time.sleep(1000)""", "protocol"),
    "wrong id": attack("call(7); time.sleep(1000)", "protocol"),
    "id twice": attack("call(1); call(1); time.sleep(1000)", "protocol"),
    "id of the past": attack("call(1); call(2); call(1); time.sleep(1000)", "protocol"),
    "id that is true": attack("call('true'); time.sleep(1000)", "protocol"),
    "id that is text": attack("call('\"1\"'); time.sleep(1000)", "protocol"),
    "id that is no whole number": attack("call('1.0'); time.sleep(1000)", "protocol"),
    "arguments that are a list": attack("call(1, '[]'); time.sleep(1000)", "protocol"),
    "name that is none": attack("call(1, name='null'); time.sleep(1000)", "protocol"),
    "key too many": attack(
        """say('?{"id": 1, "name": "a", "arguments": {}, "answer": 1}\\n'); time.sleep(1000)""",
        "protocol",
    ),
    "key too few": attack("""say('?{"id": 1}\\n'); time.sleep(1000)""", "protocol"),
    "closes where it speaks": attack("os.close(3); time.sleep(1000)", "crash"),
    "closes where it hears": hangs("os.close(4); await self.custom(problem, '')"),
    "does not listen": attack(
        """
        for n in range(1, 5): call(n, name='"large"')
        time.sleep(0.2)
        return "deaf"
        """,
        "answer deaf",
    ),
    "answers itself": attack(
        """
        with open("/proc/self/fd/4", "w") as own:
            own.write('{"id": 1, "reply": {"result": {"response": "forged"}}}\\n')
            own.flush()
            return (await self.custom(problem, ""))["response"]
        """,
        "answer forged",
        "error raised PermissionError",
    ),
    "answers through the collector": attack(
        """
        def meddle():
            while True:
                for each in gc.get_objects():
                    if type(each).__name__ == "Asker":
                        for future in list(each._open.values()):
                            future.set_result({"result": {"response": "forged"}})
                            return
        threading.Thread(target=meddle).start()
        return (await self.custom(problem, ""))["response"]
        """,
        "answer forged",
        "answer Custom",
    ),
    "answers twice": attack(
        """
        say('={"value": {"answer": "first"}}\\n={"value": {"answer": "second"}}\\n')
        time.sleep(1000)
        """,
        "answer first",
    ),
    "asks after its answer": attack(
        """
        say('={"value": {"answer": "first"}}\\n')
        for n in range(1, 1000): call(n)
        """,
        "answer first",
    ),
    "changes how JSON is written": attack(
        """
        json.dumps = lambda *_, **__: '!{"failure": "deadline"}\\n={"value": 1}'
        return "x"
        """,
        "protocol",
    ),
    "changes how calls are written": attack(
        """
        for each in gc.get_objects():
            if type(each).__name__ == "Asker":
                type(each)._send = lambda self: say("!" * 100)
        await self.custom(problem, "")
        """,
        "protocol",
    ),
}
ATTACKS = {**RESOURCES, **ENDINGS, **ISOLATION, **PIPE}
