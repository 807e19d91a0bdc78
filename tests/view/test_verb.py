"""`assay view`: what it prints, what it serves, how it ends."""

import re
import signal
import threading
from pathlib import Path

import httpx
import pytest

from tests.cli.conftest import assert_one_line, call
from tests.pages.synthetic import empty_run
from tests.serve.test_server import started


def test_a_lab_that_is_not_there_is_named(tmp_path: Path):
    assert_one_line(
        call("view", tmp_path / "nowhere", "--lab", tmp_path), "nowhere", "no such folder"
    )


def test_an_address_for_others_needs_a_token_of_the_users(tmp_path, monkeypatch):
    monkeypatch.delenv("ASSAY_SERVE_TOKEN", raising=False)
    done = call("view", tmp_path, "--host", "0.0.0.0", "--port", 0)
    assert_one_line(done, "other machines can reach 0.0.0.0")


@pytest.mark.slow
def test_the_address_that_is_printed_opens_the_lab_until_ctrl_c(tmp_path: Path, monkeypatch):
    monkeypatch.delenv("ASSAY_SERVE_TOKEN", raising=False)
    run = empty_run(tmp_path)
    with started("view", tmp_path, "--port", 0) as process:
        watchdog = threading.Timer(120, process.kill)
        watchdog.start()
        assert process.stderr is not None and process.stdout is not None
        url = next(u[1] for line in process.stderr if (u := re.match(r"open (http\S+)", line)))
        with httpx.Client(follow_redirects=True) as reader:
            assert reader.get(url.partition("?")[0]).status_code == 403
            assert run.id in reader.get(url).text
            # An open stream of events keeps nobody from stopping the server.
            with reader.stream("GET", httpx.URL(url).join("/live")) as events:
                assert events.status_code == 200
                process.send_signal(signal.SIGINT)
                assert process.wait(60) == 0
        watchdog.cancel()
        said = process.stdout.read() + process.stderr.read()
        assert f"showed {tmp_path.name}" in said and "Traceback" not in said
