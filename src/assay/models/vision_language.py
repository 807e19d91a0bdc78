"""Loads models that read images beside text, through Transformers' image-text-to-text classes.

A family in FAMILIES says what text stands for an image and which positions its tokens have; the
chat template and the image processor are the model folder's own, the latter with Pillow and without
torchvision. Processor classes, which also read videos, are not used. How prompts are computed is
`shared_prefill`'s.

Suffixes: T tokens, A axes of a position, I tokens of an image, D hidden size.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoImageProcessor,
    AutoModelForImageTextToText,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

from assay.data.files import find_damage
from assay.data.hashing import canonical_json, sha256_text
from assay.data.message_parts import pillow
from assay.data.renderings.image_prompts import ImageRenderer
from assay.errors import InputError, RunFailure
from assay.models.folder import CONFIG, check_model_folder
from assay.models.load import (
    UNREAD,
    end_token_ids,
    held,
    keep_freed_memory,
    load_strictly,
    refuse_missing_ids,
)
from assay.models.memory import available_memory
from assay.models.precision import Precision
from assay.models.state_dicts import refuse_not_finite, weight_fingerprint
from assay.models.supported import (
    AGAIN,
    quiet_transformers,
    read_object,
    reason,
    shown,
)

TEMPLATES = ("chat_template.json",)
"""Files of older folders that hold the template, which tokenizers do not read."""


@dataclass(frozen=True)
class ReadImage:
    """An image as a model takes it."""

    sha256: str
    written: str
    """The text that stands for it in a prompt."""
    tokens: int
    """Image tokens in that text: those that the image's own grid asks for."""
    inputs: Mapping[str, Tensor] = field(repr=False, compare=False)
    """What the vision model takes."""


