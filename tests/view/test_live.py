"""A page is told when its runs record something"""

import asyncio
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from urllib.parse import parse_qs

import pytest

from assay.lab.monitor.observer import Noting, Observer
from assay.pages.words import words
from assay.runs.metrics import append_metrics
from assay.runs.run_directory import NOW, RunState, hold_run, read_now, stored_status, write_status
from assay.view import window as live
from assay.view.window import Window, changes, live_address
from tests.pages.synthetic import empty_run


async def never() -> bool:
    return False


def told_of(window: Window, names: list[str], deeds: list[Callable[[], object]]) -> list[str]:
    """The events of a page that was made before the first deed; each deed waits for an event."""
    (seen,) = parse_qs(live_address(window, names).partition("?")[2])["seen"]

    async def told() -> list[str]:
        kinds = []
        deeds[0]()
        async for event in changes(window, names, seen, never, words()):
            if event.startswith("event"):
                kinds.append(event.partition("\n")[0].removeprefix("event: "))
                if len(kinds) == len(deeds):
                    break
                deeds[len(kinds)]()
        return kinds

    return asyncio.run(told())


@pytest.mark.parametrize("every", [False, True])
def test_a_page_is_told_that_its_run_grew_was_killed_went_on_and_ended(
    tmp_path, monkeypatch, every
):
    monkeypatch.setattr(live, "EVERY", 0.0)
    run, held = empty_run(tmp_path), ExitStack()

    def says(status: RunState) -> None:
        write_status(run.path, replace(stored_status(run.path), status=status))

    def grows(step: int = 1) -> None:
        append_metrics(run.metrics, "rl", step, 2.0, reward_mean=0.5)

    says("running")
    held.enter_context(hold_run(run.path))
    deeds = [
        grows,  # before the page listens
        partial(grows, 2),
        held.close,  # nothing is written by a process that is killed
        lambda: held.enter_context(hold_run(run.path)),
        lambda: (says("finished"), held.close()),
    ]
    names = [] if every else [f"lab/{run}"]
    kinds = told_of(Window({"lab": tmp_path}), names, deeds)
    assert kinds == ["grown", "grown", "turned", "turned", "turned"]


def test_a_page_of_finished_runs_is_told_the_last_and_then_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(live, "EVERY", 0.0)
    run = empty_run(tmp_path)
    window, name = Window({"lab": tmp_path}), f"lab/{run}"
    write_status(run.path, replace(stored_status(run.path), status="finished"))

    async def told() -> list[str]:
        return [event async for event in changes(window, [name], "before", never, words())]

    assert [event.split("\n")[0] for event in asyncio.run(told())][1:] == ["event: grown"]
    assert live_address(window, [name]) == ""


@pytest.mark.parametrize("name", ["lab/{gone}", "lab/x/20200101T000000Z-aaaaaa", "zzz/zzz", "/"])
def test_a_page_of_a_run_that_is_gone_is_told_to_turn_and_then_nothing(tmp_path, name):
    gone = empty_run(tmp_path)
    shutil.rmtree(gone.path)

    async def told() -> list[str]:
        every = changes(Window({"lab": tmp_path}), [name.format(gone=gone)], "seen", never, words())
        return [event async for event in every]

    assert asyncio.run(told())[1:] == [live.TURNED]


def test_what_a_live_run_is_at_is_told_once_a_second_and_forgotten_at_its_end(tmp_path):
    run, now = empty_run(tmp_path), [0.0]
    write_status(run.path, replace(stored_status(run.path), status="running"))
    observer = Noting(Observer(), run, lambda: now[0])
    observer.stage("rl", "grpo", 0, 4)
    now[0] = 90.0
    observer.step(1, {})
    observer.inside("sampled", 3, 8)  # within a second of the step's own note
    assert read_now(run.path) is None  # nobody holds it
    with hold_run(run.path):
        assert live.now_text(run, words("en")) == "rl: step 2 of 4 · 4:30 left in this stage"
        now[0] += 2
        observer.inside("sampled", 5, 8)
        text = "rl: step 2 of 4 · sampled 5 of 8 · 4:30 left in this stage"
        assert live.now_text(run, words("en")) == text
        name = f"lab/{run}"

        async def told() -> list[str]:
            every = changes(Window({"lab": tmp_path}), [name], "", never, words("en"))
            return [await anext(every) for _ in range(3)]

        assert asyncio.run(told())[2] == f"event: now\ndata: {text}\n\n"
        observer.end(run)
        assert live.now_text(run, words("en")) == "" and not (run.path / NOW).exists()
