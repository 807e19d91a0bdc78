"""Features made elsewhere are read as what they are, or refused in one line."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.errors import InputError
from assay.labs.demos.selector_learner import Features
from assay.models.embeddings import read_precomputed
from tests.cli.conftest import assert_one_line, call
from tests.lab.selector_task import HEAD, SHOWN, make_colours_lab, row_of, use_words
from tests.lab.test_demonstration_selector import SFT


@pytest.fixture(autouse=True)
def made_up_features(monkeypatch, tmp_path) -> None:
    use_words(monkeypatch, tmp_path)


@pytest.mark.parametrize("name", ["rce_epoch5.pt", "v2.ckpt"])
def test_weights_of_another_program_are_refused_in_one_line(tmp_path, name):
    path = make_colours_lab(tmp_path, HEAD.replace("selector:pointer", f"path:{name}"), SFT)
    said = ("model: weights that another program trained", "selector:pointer")
    assert_one_line(call("check", path, "--lab", tmp_path), *said)


def hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def features_file(file: Path, **changes: Any) -> Path:
    """Random features of all demonstrations and of the rows of the colours task."""
    rows = [row_of(n, split) for split in ("train", "test") for n in range(60)]
    texts = {row.id: row.prompt[-1].content for row in rows}
    texts |= {each.id: each.asked.content for each in SHOWN.demonstrations}
    features = np.random.default_rng(5).normal(size=(len(texts), 7)).astype("f4")
    arrays = {"ids": [*texts], "features": features, "sha256": [*map(hashed, texts.values())]}
    arrays |= changes
    np.savez(file, **{name: np.array(values) for name, values in arrays.items()})
    return file


def test_features_of_a_file_are_those_of_their_ids_at_length_one(tmp_path):
    file = features_file(tmp_path / "own.npz")
    features, found = Features(f"path:{file}", False), read_precomputed(file)
    table = features.table(SHOWN)
    assert features.width == 7 and table.demonstrations_ND.shape == (60, 7)
    place, _ = found.places["shown-17"]
    assert table.demonstrations_ND[17].equal(found.vectors_ND[place])
    assert table.demonstrations_ND.norm(dim=-1).numpy() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sha256": [hashed("other")] * 180}, "'shown-0' was made of something else"),
        ({"ids": [f"other-{n}" for n in range(180)]}, "no features of 'shown-0'"),
        ({"features": np.full((180, 7), np.nan, "f4")}, "not finite"),
    ],
)
def test_features_that_do_not_belong_to_the_rows_are_refused(tmp_path, changes, said):
    file = features_file(tmp_path / "own.npz", **changes)
    with pytest.raises(InputError, match=said) as refused:
        Features(f"path:{file}", False).table(SHOWN)
    assert str(file) in str(refused.value)
