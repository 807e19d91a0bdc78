"""A name begins once, however many processes try in the same instant."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from assay.errors import InputError
from assay.experiment.experiment import Experiment
from assay.experiment.toml_write import experiment_toml
from assay.runs.registry import fresh_run
from assay.runs.run_directory import RunDirectory, is_held, runs_of

SPEC = experiment_toml(Experiment(name="demo", model="path:model", task="math"))


def test_of_runs_that_begin_at_once_one_does_and_the_others_are_refused(tmp_path: Path) -> None:
    """Locks belong to open files, so that threads stand for processes here."""
    count = 8
    together, held, refused = threading.Barrier(count), ExitStack(), []

    def begin(_: int) -> None:
        together.wait()
        try:
            held.enter_context(fresh_run(tmp_path, "demo", 1, SPEC, new=False))
        except InputError as error:
            refused.append(str(error))

    with held:
        with ThreadPoolExecutor(count) as threads:
            list(threads.map(begin, range(count)))
        assert len(refused) == count - 1
        assert all("it is running" in text for text in refused)
        (run,) = runs_of(tmp_path, "demo")
        assert is_held(run.path)


def test_a_new_run_is_held_and_let_go(tmp_path: Path) -> None:
    with fresh_run(tmp_path, "demo", 1, SPEC, new=False) as first:
        assert is_held(first.path)
        with (
            pytest.raises(InputError, match="exists"),
            fresh_run(tmp_path, "demo", 1, SPEC, new=False),
        ):
            pass
        with fresh_run(tmp_path, "demo", 2, SPEC, new=True) as second:
            assert isinstance(second, RunDirectory) and second != first
    assert not is_held(first.path)
