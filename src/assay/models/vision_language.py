"""Loads models that read images beside text, through Transformers' image-text-to-text classes.

A family in FAMILIES says what text stands for an image and which positions its tokens have; the
chat template and the image processor are the model folder's own, the latter with Pillow and without
torchvision. Processor classes, which also read videos, are not used.

`prefill` computes prompts with images through a model's cache; what prompts begin with alike goes
once. They are cut where they part, each piece is computed after the cache of the piece before it,
and pieces of one depth run as one batch, padded on the left. Two prompts begin alike where their
tokens and the images behind them are the same, so no piece ends inside an image. Beginnings of
fewer than LEAST_SHARED tokens are computed for each prompt. `prefix_tree` does this without
Transformers' forward, for models of text.

Suffixes: R rows, T tokens of a piece, M tokens in the cache, A axes of a position, I tokens of an
image, K last positions, D hidden size, V vocabulary.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoImageProcessor,
    AutoModelForImageTextToText,
    AutoTokenizer,
    DynamicCache,
    PreTrainedConfig,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

from assay.data.episode import common
from assay.data.files import canonical_json, find_damage, sha256_text
from assay.data.message_parts import pillow
from assay.data.renderings.image_prompts import ImageRenderer
from assay.errors import InputError, RunFailure
from assay.models import load
from assay.models.folder import CONFIG, check_model_folder, read_object
from assay.models.precision import Precision
from assay.models.prefix_tree import Tokens, alike
from assay.models.supported import (
    AGAIN,
    open_config,
    quiet_transformers,
    reason,
    shown,
)

TEMPLATE = "chat_template.json"
"""Of older folders: holds the template, and tokenizers do not read it."""


@dataclass(frozen=True)
class ReadImage:
    """An image as a model takes it."""

    sha256: str
    written: str
    """The text that stands for it in a prompt."""
    tokens: int
    """Image tokens in that text: as many as the image's own grid asks for."""
    inputs: Mapping[str, Tensor] = field(repr=False, compare=False)
    """What the vision model takes."""


