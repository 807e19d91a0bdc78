"""Programs that take all there is, or end as no program should."""

from tests.sandbox.hostile_programs import attack, hangs

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
    "thread bomb": hangs(
        """
        while True:
            try:
                threading.Thread(target=time.sleep, args=(1000,)).start()
            except RuntimeError:
                pass
        """,
        "processes",
        # The stacks of its threads use up its address space.
        "memory",
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
    "memory that processes share": attack(
        """
        import mmap
        for _ in range(5):
            if os.fork() == 0:
                kept = mmap.mmap(-1, 190 << 20)
                for at in range(0, len(kept), 1 << 20):
                    kept[at : at + (1 << 20)] = b"x" * (1 << 20)
                time.sleep(1000)
        time.sleep(1000)
        """,
        "memory",
    ),
    "one shared memory of many processes": attack(
        """
        import mmap
        kept = mmap.mmap(-1, 190 << 20)
        for at in range(0, len(kept), 1 << 20):
            kept[at : at + (1 << 20)] = b"x" * (1 << 20)
        for _ in range(6):
            if os.fork() == 0:
                assert sum(kept[::4096]) > 0
                time.sleep(1000)
        time.sleep(1)
        return "counted once"
        """,
        "answer counted once",
    ),
    "memory in files that are deleted": attack(
        """
        opened = []
        for folder in ("/tmp", "/run", "/dev/shm"):
            for n in range(15):
                opened.append(open(f"{folder}/{n}", "wb", buffering=0))
                opened[-1].write(b"x" * (4 << 20))
                os.unlink(opened[-1].name)
        for _ in range(3):
            if os.fork() == 0:
                kept = bytearray(b"x") * (120 << 20)
                time.sleep(1000)
        time.sleep(1000)
        """,
        "memory",
    ),
    "number of a billion digits": hangs("9 ** 9 ** 9", "memory"),
    "signals ignored": hangs(
        """
        for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_IGN)
        signal.alarm(1)
        while True: pass
        """
    ),
    "stops itself": hangs("os.kill(os.getpid(), signal.SIGSTOP)"),
    "answer without end": attack("return 'x' * (2 << 20)", "output"),
    "open files without end": attack(
        "kept = [open('/dev/null') for _ in itertools.count()]", "error raised OSError"
    ),
}

ENDINGS = {
    "exit of the process": attack("os._exit(0)", "crash"),
    "invalid memory": attack("ctypes.string_at(0)", "crash"),
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
}
