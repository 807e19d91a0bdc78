"""Weights of another program are no selector."""

import pytest

from tests.cli.conftest import assert_one_line, call
from tests.lab.selector_task import HEAD, make_colours_lab, use_words
from tests.lab.test_demonstration_selector import SFT


@pytest.fixture(autouse=True)
def made_up_features(monkeypatch, tmp_path) -> None:
    use_words(monkeypatch, tmp_path)


@pytest.mark.parametrize("name", ["rce_epoch5.pt", "v2.ckpt"])
def test_weights_of_another_program_are_refused_in_one_line(tmp_path, name):
    path = make_colours_lab(tmp_path, HEAD.replace("selector:pointer", f"path:{name}"), SFT)
    said = ("is no selector", "selector:pointer")
    assert_one_line(call("check", path, "--lab", tmp_path), *said)
