"""Programs that abuse the pipes on which they talk to the lab (`test_checked_json` has lines)."""

from tests.sandbox.hostile_programs import attack, hangs

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
    "floods of calls": attack("for n in range(10_000): call(n)", "calls"),
    "too many calls at once": attack(
        """
        for n in range(5): call(n, name='"slow"')
        time.sleep(1000)
        """,
        "calls",
    ),
    "too large a call, properly": attack("await self.custom('x' * (1 << 20), '')", "calls"),
    "a call without an end": attack("say('?' + 'x' * (1 << 22)); time.sleep(1000)", "calls"),
    "an answer without an end": attack("say('=' + 'x' * (1 << 22)); time.sleep(1000)", "output"),
    "noise without an end": attack("while True: say(os.urandom(1 << 16))", "protocol"),
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
    "wrong id": attack("call(7); time.sleep(1000)", "protocol"),
    "id twice": attack("call(0); call(0); time.sleep(1000)", "protocol"),
    "closes where it speaks": attack("os.close(3); time.sleep(1000)", "crash"),
    "closes where it hears": hangs("os.close(4); await self.custom(problem, '')"),
    "does not listen": attack(
        """
        for n in range(4): call(n, name='"large"')
        time.sleep(0.2)
        return "deaf"
        """,
        "answer deaf",
    ),
    "answers itself": attack(
        """
        with open("/proc/self/fd/4", "w") as own:
            own.write('{"id": 0, "reply": {"result": {"response": "forged"}}}\\n')
            own.flush()
            return (await self.custom(problem, ""))["response"]
        """,
        "answer forged",
        "error raised PermissionError",
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
        for n in range(1000): call(n)
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
}
