"""Programs that reach for what is not theirs: files, processes, sockets, the kernel."""

from tests.sandbox.hostile_programs import attack

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
