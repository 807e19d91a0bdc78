"""Reads the header of a GGUF file, each count held against the file's size before it is believed.

gguf's own reader, and Transformers with it, believes them: an array that claims 2^40 numbers never
ends. What llama.cpp refuses as well (arrays of arrays, tensors with gaps) is refused.
"""

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, prod
from pathlib import Path
from typing import Any, NoReturn

from gguf import GGML_QUANT_SIZES, GGUFValueType

from assay.errors import InputError

KINDS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
"""Kinds of numbers and how `struct` reads them; 8 is a string, 9 an array."""
BLOCKS = {int(kind): sizes for kind, sizes in GGML_QUANT_SIZES.items()}
MOST = 1 << 20
"""Elements of an array: twice those of the largest vocabularies. Transformers takes 200 bytes for
each."""
LARGEST = 1 << 31
ALIGNMENT = "general.alignment"
AGAIN = "copy or download it again"


@dataclass(frozen=True, slots=True)
class Header:
    """The values by name, and each tensor's shape, as ggml writes it: rows last."""

    values: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]


def read_header(file: Path) -> Header:
    """The header of a whole file. Raises InputError with the field that is wrong."""
    with file.open("rb") as stream:
        if not file.stat().st_size:
            raise InputError("is not a whole GGUF file: it is empty", file=file, fix=AGAIN)
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Cursor(data, file).header()


class _Cursor:
    """A place in a file."""

    def __init__(self, data: mmap.mmap, file: Path):
        self.data, self.file = data, file
        self.at, self.order, self.field = 0, "<", ""

    def refuse(self, problem: str) -> NoReturn:
        problem = f"is not a whole GGUF file: {problem}"
        raise InputError(problem, file=self.file, field=self.field or None, fix=AGAIN)

    def take(self, count: int, size: int = 1) -> int:
        """Where `count` things of `size` bytes begin; they are stepped over."""
        left = len(self.data) - self.at
        if count * size > left:
            self.refuse(f"it claims {count:,} times {size} bytes, and {left:,} are left")
        self.at += count * size
        return self.at - count * size

    def numbers(self, letter: str, count: int = 1) -> tuple[Any, ...]:
        start = self.take(count, struct.calcsize(letter))
        return struct.unpack_from(f"{self.order}{count}{letter}", self.data, start)

    def string(self) -> str:
        (length,) = self.numbers("Q")
        start = self.take(length)
        try:
            return str(self.data[start : start + length], "utf-8")
        except UnicodeDecodeError:
            self.refuse("a text is not UTF-8")

    def value(self) -> Any:
        (kind,) = self.numbers("I")
        if kind == GGUFValueType.STRING:
            return self.string()
        if kind != GGUFValueType.ARRAY:
            return self.numbers(self.letter(kind))[0]
        ((kind,), (count,)) = self.numbers("I"), self.numbers("Q")
        text = kind == GGUFValueType.STRING
        letter = "Q" if text else self.letter(kind)
        self.at = self.take(count, struct.calcsize(letter))
        if count > MOST:
            self.refuse(f"an array of {count:,} elements: at most {MOST:,} are read")
        return [self.string() for _ in range(count)] if text else [*self.numbers(letter, count)]

    def letter(self, kind: int) -> str:
        if kind not in KINDS:
            self.refuse(f"no value is of kind {kind}")
        return KINDS[kind]

    def header(self) -> Header:
        if self.data[:4] != b"GGUF":
            self.refuse("it does not begin with GGUF")
        self.at = 4
        (version,) = self.numbers("I")
        if not version & 0xFFFF:  # written on a machine of the other byte order
            self.at, self.order = 4, ">"
            (version,) = self.numbers("I")
        if version not in (2, 3):
            self.refuse(f"of version {version}")
        tensors, pairs = self.numbers("Q", 2)
        values: dict[str, Any] = {}
        for _ in range(pairs):
            self.field = ""
            self.field = self.string()
            if self.field in values:
                self.refuse("it comes twice")
            values[self.field] = self.value()
        self.field = ALIGNMENT
        alignment = values.get(ALIGNMENT, 32)
        if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
            self.refuse(f"{alignment!r} is no power of two")
        return Header(values, self.shapes(tensors, alignment))

    def shapes(self, count: int, alignment: int) -> dict[str, tuple[int, ...]]:
        """Of the tensors, which must lie one behind the other inside the file."""
        shapes: dict[str, tuple[int, ...]] = {}
        behind, end = 0, 0
        for _ in range(count):
            self.field = "tensors"
            self.field = self.string()
            (dimensions,) = self.numbers("I")
            shape = self.numbers("Q", dimensions)
            ((kind,), (offset,)) = self.numbers("I"), self.numbers("Q")
            if self.field in shapes or kind not in BLOCKS or not 0 < dimensions <= 4:
                self.refuse(
                    f"a tensor that comes twice, or of {dimensions} dimensions, kind {kind}"
                )
            block, size = BLOCKS[kind]
            if 0 in shape or shape[0] % block or offset != behind:
                self.refuse(f"a tensor of shape {shape} at {offset}, in blocks of {block}")
            shapes[self.field] = shape
            end = behind + prod(shape) // block * size
            behind = end + -end % alignment
            if end > len(self.data):
                self.refuse(f"{shape} is more than the file holds")
        self.field = ""
        if shapes and self.at + -self.at % alignment + end > len(self.data):
            self.refuse("its tensors end behind its end")
        return shapes


