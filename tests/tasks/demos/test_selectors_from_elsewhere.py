"""Selectors and features made elsewhere are read as what they are, or refused in one line."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from assay.errors import InputError
from assay.lab.run.runner import start
from assay.models.embeddings import read_precomputed
from assay.tasks.demos.modules import SelectorSizes, make_selector
from assay.tasks.demos.selector_encoder import Features
from assay.tasks.demos.selector_learner import read_foreign
from tests.cli.conftest import assert_one_line, call
from tests.lab.selector_task import HEAD, SHOWN, make_colours_lab, row_of, use_words
from tests.lab.test_demonstration_selector import SFT, picks_of, run_in

THEIRS = {
    "gate.": "query_update_gate.",
    "cross_attn.": "cross_attn_layers.0.",
    "attn_norm.": "attn_norms.0.",
}


@pytest.fixture(autouse=True)
def made_up_features(monkeypatch, tmp_path) -> None:
    use_words(monkeypatch, tmp_path)


def weights(kind: str = "pointer", width: int = 11, gate: bool = True) -> dict[str, Tensor]:
    sizes = SelectorSizes(width, 16, 0.5, 0.1, gate, 60)
    return dict(make_selector(kind, sizes, 3).state_dict())


def in_their_words(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The names of Lever-Plus's trainer."""

    def theirs(name: str) -> str:
        found = next((ours for ours in THEIRS if name.startswith(ours)), None)
        return name if found is None else THEIRS[found] + name.removeprefix(found)

    return {theirs(name): tensor for name, tensor in state.items()}


def saved(file: Path, state: Mapping[str, Tensor]) -> Path:
    about = {"epoch": 5, "phase": "rce", "kl_beta": 0.1, "metrics": {"val_loss": 1.25}}
    torch.save({**about, "model_state_dict": dict(state)}, file)
    return file


@pytest.mark.parametrize("gate", [True, False])
def test_a_pointer_of_the_trainer_is_read_under_its_names_with_its_gate_or_none(tmp_path, gate):
    state = weights(gate=gate)
    found = read_foreign(saved(tmp_path / "rce_epoch5.pt", in_their_words(state)))
    assert (found.kind, found.width) == ("pointer", 11)
    assert found.settings == {"hidden": 16, "gate": gate}
    assert found.state.keys() == state.keys()
    assert all(found.state[name].equal(state[name]) for name in state)


def test_lightning_s_file_is_read_without_the_encoder_beside_the_selector(tmp_path):
    state = weights()
    whole = {f"lever_lm.pointer_selector.{name}": tensor for name, tensor in state.items()}
    file = tmp_path / "v2.ckpt"
    torch.save({"state_dict": {**whole, "lever_lm.clip.weight": torch.zeros(2)}}, file)
    assert read_foreign(file).state.keys() == state.keys()


def test_a_bi_encoder_brings_its_temperature(tmp_path):
    state = weights("bi_encoder")
    found = read_foreign(saved(tmp_path / "v1.pt", {**state, "temperature": torch.tensor([0.07])}))
    assert (found.kind, found.width) == ("bi_encoder", 11)
    assert found.settings == {"temperature": pytest.approx(0.07)}
    assert found.state.keys() == state.keys()


class Code:
    def __reduce__(self) -> Any:
        return print, ("run",)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"decoder_gru.weight_ih": torch.zeros(1)}, "version 4-2: a GRU updates its query"),
        ({"stop_token": torch.zeros(1), "decoder_gru.x": torch.zeros(1)}, "version 4-10"),
        ({"cross_attn_layers.1.in_proj_weight": torch.zeros(1)}, "several layers"),
        ({"lm_head.weight": torch.zeros(1)}, "holds no selector of Lever-Plus: lm_head.weight"),
        ({}, "no tensor"),
        ([1, 2], "holds a list, no weights"),
        ({"model_state_dict": {"a": Code()}}, "is not read as plain tensors"),
    ],
)
def test_what_is_another_selector_or_none_is_told_in_one_line(tmp_path, capsys, content, said):
    torch.save(content, tmp_path / "x.pt")
    with pytest.raises(InputError, match=said):
        read_foreign(tmp_path / "x.pt")
    assert "run" not in capsys.readouterr().out


@pytest.mark.slow
def test_a_model_of_such_a_file_picks_as_the_selector_did_and_trains_on(tmp_path):
    """The first run's checkpoint is given the trainer's names, and is the model of the second."""
    (run,) = start(make_colours_lab(tmp_path, HEAD, SFT), root=tmp_path)
    from safetensors.torch import load_file

    trained = load_file(run.checkpoint("imitate", 40) / "module.safetensors")
    saved(tmp_path / "rce_epoch5.pt", in_their_words(trained))
    head = HEAD.replace("selector:pointer", "path:rce_epoch5.pt").replace('"colours"', '"next"', 1)
    (tmp_path / "next.toml").write_text(head + SFT)
    (after,) = start(tmp_path / "next.toml", root=tmp_path)
    assert picks_of(after, "base") == picks_of(run_in(tmp_path), "imitate.step-000040")


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("absent.pt", ("absent.pt", "no such")),
        ("wide.pt", ("wide.pt", "selector.features", "reads features of width 12, and minilm has")),
        ("hidden.pt", ("hidden.pt", "selector.hidden", "16, and the file has 8")),
    ],
)
def test_a_file_that_does_not_fit_is_refused_before_the_run(tmp_path, file, words):
    saved(tmp_path / "wide.pt", in_their_words(weights(width=12)))
    small = make_selector("pointer", SelectorSizes(11, 8, 0.5, 0.1, False, 60), 3).state_dict()
    saved(tmp_path / "hidden.pt", in_their_words(small))
    path = make_colours_lab(tmp_path, HEAD.replace("selector:pointer", f"path:{file}"), SFT)
    assert_one_line(call("run", path, "--lab", tmp_path), *words)
    assert not (tmp_path / "runs").exists()


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


@pytest.mark.slow
def test_a_selector_trains_on_features_of_a_file(tmp_path):
    features_file(tmp_path / "own.npz")
    head = HEAD.replace("[selector]", '[selector]\nfeatures = "path:own.npz"')
    (run,) = start(make_colours_lab(tmp_path, head, SFT), root=tmp_path)
    about = json.loads((run.checkpoint("imitate", 40) / "selector.json").read_text())
    assert about["sizes"]["width"] == 7


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ids": ["a"] * 180}, "for 1 ids and 180 hashes"),
        ({"sha256": [hashed("other")] * 180}, "'shown-0' was made of something else"),
        ({"ids": [f"other-{n}" for n in range(180)]}, "no features of 'shown-0'"),
        ({"features": np.full((180, 7), np.nan, "f4")}, "not finite"),
        ({"features": np.zeros(7, "f4")}, r"features of shape \(7,\)"),
    ],
)
def test_features_that_do_not_belong_to_the_rows_are_refused(tmp_path, changes, said):
    file = features_file(tmp_path / "own.npz", **changes)
    with pytest.raises(InputError, match=said) as refused:
        Features(f"path:{file}", False).table(SHOWN)
    assert str(file) in str(refused.value)


def test_a_file_without_hashes_says_what_it_has_to_hold(tmp_path):
    np.savez(tmp_path / "own.npz", ids=np.array(["a"]), features=np.zeros((1, 7)))
    with pytest.raises(InputError, match=r"sha256.*it holds ids, features, sha256"):
        read_precomputed(tmp_path / "own.npz")
