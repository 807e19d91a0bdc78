"""Fixtures that every test may use: where other people's data lies, one thread for torch, no search
of what was imported for garbage, and no deadline for an example."""

import fcntl
import functools
import gc
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from assay.sandbox.pool import WorkerPools
from assay.tasks.helper_model import KINDS, Model

# Until all is collected: what is imported stays. Then a search for garbage after each 700 objects,
# which is Python's own, would take a hundredth of the time.
gc.disable()
gc.set_threshold(20_000, 20, 20)
# Everywhere as on a CI machine: the same examples each time, however long one takes. A quarter of
# them where slow tests are left out.
settings.register_profile("quick", settings.get_profile("ci"), max_examples=25)
# Read when torch is imported. Test processes with a thread for each core take many times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")
SHARED = Path(os.environ.get("ASSAY_SHARED", Path(__file__).parents[1].parent / "shared"))

KEPT = WorkerPools()


def scripted(name: str, file: Path) -> Model:
    """A helper model of `scripted:FILE`; imports torch once a test asks for it."""
    from tests.scripted_helper import opened

    return opened(name, file)


KINDS["scripted"] = scripted


@pytest.fixture
def shared() -> Path:
    """The folder of real rows and oracles; the test is skipped, and counted, where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("ASSAY_SHARED is absent")
    return SHARED


@pytest.fixture(scope="module", autouse=True)
def kept_workers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keeps the workers of built-in rewards from run to run: each imports sympy for a second.

    Not where workers and their isolation are themselves tested, in sandbox and tools.
    """
    if {"sandbox", "tools"} & {*request.path.parts}:
        yield
        return
    pool, renew = WorkerPools.pool, WorkerPools.renew

    def kept(pools: WorkerPools, function: str) -> WorkerPools:
        return KEPT if function.startswith("assay.labs.math") else pools

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WorkerPools, "pool", lambda self, of, *how: pool(kept(self, of), of, *how))
        patch.setattr(WorkerPools, "renew", lambda self, of, *how: renew(kept(self, of), of, *how))
        yield


def pytest_configure(config: pytest.Config) -> None:
    """Chooses how many examples a property is tried on that says nothing of it itself."""
    settings.load_profile("quick" if config.getoption("markexpr") else "ci")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Lets one process collect before the others: they load what it has compiled."""
    with Path(__file__).open(encoding="utf-8") as own:
        try:
            fcntl.flock(own, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(own, fcntl.LOCK_SH)
        return (yield)


def pytest_sessionfinish() -> None:
    """Ends the kept workers."""
    many = sys.modules.get("tests.labs.math.many")
    for each in (KEPT, *([many.worker()] if many else [])):
        each.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives slow tests half an hour where they say nothing else: other programs take long to begin
    where much runs."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(1800))


def pytest_collection_finish() -> None:
    """Takes what was imported and collected out of the search for garbage; code and packages, which
    no test changes on disk, are looked at once for all manifests, and a model's speed, which no
    test is about, is measured in one try."""
    manifest = sys.modules.get("assay.lab.session.manifest")
    for name in ("code_fingerprint", "packages") if manifest else ():
        once = functools.cache(getattr(manifest, name))
        setattr(manifest, name, lambda once=once: {**once()})
    if work := sys.modules.get("assay.lab.check.work"):
        vars(work)["TRIES"] = 1
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def after_garbage() -> Iterator[None]:
    """Takes what a module leaves, such as rows that it keeps, out of the search for garbage, too.

    The lab collects garbage after each model that it drops. Half a million objects of torch, of
    transformers and of pytest's own made that three quarters of a tiny run's time, and the rows of
    the tests before it twice as much again.
    """
    yield
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Shows the figures that tests measured, and how many could not look at the shared oracles."""
    for report in terminalreporter.stats.get("passed", []) + terminalreporter.stats.get(
        "failed", []
    ):
        for name, value in report.user_properties:
            if name == "shown" and report.when == "call":
                terminalreporter.write_line(str(value))
    skipped = terminalreporter.stats.get("skipped", [])
    count = sum("ASSAY_SHARED is absent" in str(report.longrepr) for report in skipped)
    terminalreporter.write_line(f"skipped because ASSAY_SHARED is absent: {count}")