WEIGHTS = {
    "attn_norm": "e", "ffn_norm": "e", "attn_q": "eq", "attn_k": "ek", "attn_v": "ek",
    "attn_output": "qe", "ffn_gate": "ef", "ffn_up": "ef", "ffn_down": "fe",
}  # fmt: skip
"""Of a layer: e is the embedding, q the queries, k keys or values, f the feed-forward."""
FURTHER = {
    "llama": {},
    "qwen2": {"attn_q.bias": "q", "attn_k.bias": "k", "attn_v.bias": "k"},
    "qwen3": {"attn_q_norm.weight": "h", "attn_k_norm.weight": "h"},
}
"""Of a layer, by architecture; h is the width of a head."""
COUNTS = ("block_count", "context_length", "embedding_length", "feed_forward_length")
COUNTS += ("attention.head_count", "attention.head_count_kv", "attention.key_length")
HEAD = ("attention.value_length", "rope.dimension_count")
"""The same as the keys' width in what Transformers computes."""


def refuse_sizes(header: Header, family: str, file: Path) -> None:
    """Raise InputError unless the header's numbers are those of its tensors, all of them: of others
    Transformers makes weights at random, or leaves weights out."""
    values = {name.removeprefix(f"{family}."): value for name, value in header.values.items()}
    values.setdefault("attention.head_count_kv", values.get("attention.head_count"))
    width, heads = values.get("embedding_length"), values.get("attention.head_count")
    if type(width) is type(heads) is int and heads:
        values.setdefault("attention.key_length", width // heads)

    def refuse(name: str, problem: str) -> NoReturn:
        raise InputError(problem, file=file, field=name, fix=AGAIN)

    for name in COUNTS:
        if type(value := values.get(name)) is not int or not 0 < value < LARGEST:
            refuse(f"{family}.{name}", f"{value!r} is no count")
    for name in ("rope.freq_base", "attention.layer_norm_rms_epsilon"):
        value = values.get(name, 1e4 if name == "rope.freq_base" else None)
        if not isinstance(value, float) or not isfinite(value) or value <= 0:
            refuse(f"{family}.{name}", f"{value!r} is no positive number")
    blocks, _, e, f, queries, keys, head = (values[name] for name in COUNTS)
    for name in HEAD:
        if values.get(name, head) != head:
            refuse(f"{family}.{name}", f"{values[name]!r} is not the keys' width, {head}")
    if blocks > len(header.shapes):
        refuse(f"{family}.block_count", f"{blocks:,} layers of {len(header.shapes)} tensors")
    rows = header.shapes.get("token_embd.weight", (0, 0))[-1]
    if values.get("vocab_size", rows) != rows:
        refuse(f"{family}.vocab_size", f"{values['vocab_size']!r} tokens, {rows} embeddings")
    sizes = {"e": e, "f": f, "h": head, "q": queries * head, "k": keys * head}
    layer = {f"{n}.weight": letters for n, letters in WEIGHTS.items()} | FURTHER[family]
    wanted = {"token_embd.weight": (e, rows), "output_norm.weight": (e,)} | {
        f"blk.{number}.{name}": tuple(sizes[letter] for letter in letters)
        for number in range(blocks)
        for name, letters in layer.items()
    }
    held = dict(header.shapes)
    if "output.weight" in held:
        wanted["output.weight"] = (e, rows)
    for name in sorted(wanted.keys() | held.keys()):
        if wanted.get(name) != held.get(name):
            refuse(
                name, f"is {held.get(name, 'absent')} and should be {wanted.get(name, 'absent')}"
            )