@dataclass(frozen=True)
class Family:
    """What differs between the families of image-text-to-text models."""

    written: Callable[[PreTrainedConfig, str, Mapping[str, Any]], str]
    """(config, image token, processed image) -> the text that stands for the image."""
    tokens: Callable[[PreTrainedConfig, Mapping[str, Any]], int]
    """How many image tokens the grid of a processed image asks for."""
    positions: Callable[[Any, Tensor, Sequence[ReadImage]], Tensor]
    """(model, tokens (T), its images) -> positions (A, T)."""
    axes: int = 1
    """A."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """For the image processor."""


def qwen_tokens(config: Any, processed: Mapping[str, Any]) -> int:
    """Patches of the grid, merged (Transformers' Qwen2_5_VLProcessor)."""
    merged = config.vision_config.spatial_merge_size**2
    return int(processed["image_grid_thw"][0].prod()) // merged


def qwen_positions(model: Any, tokens_T: Tensor, images: Sequence[ReadImage]) -> Tensor:
    """Time, height and width of each token (Qwen2-VL, arXiv 2409.12191, section 2.1)."""
    grids = [image.inputs["image_grid_thw"] for image in images]
    kinds_1T = (tokens_T == model.config.image_token_id).int()[None]
    found, _ = model.model.get_rope_index(
        tokens_T[None], kinds_1T, image_grid_thw=torch.cat(grids) if grids else None
    )
    return found[:, 0]


def tile_tokens(config: Any) -> int:
    """Image tokens of one tile after the pixel shuffle (Idefics3, arXiv 2408.12637)."""
    vision = config.vision_config
    return int((vision.image_size // vision.patch_size) ** 2 / config.scale_factor**2)


def idefics_tokens(config: Any, processed: Mapping[str, Any]) -> int:
    """Those of each tile, and of the whole image where it was cut into tiles."""
    rows, columns = _tiles(processed)
    return (rows * columns + 1) * tile_tokens(config)


def idefics_written(config: Any, image: str, processed: Mapping[str, Any]) -> str:
    """Tiles row by row, then the whole image (Transformers' Idefics3Processor)."""
    rows, columns = _tiles(processed)
    around, tile = "<fake_token_around_image>", image * tile_tokens(config)
    text = ""
    for row in range(1, rows + 1):
        text += "".join(
            f"{around}<row_{row}_col_{column}>{tile}" for column in range(1, columns + 1)
        )
        text += "\n"
    text += "\n" if rows else ""
    return f"{text}{around}<global-img>{tile}{around}"


def _tiles(processed: Mapping[str, Any]) -> tuple[int, int]:
    return int(processed["rows"][0][0]), int(processed["cols"][0][0])


_QWEN = Family(
    # One token for each merged patch; the template writes what stands around them.
    lambda config, image, processed: image * qwen_tokens(config, processed),
    qwen_tokens,
    qwen_positions,
    axes=3,
)
_IDEFICS = Family(
    idefics_written,
    idefics_tokens,
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
    if stated.get("quantization_config") is not None:
        fix = "use the model as it was before it was quantised"
        raise InputError(
            "quantised weights are not read here", file=file, field="quantization_config", fix=fix
        )
    try:
        with quiet_transformers():
            config = AutoConfig.from_pretrained(directory, trust_remote_code=False)
    except Exception as error:
        raise InputError(f"not a known model config: {reason(error)}", file=file) from error
    kinds = getattr(config.get_text_config(), "layer_types", None) or ()
    if "sliding_attention" in kinds:
        problem = "layers with a sliding window, whose caches cannot be shared between prompts"
        raise InputError(problem, file=file, field="layer_types", fix="use another model")
    return config


def parameter_count(config: PreTrainedConfig) -> int:
    """Weights of the language model and of what reads images, tied ones once.

    Raises InputError where Transformers makes no model of the config.
    """
    try:
        with quiet_transformers(), torch.device("meta"):
            model = AutoModelForImageTextToText.from_config(config)
    except Exception as error:
        problem = f"Transformers makes no model of it: {reason(error)}"
        raise InputError(problem, fix="restore the model's own config") from error
    return sum(parameter.numel() for parameter in model.parameters())


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
    _refuse_oversized(directory, config)
    renderer = read_renderer(directory, config)
    refuse_missing_ids(directory, config, renderer.tokenizer)
    return config, renderer, read_image_processor(directory)


def _refuse_oversized(directory: Path, config: PreTrainedConfig) -> None:
    """Raise InputError where the files hold another model, or memory is too small."""
    asked, there = parameter_count(config), held(directory).values
    if not there // 2 <= asked <= 2 * there:
        problem = f"asks for {asked:,} weights, and its files hold {there:,}"
        fix = "use the config that belongs to these weights"
        raise InputError(problem, file=directory / CONFIG, fix=fix)
    free = available_memory("cpu")
    if 4 * asked > free:
        needs = f"{4 * asked / 2**30:.1f} GiB of memory and {free / 2**30:.1f} are free"
        fix = "use a smaller model, or a machine with more memory"
        raise InputError(f"the weights need {needs}", file=directory, fix=fix)


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
    source = read_template(directory, tokenizer)
    tokenizer.chat_template = source
    renderer = ImageRenderer(tokenizer, source, image)
    renderer.check()
    return renderer


def read_template(directory: Path, tokenizer: PreTrainedTokenizerBase) -> str:
    """The chat template of the processor, else that of the tokenizer. Raises InputError."""
    for name in TEMPLATES:
        if (directory / name).is_file():
            found = read_object(directory / name).get("chat_template")
            if isinstance(found, str):
                return found
    if isinstance(tokenizer.chat_template, str):
        return tokenizer.chat_template
    fix = "add the model's chat_template.jinja"
    raise InputError("has no chat template", file=directory, fix=fix)


def read_image_processor(directory: Path) -> Any:
    """The folder's image processor as Pillow computes it. Raises InputError."""
    try:
        with quiet_transformers():
            return AutoImageProcessor.from_pretrained(
                directory, backend="pil", trust_remote_code=False
            )
    except Exception as error:
        problem = f"its image processor cannot be used: {reason(error) or type(error).__name__}"
        fix = "add the model's preprocessor_config.json"
        raise InputError(problem, file=directory, fix=fix) from error


def load_vision_language(directory: Path, precision: Precision) -> VisionLanguage:
    """Load the model with weights in `precision.compute`.

    Raises what `check_vision_language` does, InputError (with every key) and InputError.
    """
    keep_freed_memory()
    for damage in find_damage(directory, unless=UNREAD):
        raise InputError(damage.problem, file=damage.file, fix="restore it, or make it again")
    config, renderer, processor = check_vision_language(directory)
    model: Any = load_strictly(directory, config, precision.master, AutoModelForImageTextToText)
    refuse_not_finite([*model.named_parameters(), *model.named_buffers()], directory)
    ends = end_token_ids(model, renderer.tokenizer)
    weights = weight_fingerprint(model)
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
    return ReadImage(
        sha256,
        family.written(config, loaded.renderer.image, processed),
        family.tokens(config, processed),
        {name: processed[name] for name in INPUTS if name in processed},
    )


def image_features(loaded: VisionLanguage, image: ReadImage) -> Tensor:
    """What stands for the image tokens (I, D) of one image. Raises RunFailure."""
    device = loaded.model.device
    with torch.no_grad():
        inputs = {name: tensor.to(device) for name, tensor in image.inputs.items()}
        found = loaded.model.get_image_features(**inputs, return_dict=True).pooler_output
        features_ID = torch.cat([each.flatten(0, -2) for each in found])
    if len(features_ID) != image.tokens:
        problem = f"its grid asks for {image.tokens} image tokens, the model made"
        raise RunFailure(f"image {image.sha256[:12]}: {problem} {len(features_ID)}")
    return features_ID
