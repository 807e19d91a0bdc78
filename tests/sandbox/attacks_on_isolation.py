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
    "hinders the supervisor": attack(
        """
        done = []
        for attempt in (lambda: resource.prlimit(1, resource.RLIMIT_CPU, (1, 1)),
                lambda: os.setpriority(os.PRIO_PROCESS, 1, 19),
                lambda: resource.prlimit(1, resource.RLIMIT_NOFILE, (3, 3)),
                lambda: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0)),
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
}
