"""The example of the page on replays runs as it is written, on a tiny model in the place of the
demo's, and prints what the page says that it prints."""

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import call
from tests.docs.pages import DOCS, blocks
from tests.models.folders import save_tiny_model

pytestmark = pytest.mark.slow  # A byte is a token here, of which the page's rows have thousands.
ANYONES = [
    "model=path:model",
    "data.train.max_prompt_tokens=2000",
    "data.dev.max_prompt_tokens=2000",
    *("data.train.take.rows=16", "data.dev.take.rows=8"),
]
"""What another model needs: a byte is a token here."""
SHORT = [
    f"evaluate.{name}.{setting}"
    for name in ("dev", "bfcl")
    for setting in ("take.rows=1", "sampling.max_tokens=1")
]
"""The page does not look at scores."""


def commands() -> list[list[str]]:
    """The words of every `assay` command in the page's examples, but for the bare form."""
    text = "\n".join(blocks("replay.md", "sh")).replace("\\\n", " ")
    found = [shlex.split(line) for line in text.splitlines()]
    return [words for words in found if words and "RUN" not in words]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of the page's first command."""
    root = tmp_path_factory.mktemp("lab")
    # Its tokenizer takes a token for each byte, of which real rows have thousands.
    save_tiny_model(root / "model", positions=32768)
    assay, verb, file, *options = commands()[0]
    assert (assay, verb) == ("assay", "run")
    more = [part for setting in ANYONES + SHORT for part in ("--set", setting)]
    done = call(verb, DOCS.parent / file, *options, *more, "--lab", root)
    assert done.exit_code == 0, done.stderr
    return root


def labels(text: str) -> list[str]:
    """What stands first in each row of the tables, but for numbers, parameters and marks."""
    first = re.findall(r"^[│┃] (.+?) +[│┃]", text, re.MULTILINE)
    return [label for label in first if re.match(r"[a-z](?!odel\.)", label)]


def test_the_replay_of_the_page_prints_the_tables_of_the_page(lab: Path) -> None:
    (shown,) = blocks("replay.md", "text")
    _, *words = commands()[1]
    done = call(*words, "--lab", lab)
    assert done.exit_code == 0, done.stderr
    printed = iter(labels(done.stdout))
    assert labels(shown) and all(label in printed for label in labels(shown)), "in this order"
    for line in (
        "reproduced exactly",
        "of 16 samples",
        "grpo.step-000001, the weights that sampled",
    ):
        assert line in shown and line in " ".join(done.stdout.split())


def test_every_sample_is_listed_with_an_address_that_show_takes(lab: Path) -> None:
    replay, show = commands()[2:]
    found = json.loads(call(*replay[1:], "--lab", lab).stdout)["result"]
    assert len(found["samples"]) == 16
    address = found["samples"][0]["id"]
    form = re.escape(show[2]).replace("ROW", ".+").replace("SAMPLE", r"\d+")
    assert re.fullmatch(form.replace("demo\\-quick", r"demo-quick(/[\w-]+)?"), address)
    assert call(show[1], address, "--lab", lab).exit_code == 0
