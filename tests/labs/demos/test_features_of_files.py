"""Features made elsewhere are read as what they are, or refused in one line."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from assay.errors import InputError
from assay.labs.demos.selector_learner import Features
from assay.models.embeddings import read_precomputed
from tests.lab.selector_task import SHOWN, row_of, use_words


@pytest.fixture(autouse=True)
def made_up_features(monkeypatch, tmp_path) -> None:
    use_words(monkeypatch, tmp_path)


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
    if file.suffix == ".npz":
        ids, features, hashes = (np.array(arrays[name]) for name in ("ids", "features", "sha256"))
        np.savez(file, ids=ids, features=features, sha256=hashes)
    else:
        about = {name: json.dumps(arrays[name]) for name in ("ids", "sha256")}
        save_file({"features": torch.from_numpy(arrays["features"])}, file, about)
    return file


@pytest.mark.parametrize("name", ["own.npz", "own.safetensors"])
def test_features_of_a_file_are_those_of_their_ids_at_length_one(tmp_path, name):
    file = features_file(tmp_path / name)
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
