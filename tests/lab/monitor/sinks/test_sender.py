"""A run sends to its sinks every step once, whatever fails or is killed, and is never stopped."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.errors import InputError
from assay.experiment.read_file import made
from assay.experiment.tables import LogSpec
from assay.lab.monitor import sender as sender_module
from assay.lab.monitor.sinks import SINKS, check_log
from assay.pages.facts import gather
from assay.pages.story import warnings
from assay.pages.words import words
from assay.runs.notes import read_notes
from tests.lab.monitor.sinks.logged_run import (
    ALL,
    Kept,
    Noted,
    do_steps,
    expected,
    logged,
    logging,
    make_run,
    state,
)

Calls = list[tuple[Any, ...]]


class Remote:
    """What the sink `kept` got, whether it works, and how often it was opened."""

    def __init__(self) -> None:
        self.calls: Calls = []
        self.openings: list[Any] = []
        self.broken = ""
        self.has: int | None = None
        self.gate = threading.Event()
        self.gate.set()

    def open(self, given: Any) -> Kept:
        self.gate.wait()
        if self.broken == "closed":
            raise ConnectionError("nobody answers")
        self.openings.append(given)
        return Kept(given, self.calls, lambda: self.broken, step=self.has)

    def steps(self) -> list[tuple[int, str, float]]:
        """Step, name and value of the losses that arrived."""
        found = [
            (c[1], name, v) for c in self.calls if c[0] == "metrics" for name, v in c[2].items()
        ]
        return [each for each in found if each[1].endswith("/nll")]


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> Iterator[Remote]:
    found = Remote()
    monkeypatch.setitem(SINKS, "kept", found.open)
    monkeypatch.setattr(sender_module, "FIRST_PAUSE", 0.01)
    yield found
    found.gate.set()


def wait_for(met: Callable[[], bool]) -> None:
    while not met():
        time.sleep(0.005)


def test_every_step_arrives_once_counted_over_all_stages(tmp_path: Path, remote: Remote):
    made = (_, run) = make_run(tmp_path, to=["kept"])
    logged(made, ALL)
    assert remote.steps() == expected(run) and len(expected(run)) == 8
    values = remote.calls[0][2]
    assert values == {"warm/nll": expected(run)[0][2], "warm/seconds": 0.5}
    assert remote.calls[-1] == ("close", "running")
    assert state(run, "kept").step == 8 and state(run, "kept").problem == ""


def test_a_resumed_run_continues_the_remote_run_without_repeating_steps(
    tmp_path: Path, remote: Remote
):
    made = (_, run) = make_run(tmp_path, to=["kept"])
    logged(made, ALL[:6])
    logged(made, ALL[5:])  # from the checkpoint of step 1 of the second stage
    assert remote.steps() == expected(run)
    assert [each.remote for each in remote.openings] == ["", "remote-1"]


@pytest.mark.parametrize("has", [2, 4])
def test_what_the_remote_run_says_it_has_counts_more_than_what_was_sent(
    tmp_path: Path, remote: Remote, has: int
):
    """A killed process loses what the package had not stored, or the note that it was stored."""
    made = (_, run) = make_run(tmp_path, to=["kept"])
    logged(made, ALL[:3])
    do_steps(run, Noted(), ALL[3:4])
    remote.calls.clear()
    remote.has = has
    logged(made, ALL[4:])
    assert remote.steps() == expected(run)[has:]


@pytest.mark.parametrize("when", ["closed", "no route"])
def test_a_sink_that_fails_for_ever_stops_no_run_and_is_said_once(
    tmp_path: Path, remote: Remote, when: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("WANDB_API_KEY", "secret-key-0123456789")
    remote.broken = when if when == "closed" else "no route for secret-key-0123456789"
    experiment, run = make_run(tmp_path, to=["kept"])
    noted = Noted()
    with logging(experiment, run, noted) as observer:
        do_steps(run, observer, ALL)
        wait_for(lambda: state(run, "kept").problem != "")
    (said,) = noted.notes
    assert said.startswith("kept failed, and the run goes on: ConnectionError: no")
    (note,) = read_notes(tmp_path)
    assert note.text == said and note.about == str(run)
    assert "0123456789" not in said + (run.path / "sinks.json").read_text()
    found = state(run, "kept")
    assert found.step == 0 and found.problem.startswith("ConnectionError")
    (warning,) = [w for w in warnings(gather(run), words("en")) if "kept" in w]
    assert "up to step 0 only" in warning


def test_what_a_failed_sink_lacks_is_sent_when_the_run_is_resumed(tmp_path: Path, remote: Remote):
    experiment, run = make_run(tmp_path, to=["kept"])
    with logging(experiment, run) as observer:
        do_steps(run, observer, ALL[:2])
        wait_for(lambda: state(run, "kept").step == 2)
        remote.broken = "down"
        do_steps(run, observer, ALL[2:6])
        wait_for(lambda: state(run, "kept").problem != "")
    remote.broken = ""
    logged((experiment, run), ALL[6:])
    assert remote.steps() == expected(run) and state(run, "kept").problem == ""


def test_a_slow_sink_does_not_delay_a_step_and_is_given_up_when_its_queue_is_full(
    tmp_path: Path, remote: Remote, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sender_module, "MOST_WAITING", 3)
    remote.gate.clear()
    made = (_, run) = make_run(tmp_path, to=["kept"])
    logged(made, ALL)
    assert "did not keep up" in state(run, "kept").problem
    remote.gate.set()
    logged(made, ())
    assert sorted(set(remote.steps())) == expected(run)


def test_a_sink_that_hangs_at_the_end_is_left_alone(
    tmp_path: Path, remote: Remote, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sender_module, "LAST_SECONDS", 0.1)
    remote.gate.clear()
    noted = Noted()
    logged(make_run(tmp_path, to=["kept"]), ALL[:1], noted)
    assert "did not end within" in noted.notes[0]
    remote.gate.set()
    wait_for(lambda: bool(remote.calls) and remote.calls[-1][0] == "close")


def test_one_sink_that_fails_keeps_nothing_from_another(
    tmp_path: Path, remote: Remote, monkeypatch: pytest.MonkeyPatch
):
    other = Remote()
    other.broken = "closed"
    monkeypatch.setitem(SINKS, "other", other.open)
    made = (_, run) = make_run(tmp_path, to=["other", "kept"])
    logged(made, ALL)
    assert remote.steps() == expected(run) and not other.calls
    assert state(run, "kept").problem == "" and state(run, "other").problem


def test_a_sink_without_its_package_names_the_extra(remote: Remote, monkeypatch: Any):
    monkeypatch.setitem(SINKS, "absent", remote.open)
    monkeypatch.setattr("assay.lab.monitor.sinks.PACKAGES", ("absent",))
    with pytest.raises(InputError, match=r"log\.to: absent needs .*'assay-lab\[absent\]'"):
        check_log(made(LogSpec, {"to": ["absent"]}))


def test_an_unknown_sink_is_refused():
    with pytest.raises(InputError, match=r"log\.to: unknown sink 'tensorbord' \(did you mean"):
        check_log(made(LogSpec, {"to": ["tensorbord"]}))