@dataclass(frozen=True)
class Family:
    """What differs between the families of image-text-to-text models."""

    written: Callable[[PreTrainedConfig, str, Mapping[str, Any]], str]
    """(config, image token, processed image) -> the text that stands for the image."""
    positions: Callable[[Any, Tensor, Sequence[ReadImage]], Tensor]
    """(model, tokens (T), its images) -> positions (A, T)."""
    axes: int = 1
    """A."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """For the image processor."""


def qwen_written(config: Any, image: str, processed: Mapping[str, Any]) -> str:
    """One token for each merged patch of the grid (Transformers' Qwen2_5_VLProcessor); the template
    writes what stands around them."""
    merged = config.vision_config.spatial_merge_size**2
    return image * (int(processed["image_grid_thw"][0].prod()) // merged)


def qwen_positions(model: Any, tokens_T: Tensor, images: Sequence[ReadImage]) -> Tensor:
    """Time, height and width of each token (Qwen2-VL, arXiv 2409.12191, section 2.1)."""
    grids = [image.inputs["image_grid_thw"] for image in images]
    kinds_1T = (tokens_T == model.config.image_token_id).int()[None]
    positions, _ = model.model.get_rope_index(
        tokens_T[None], kinds_1T, image_grid_thw=torch.cat(grids) if grids else None
    )
    return positions[:, 0]


def idefics_written(config: Any, image: str, processed: Mapping[str, Any]) -> str:
    """Tiles row by row, then the whole image (Transformers' Idefics3Processor), each of as many
    tokens as the pixel shuffle leaves (Idefics3, arXiv 2408.12637)."""
    rows, columns = int(processed["rows"][0][0]), int(processed["cols"][0][0])
    vision, around = config.vision_config, "<fake_token_around_image>"
    tile = image * int((vision.image_size // vision.patch_size) ** 2 / config.scale_factor**2)
    text = ""
    for row in range(1, rows + 1):
        marks = (f"{around}<row_{row}_col_{column}>{tile}" for column in range(1, columns + 1))
        text += "".join(marks) + "\n"
    text += "\n" if rows else ""
    return f"{text}{around}<global-img>{tile}{around}"


_QWEN = Family(qwen_written, qwen_positions, axes=3)
_IDEFICS = Family(
    idefics_written,
    lambda model, tokens_T, images: torch.arange(len(tokens_T))[None],
    options={"return_row_col_info": True},
)
FAMILIES: Mapping[str, Family] = {
    "qwen2_vl": _QWEN,
    "qwen2_5_vl": _QWEN,
    "idefics3": _IDEFICS,
    "smolvlm": _IDEFICS,
}
"""By model type."""
INPUTS = ("pixel_values", "pixel_attention_mask", "image_grid_thw")
"""What the vision models of the families take."""


@dataclass(frozen=True)
class VisionLanguage:
    """A model ready to read images and text, in evaluation mode on the policy's device."""

    model: Any
    renderer: ImageRenderer
    processor: Any
    """The folder's image processor."""
    end_tokens: frozenset[int]
    fingerprint: str
    """sha256 of the weights, and that of template and image processor."""

    @property
    def family(self) -> Family:
        """What is particular to the model's family."""
        return FAMILIES[self.model.config.model_type]

    @property
    def image_token(self) -> int:
        """The token that stands for a piece of an image."""
        return self.model.config.image_token_id

    @property
    def token_bytes(self) -> int:
        """Bytes of the keys and values of one token."""
        return position_bytes(self.model.config, self.model.dtype.itemsize)

    @property
    def longest(self) -> int | None:
        """Tokens that the model can read at once; None where it does not say."""
        return getattr(self.model.config.get_text_config(), "max_position_embeddings", None)


def is_vision_language(directory: Path) -> bool:
    """Whether the folder's config is that of an image-text-to-text model of Transformers."""
    if not (directory / CONFIG).is_file():
        return False
    stated = read_object(directory / CONFIG)
    kind = stated.get("model_type")
    known = isinstance(kind, str) and kind in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
    return known and "vision_config" in stated


def read_vision_config(directory: Path) -> PreTrainedConfig:
    """The config of a model of FAMILIES. Raises InputError."""
    file = directory / CONFIG
    stated = read_object(file)
    if stated.get("model_type") not in FAMILIES:
        problem = f"{shown(stated.get('model_type'))} reads images in a way that is not known here"
        fix = f"use one of {', '.join(FAMILIES)}, or ask it behind an endpoint"
        raise InputError(problem, file=file, field="model_type", fix=fix)
    config = open_config(directory)
    kinds = getattr(config.get_text_config(), "layer_types", None) or ()
    if "sliding_attention" in kinds:
        problem = "layers with a sliding window, whose caches cannot be shared between prompts"
        raise InputError(problem, file=file, field="layer_types", fix="use another model")
    return config


def parameter_count(config: PreTrainedConfig) -> int:
    """Weights of the language model and of what reads images, tied ones once. Raises InputError."""
    return load.counted_weights(config, AutoModelForImageTextToText)


def position_bytes(config: PreTrainedConfig, width: int) -> int:
    """Bytes of the keys and values of one token, in numbers of `width` bytes."""
    text: Any = config.get_text_config()
    heads = text.num_attention_heads
    size = getattr(text, "head_dim", None) or text.hidden_size // heads
    return 2 * text.num_hidden_layers * text.num_key_value_heads * size * width


def check_vision_language(directory: Path) -> tuple[PreTrainedConfig, ImageRenderer, Any]:
    """Config, renderer and image processor, as far as is known without the weights.

    Raises InputError, RenderingError, InputError.
    """
    pillow()
    check_model_folder(directory)
    config = read_vision_config(directory)
    load.refuse_oversized(directory, config, load.MASTER_BYTES, AutoModelForImageTextToText)
    renderer = read_renderer(directory, config)
    load.refuse_missing_ids(directory, config, renderer.tokenizer)
    try:
        with quiet_transformers():
            processor = AutoImageProcessor.from_pretrained(
                directory, backend="pil", trust_remote_code=False
            )
    except Exception as error:
        problem = f"its image processor cannot be used: {reason(error) or type(error).__name__}"
        fix = "add the model's preprocessor_config.json"
        raise InputError(problem, file=directory, fix=fix) from error
    return config, renderer, processor


def read_renderer(directory: Path, config: Any) -> ImageRenderer:
    """The folder's tokenizer and chat template. Raises InputError, RenderingError."""
    try:
        with quiet_transformers():
            tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=False)
        image = tokenizer.convert_ids_to_tokens(config.image_token_id)
    except Exception as error:
        problem = f"the tokenizer cannot be used: {reason(error) or type(error).__name__}"
        raise InputError(problem, file=directory, fix=AGAIN) from error
    if not isinstance(image, str):
        problem = f"has no token {config.image_token_id}, which stands for images"
        raise InputError(problem, file=directory, fix=AGAIN)
    source = tokenizer.chat_template
    if (directory / TEMPLATE).is_file():
        source = read_object(directory / TEMPLATE).get("chat_template", source)
    if not isinstance(source, str):
        fix = "add the model's chat_template.jinja"
        raise InputError("has no chat template", file=directory, fix=fix)
    tokenizer.chat_template = source
    renderer = ImageRenderer(tokenizer, source, image)
    renderer.check()
    return renderer


def load_vision_language(directory: Path, precision: Precision) -> VisionLanguage:
    """Load the model with weights in `precision.compute`.

    Raises what `check_vision_language` does, InputError (with every key) and InputError.
    """
    load.keep_freed_memory()
    for damage in find_damage(directory, unless=load.UNREAD):
        raise InputError(damage.problem, file=damage.file, fix="restore it, or make it again")
    config, renderer, processor = check_vision_language(directory)
    model: Any = load.load_strictly(
        directory, config, precision.master, AutoModelForImageTextToText
    )
    load.refuse_not_finite([*model.named_parameters(), *model.named_buffers()], directory)
    ends = load.end_token_ids(model, renderer.tokenizer)
    weights = load.weight_fingerprint(model)
    for parameter in model.parameters():
        # The frequencies of rotary positions are buffers and stay as exact as they are.
        parameter.data = parameter.data.to(precision.compute)
    model.eval().to(precision.device)
    settings = canonical_json(json.loads(processor.to_json_string()))
    made = sha256_text(f"{renderer.fingerprint} {settings}")
    return VisionLanguage(model, renderer, processor, ends, f"{weights} {made}")


def read_picture(loaded: VisionLanguage, sha256: str, picture: Any) -> ReadImage:
    """A picture as the model takes it. Raises InputError for one that its processor refuses."""
    config, family = loaded.model.config, loaded.family
    try:
        processed = loaded.processor(images=[picture], return_tensors="pt", **family.options)
    except ValueError as error:
        raise InputError(f"the image processor refuses it: {reason(error)}") from error
    written = family.written(config, loaded.renderer.image, processed)
    inputs = {name: processed[name] for name in INPUTS if name in processed}
    return ReadImage(sha256, written, written.count(loaded.renderer.image), inputs)


def image_features(loaded: VisionLanguage, image: ReadImage) -> Tensor:
    """What stands for the image tokens (I, D) of one image. Raises RunFailure."""
    device = loaded.model.device
    with torch.no_grad():
        inputs = {name: tensor.to(device) for name, tensor in image.inputs.items()}
        features = loaded.model.get_image_features(**inputs, return_dict=True).pooler_output
        features_ID = torch.cat([each.flatten(0, -2) for each in features])
    if len(features_ID) != image.tokens:
        problem = f"its grid asks for {image.tokens} image tokens, the model made"
        raise RunFailure(f"image {image.sha256[:12]}: {problem} {len(features_ID)}")
    return features_ID


LEAST_SHARED = 16
"""Tokens; a batch of its own costs more than computing fewer again."""
ROWS = 32
"""Prompts computed together."""
CACHE_BYTES = 2 << 30
"""Keys and values of the prompts computed together, unless one needs more."""


@dataclass(frozen=True)
class Reading:
    """A sequence that a model is to read."""

    tokens: Tokens
    images: tuple[ReadImage, ...]
    positions_AT: Tensor = field(repr=False)
    features: tuple[Tensor, ...] = field(repr=False)
    """What the tokens of each image are replaced by (I, D)."""
    read_from: int
    """The first place whose scores are wanted."""

    def features_between(self, first: int, stop: int) -> list[Tensor]:
        """Those of the images that begin at an image token from `first` to `stop`."""
        begins = accumulate((image.tokens for image in self.images), initial=0)
        return [f for f, at in zip(self.features, begins, strict=False) if first <= at < stop]


def reading(
    loaded: VisionLanguage,
    tokens: Tokens,
    images: Sequence[ReadImage],
    features: Sequence[Tensor],
    read_from: int,
) -> Reading:
    """A sequence with the features of its images. Raises RunFailure."""
    count, there = sum(image.tokens for image in images), tokens.count(loaded.image_token)
    if count != there:
        problem = f"the grids of {len(images)} images ask for {count} image tokens"
        raise RunFailure(f"{problem}, the prompt holds {there}")
    positions_AT = loaded.family.positions(loaded.model, torch.tensor(tokens), images)
    return Reading(tokens, tuple(images), positions_AT, tuple(features), read_from)


def compared_as(loaded: VisionLanguage, each: Reading, numbers: dict[str, int]) -> Tokens:
    """The tokens, those of an image replaced by a negative number of its own."""
    own: list[int] = []
    for image in each.images:
        own += [-numbers.setdefault(image.sha256, len(numbers) + 1)] * image.tokens
    left = iter(own)
    return tuple(next(left) if t == loaded.image_token else t for t in each.tokens)


@dataclass(frozen=True)
class Piece:
    """Tokens that the sequences from `first` to `stop` have in common."""

    first: int
    stop: int
    start: int
    end: int
    parent: int = 0
    """The row of the piece before it."""


@dataclass
class Rows:
    """Sequences under way in a batch: their cache, and how their next tokens are numbered."""

    loaded: VisionLanguage
    cache: DynamicCache
    mask_RM: Tensor
    """0 where a row holds no token."""
    next_R: Tensor
    """The position of the next token."""

    def chosen(self, rows: Sequence[int]) -> "Rows":
        """These rows, each as often as it is named; the former ones stay as they are."""
        at_R = torch.tensor(rows, device=self.mask_RM.device)
        layers: list[Any] = self.cache.layers
        kept = [(layer.keys[at_R], layer.values[at_R]) for layer in layers]
        return Rows(self.loaded, DynamicCache(kept or None), self.mask_RM[at_R], self.next_R[at_R])

    def feed(self, tokens_R: Tensor) -> Tensor:
        """Append a token to every row; returns the scores (R, V) after it."""
        model = self.loaded.model
        embedded_R1D = model.get_input_embeddings()(tokens_R[:, None])
        positions_AR1 = self.next_R[None, :, None].expand(self.loaded.family.axes, -1, 1)
        mask_R1 = self.mask_RM.new_ones(len(tokens_R), 1)
        self.next_R = self.next_R + 1
        return self._forward(embedded_R1D, mask_R1, positions_AR1, 1)[:, -1]

    def _forward(
        self, embedded_RTD: Tensor, mask_RT: Tensor, positions_ART: Tensor, keep: int
    ) -> Tensor:
        self.mask_RM = torch.cat([self.mask_RM, mask_RT], dim=1)
        with torch.no_grad():
            return self.loaded.model(
                inputs_embeds=embedded_RTD,
                attention_mask=self.mask_RM,
                position_ids=positions_ART if len(positions_ART) > 1 else positions_ART[0],
                past_key_values=self.cache,
                use_cache=True,
                logits_to_keep=keep,
                return_dict=True,
            ).logits

    def read(self, pieces: Sequence[Piece], readings: Sequence[Reading], keep: int) -> Tensor:
        """Append a piece to every row; returns the scores (R, K, V) of the last places."""
        device = self.mask_RM.device
        longest = max(piece.end - piece.start for piece in pieces)
        parts = [self._embedded(readings[p.first], p) for p in pieces]
        embedded_RTD = torch.stack([left(e.T, longest).T for e in parts])
        mask_RT = torch.stack(
            [left(torch.ones(p.end - p.start, dtype=torch.long), longest) for p in pieces]
        )
        positions_ART = torch.stack(
            [left(readings[p.first].positions_AT[:, p.start : p.end], longest) for p in pieces], 1
        )
        self.next_R = torch.tensor(
            [int(readings[p.first].positions_AT[:, : p.end].max()) + 1 for p in pieces],
            device=device,
        )
        return self._forward(embedded_RTD, mask_RT.to(device), positions_ART.to(device), keep)

    def _embedded(self, each: Reading, piece: Piece) -> Tensor:
        """The piece's tokens (T, D), those of images replaced by their features."""
        tokens = each.tokens[piece.start : piece.end]
        tokens_T = torch.tensor(tokens, device=self.mask_RM.device)
        embedded_TD = self.loaded.model.get_input_embeddings()(tokens_T).detach()
        if shown := tokens.count(self.loaded.image_token):
            before = each.tokens[: piece.start].count(self.loaded.image_token)
            here_ID = torch.cat(each.features_between(before, before + shown))
            embedded_TD[tokens_T == self.loaded.image_token] = here_ID.to(embedded_TD)
        return embedded_TD


def left(values: Tensor, length: int) -> Tensor:
    """The values with zeros before them, along the last dimension."""
    return torch.nn.functional.pad(values, (length - values.shape[-1], 0))


@dataclass(frozen=True)
class Reached:
    """A batch of pieces that was computed."""

    pieces: tuple[Piece, ...]
    logits_RKV: Tensor
    """Scores after the last places of each piece, right-aligned."""
    rows: Rows
    done: tuple[tuple[int, int], ...]
    """(sequence, row) of those that end here."""
    computed: int
    """Tokens that went through the layers."""


def prefill(
    loaded: VisionLanguage, readings: Sequence[Reading]
) -> Iterator[tuple[list[int], Reached]]:
    """Read distinct sequences. Yields the callers' numbers of a batch's sequences in the order that
    its pieces count them by, with each batch of pieces.
    """
    numbers: dict[str, int] = {}
    keys = [compared_as(loaded, each, numbers) for each in readings]
    order = sorted(range(len(readings)), key=lambda n: keys[n])
    for batch in batches(loaded, readings, order):
        for reached in read_batch(loaded, [keys[n] for n in batch], [readings[n] for n in batch]):
            yield batch, reached


def batches(
    loaded: VisionLanguage, readings: Sequence[Reading], order: Sequence[int]
) -> Iterator[list[int]]:
    """Neighbours in an order, as many as are held at once."""
    batch: list[int] = []
    longest = 0
    for n in order:
        longest = max(longest, len(readings[n].tokens))
        full = len(batch) == ROWS or (len(batch) + 1) * longest * loaded.token_bytes > CACHE_BYTES
        if batch and full:
            yield batch
            batch, longest = [], len(readings[n].tokens)
        batch.append(n)
    if batch:
        yield batch


def read_batch(
    loaded: VisionLanguage, keys: Sequence[Tokens], readings: Sequence[Reading]
) -> Iterator[Reached]:
    """Compute sorted sequences, depth by depth."""
    device = loaded.model.device
    pieces = [Piece(*part) for part in pieces_of(keys, 0, len(keys), 0)]
    empty = torch.zeros(1, dtype=torch.long, device=device)
    rows = Rows(loaded, DynamicCache(), empty[:, None][:, :0], empty)
    while pieces:
        rows = rows.chosen([piece.parent for piece in pieces])
        # How many of a piece's last places some sequence wants the scores of.
        least = [min(each.read_from for each in readings[p.first : p.stop]) for p in pieces]
        keep = max(p.end - max(p.start, n) for p, n in zip(pieces, least, strict=True))
        logits_RKV = rows.read(pieces, readings, max(keep, 1))
        ends = [(p.first, row) for row, p in enumerate(pieces) if len(keys[p.first]) == p.end]
        computed = sum(piece.end - piece.start for piece in pieces)
        yield Reached(tuple(pieces), logits_RKV, rows, tuple(ends), computed)
        pieces = [
            Piece(*part, row)
            for row, p in enumerate(pieces)
            for part in pieces_of(keys, p.first + (len(keys[p.first]) == p.end), p.stop, p.end)
        ]


def pieces_of(
    keys: Sequence[Tokens], first: int, stop: int, start: int, depth: int | None = None
) -> Iterator[tuple[int, int, int, int]]:
    """(first, stop, start, end) of the pieces that follow `start`, of sorted sequences that are
    alike up to `depth`."""
    depth = start if depth is None else depth
    for low, high in alike(keys, first, stop, depth):
        shared = common(keys[low], keys[high - 1])
        if high - low == 1 or shared - start >= LEAST_SHARED:
            yield low, high, start, shared
            continue
        if len(keys[low]) == shared:
            yield low, low + 1, start, shared
            low += 1
        yield from pieces_of(keys, low, high, start, shared)
