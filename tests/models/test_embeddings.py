"""Embeddings are what Transformers computes, of length 1, made once and known by their content."""

import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from transformers import AutoModel, AutoTokenizer, CLIPConfig, CLIPModel

from assay.data.row import ImagePart
from assay.models import embeddings
from assay.models.embeddings import (
    Opened,
    TextEncoder,
    embed_images,
    embed_texts,
    minilm_folder,
    two_towers,
)

TEXTS = ["Question: which nerve?\nSubject:", "a", "", "Which nerve passes through the foramen?"]


@pytest.fixture
def counted(monkeypatch, tmp_path) -> list[str]:
    """An encoder "counted" of width 3, with an empty cache; what it was asked for."""
    asked: list[str] = []

    def text(one: str) -> torch.Tensor:
        asked.append(one)
        return torch.tensor([len(one) + 1.0, one.count("a"), 1.0])

    def image(one: ImagePart) -> torch.Tensor:
        if one.data is None:
            embeddings._picture(one)
        return text((one.data or b"").decode())

    encoder = TextEncoder(3, lambda: "sha of counted", lambda: Opened(text, image), images=True)
    monkeypatch.setitem(embeddings.ENCODERS, "counted", encoder)
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path))
    embeddings.opened.cache_clear()
    return asked


@pytest.mark.slow
def test_minilm_is_the_mean_of_transformers_own_states():
    """A batch with padding and its mask, as sentence-transformers pools; ours are one by one."""
    tokenizer = AutoTokenizer.from_pretrained(minilm_folder())
    model = AutoModel.from_pretrained(minilm_folder()).eval()
    given = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        states_NTD = model(**given).last_hidden_state
    mask_NT1 = given["attention_mask"][..., None]
    mean_ND = (states_NTD * mask_NT1).sum(1) / mask_NT1.sum(1)
    found_ND = embed_texts(TEXTS)
    torch.testing.assert_close(found_ND, F.normalize(mean_ND, dim=-1), rtol=0, atol=1e-5)
    assert found_ND.shape == (4, 384)
    assert float(found_ND[0] @ found_ND[3]) > float(found_ND[1] @ found_ND[3])


def test_a_text_is_embedded_once_in_any_process_s_life(counted, tmp_path):
    first = embed_texts(["b", "a", "b"], "counted")
    assert sorted(counted) == ["a", "b"]
    assert torch.equal(embed_texts(["a", "b"], "counted"), first[[1, 0]])
    assert sorted(counted) == ["a", "b"], "the cache knows both"
    torch.testing.assert_close(first.norm(dim=-1), torch.ones(3))
    assert (tmp_path / "embeddings.sqlite").is_file()


def test_an_image_is_known_by_its_content(counted):
    part = ImagePart("sha", "image/png", data=b"abc")
    assert torch.equal(embed_images([part], "counted"), embed_images([part], "counted"))
    assert counted == ["abc"], "a text of the same bytes would be another thing"
    embed_texts(["abc"], "counted")
    assert counted == ["abc", "abc"]


class Words:
    """A processor without files: letters are tokens, the largest ends the text, pictures are made
    of their first byte."""

    def __call__(self, text=None, images=None, **options):
        if text is not None:
            tokens = [ord(letter) % 30 for letter in text[0]][: options["max_length"] - 1]
            return {"input_ids": torch.tensor([[*tokens, 31]])}
        assert images is not None
        return {"pixel_values": images[0]}


def tiny_clip() -> CLIPModel:
    torch.manual_seed(0)
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    small |= {"num_attention_heads": 2}
    text = {**small, "vocab_size": 32, "max_position_embeddings": 12, "eos_token_id": 31}
    vision = {**small, "image_size": 8, "patch_size": 4}
    config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=6)
    return CLIPModel(config).eval()


def test_clip_gives_the_projected_features_of_both_towers(monkeypatch):
    model = tiny_clip()
    pixels = torch.rand(1, 3, 8, 8)
    monkeypatch.setattr(embeddings, "_picture", lambda image: pixels)
    opened = two_towers(model, Words())
    given = Words()(text=["a red ball"], max_length=12)
    with torch.no_grad():
        both = model(input_ids=given["input_ids"], pixel_values=pixels)
    text_D = F.normalize(opened.text("a red ball"), dim=-1)
    torch.testing.assert_close(text_D, both.text_embeds[0])
    image_D = F.normalize(opened.image(ImagePart("0", "image/png")), dim=-1)
    torch.testing.assert_close(image_D, both.image_embeds[0])
    assert torch.isfinite(opened.text("many words " * 9)).all(), "cut at the positions"


@pytest.mark.slow
def test_two_processes_may_embed_the_same_texts(tmp_path):
    """Both write, neither fails, and the vectors are the same."""
    program = (
        "import sys, torch\n"
        "from assay.models import embeddings as e\n"
        "o = e.Opened(lambda t: torch.tensor([float(len(t)), 1.0]))\n"
        "e.ENCODERS['x'] = e.TextEncoder(2, lambda: 'x', lambda: o)\n"
        "v = e.embed_texts(['a' * n for n in range(600)], 'x')\n"
        "print(float(v.sum()))\n"
    )
    environment = os.environ | {"ASSAY_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", program]
    running = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert said[0] == said[1] != ""
