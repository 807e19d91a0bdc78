"""A process that says nothing for longer than the patience of the experiment ends the work."""

import signal
import subprocess
import sys

import pytest
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from assay.engines.ranks import Others
from assay.engines.register import EngineOpening, VllmEngine
from assay.errors import RunFailure
from assay.experiment.tables import EngineSpec, patience_seconds


@pytest.mark.parametrize("words", ["", "half a line"])
def test_an_engine_that_says_nothing_is_ended(tmp_path, words) -> None:
    program = f"import time; print({words!r}, end='', flush=True); time.sleep(600)"
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe, text=True)
    opening = EngineOpening("model", "float32", "cpu", patience=0.3)
    with pytest.raises(RunFailure, match=r"asked to score and said nothing for 0.005 minutes"):
        VllmEngine(opening, process, tmp_path / "log", tmp_path).score([[5]], [[6]])
    assert process.wait() == -signal.SIGKILL


def test_the_experiment_says_it_in_minutes_half_an_hour_where_it_does_not() -> None:
    assert patience_seconds(EngineSpec(patience=2)) == 120
    assert patience_seconds(None) == patience_seconds(EngineSpec()) == 1800


@pytest.mark.parametrize("stopped", [False, True])
def test_a_rank_that_does_not_come_is_named(tmp_path, monkeypatch, stopped) -> None:
    monkeypatch.setattr("assay.engines.ranks.SECONDS_TO_END", 0.1)
    others = Others([subprocess.Popen(["sleep", "600"])], [tmp_path / "log"])
    if stopped:
        others.processes[0].send_signal(signal.SIGSTOP)
    store = TCPStore("127.0.0.1", 0, 2, is_master=True, wait_for_workers=False)
    expected = "rank 1 is stopped" if stopped else r"said nothing for 0.005 minutes \(engine.pat"
    with pytest.raises(RunFailure, match=expected):
        others.wait_for(store, patience=0.3)
    others.end()
