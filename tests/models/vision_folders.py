"""Tiny random models that read images, with tokenizer, template and image processor, as folders,
and real images: those of easy-vqa."""

import hashlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForImageTextToText,
    Idefics3Config,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2VLConfig,
    SmolVLMConfig,
)
from transformers.models.idefics3.processing_idefics3 import Idefics3Processor
from transformers.models.qwen2_5_vl.processing_qwen2_5_vl import Qwen2_5_VLProcessor
from transformers.models.smolvlm.processing_smolvlm import DEFAULT_CHAT_TEMPLATE

from assay.data.message_parts import images_in, picture_of
from assay.data.row import ImagePart, Message, TextPart
from assay.data.wheels import wheel_directory
from tests.models.folders import tiny_tokenizer

KINDS = ("qwen2_5_vl", "qwen2_vl", "idefics3", "smolvlm")
QWEN_TEMPLATE = (
    "{% for m in messages %}{% if loop.first and m['role'] != 'system' %}"
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}"
    "<|im_start|>{{ m['role'] }}\n{% if m['content'] is string %}{{ m['content'] }}{% else %}"
    "{% for c in m['content'] %}{% if c['type'] == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ c['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Lays turns and images out as Qwen2.5-VL's own template does."""
TEXT = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 256,
    "eos_token_id": 256,
    "bos_token_id": None,
}


def vision_tokenizer(kind: str) -> PreTrainedTokenizerFast:
    """The byte-level tokenizer with the control tokens of a family."""
    tokenizer = tiny_tokenizer()
    if kind.startswith("qwen"):
        more = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
        tokenizer.chat_template = QWEN_TEMPLATE
    else:
        tiles = [f"<row_{row}_col_{column}>" for row in (1, 2, 3) for column in (1, 2, 3)]
        more = ["<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>"]
        more += tiles
        tokenizer.chat_template = DEFAULT_CHAT_TEMPLATE
    special = ["<|im_start|>", "<|im_end|>", *more]
    tokenizer.add_special_tokens({"additional_special_tokens": special})  # type: ignore[arg-type]
    return tokenizer


def vision_config(kind: str, tokenizer: PreTrainedTokenizerFast, positions: int) -> Any:
    """The config of a tiny model."""
    text = {**TEXT, "vocab_size": len(tokenizer), "max_position_embeddings": positions}
    names: Any = tokenizer.convert_tokens_to_ids
    if kind.startswith("qwen"):
        rope = {"rope_type": "default", "mrope_section": [2, 1, 1], "rope_theta": 10000.0}
        vision = {"depth": 2, "num_heads": 2, "patch_size": 4, "spatial_merge_size": 2}
        if kind == "qwen2_5_vl":
            vision |= {"hidden_size": 32, "out_hidden_size": 32, "intermediate_size": 64}
            vision |= {"window_size": 16, "fullatt_block_indexes": [1]}
        else:
            vision |= {"embed_dim": 32, "hidden_size": 32}
        made = Qwen2_5_VLConfig if kind == "qwen2_5_vl" else Qwen2VLConfig
        return made(
            text_config={**text, "rope_parameters": rope},
            vision_config=vision,
            image_token_id=names("<|image_pad|>"),
            video_token_id=names("<|video_pad|>"),
            vision_start_token_id=names("<|vision_start|>"),
            vision_end_token_id=names("<|vision_end|>"),
            tie_word_embeddings=False,
        )
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}
    made = Idefics3Config if kind == "idefics3" else SmolVLMConfig
    return made(
        text_config={"model_type": "llama", **text},
        vision_config={**sizes, "num_hidden_layers": 2, "image_size": 16, "patch_size": 4},
        image_token_id=names("<image>"),
        scale_factor=2,
        tie_word_embeddings=False,
    )


def image_processor(kind: str) -> Any:
    """Its image processor: 16 image tokens at most, or tiles of 4."""
    # These modules import Pillow, which is an extra.
    from transformers.models.idefics3 import image_processing_pil_idefics3 as idefics3
    from transformers.models.qwen2_vl import image_processing_pil_qwen2_vl as qwen2
    from transformers.models.smolvlm import image_processing_pil_smolvlm as smolvlm

    if kind.startswith("qwen"):
        sizes = {"shortest_edge": 256, "longest_edge": 1024}
        return qwen2.Qwen2VLImageProcessorPil(patch_size=4, merge_size=2, size=sizes)
    sizes: Any = {"size": {"longest_edge": 32}, "max_image_size": {"longest_edge": 16}}
    if kind == "idefics3":
        return idefics3.Idefics3ImageProcessorPil(**sizes)
    return smolvlm.SmolVLMImageProcessorPil(**sizes)


def save_vision_model(folder: Path, kind: str, positions: int = 4096) -> None:
    """A random model, the same at every call."""
    torch.manual_seed(0)
    tokenizer = vision_tokenizer(kind)
    model = AutoModelForImageTextToText.from_config(vision_config(kind, tokenizer, positions))
    # Random weights of the usual size hardly look at their images.
    for weight in model.parameters():
        weight.data *= 8.0 if weight.dim() > 1 else 1.0
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    image_processor(kind).save_pretrained(folder)


def real_image(number: int, box: tuple[int, int, int, int] | None = None) -> bytes:
    """A test image of easy-vqa, or a part of it, as PNG."""
    image = pytest.importorskip("PIL.Image", reason="needs pillow")
    folder = wheel_directory("easy-vqa") / "easy_vqa" / "data" / "test" / "images"
    data = (folder / f"{number}.png").read_bytes()
    if box is None:
        return data
    out = io.BytesIO()
    image.open(io.BytesIO(data)).crop(box).save(out, "PNG")
    return out.getvalue()


def image_of(data: bytes, media_type: str = "image/png") -> ImagePart:
    """A part of a message that holds these bytes."""
    where = ("rows.jsonl", 3, "messages[0].content[0].image_url")
    return ImagePart(hashlib.sha256(data).hexdigest(), media_type, data=data, origin=where)


def shown(data: bytes, text: str) -> Message:
    """A question about an image."""
    return Message("user", text, parts=(image_of(data), TextPart(text)))


class WithoutVideos(Qwen2_5_VLProcessor):
    """Transformers' own processor, for images alone: its video processor needs torchvision."""

    def check_argument_for_proper_class(self, argument_name: str, argument: Any) -> Any:
        if argument is not None:
            return super().check_argument_for_proper_class(argument_name, argument)
        return None


def processed(kind: str, messages: Sequence[Message]) -> Any:
    """What Transformers' own processor makes of a conversation."""
    tokenizer, images = vision_tokenizer(kind), image_processor(kind)
    if kind.startswith("qwen"):
        processor: Any = WithoutVideos(images, tokenizer, None)
    else:
        # SmolVLM's asks for two more packages, for videos, and writes images in the same way.
        processor = Idefics3Processor(images, tokenizer, image_seq_len=4)
    said = []
    for message in messages:
        parts = [{"type": "text", "text": message.content}]
        said.append(
            {"role": message.role, "content": [{"type": "image"}] * len(message.parts[1:]) + parts}
        )
    text = tokenizer.apply_chat_template(said, add_generation_prompt=True, tokenize=False)
    pictures = [picture_of(part) for part in images_in(messages)]
    return processor(text=[text], images=[pictures], return_tensors="pt", add_special_tokens=False)
