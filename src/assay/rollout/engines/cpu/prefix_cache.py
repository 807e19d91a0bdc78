"""Keeps keys and values of token blocks that several prompts begin with, or continue.

A radix tree over blocks of tokens: a block is found under the blocks before it, compared token by
token. Past a memory budget the least recently used blocks go first. What is stored holds for one
set of weights only; forgetting it when they change is the owner's business.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

BLOCK = 32
"""Tokens of one block."""
BUDGET_BYTES = 1 << 30

Place = tuple[int, tuple[int, ...]]
"""The number of the block before (0 for none) and a block's tokens."""


@dataclass
class PrefixStore:
    """Blocks of keys and values (L, 2, J, BLOCK, D), L layers, by the tokens up to them."""

    budget: int = BUDGET_BYTES
    used: int = 0
    blocks: OrderedDict[Place, tuple[int, Tensor]] = field(default_factory=OrderedDict)
    made: int = 0

    def find(self, tokens: Sequence[int]) -> list[Tensor]:
        """The stored blocks that `tokens` begins with, now the most recently used ones."""
        path = list(self._walk(tokens))
        # A block is of no use without those before it, so they must outlive it.
        for place in reversed(path):
            self.blocks.move_to_end(place)
        return [self.blocks[place][1] for place in path]

    def count(self, tokens: Sequence[int]) -> int:
        """How many blocks of `tokens` are stored; their use is not noted."""
        return sum(1 for _ in self._walk(tokens))

    def add(self, tokens: Sequence[int], keys_values: Tensor) -> None:
        """Store the whole blocks of `tokens`, whose keys and values are (L, 2, J, T, D)."""
        number, path = 0, []
        for first, block in whole_blocks(tokens):
            place = (number, block)
            if place not in self.blocks:
                self.made += 1
                piece = keys_values[..., first : first + BLOCK, :].clone()
                self.blocks[place] = (self.made, piece)
                self.used += piece.nbytes
            number = self.blocks[place][0]
            path.append(place)
        for place in reversed(path):
            self.blocks.move_to_end(place)
        while self.used > self.budget:
            _, (_, piece) = self.blocks.popitem(last=False)
            self.used -= piece.nbytes

    def _walk(self, tokens: Sequence[int]) -> Iterator[Place]:
        number = 0
        for _, block in whole_blocks(tokens):
            place = (number, block)
            if place not in self.blocks:
                return
            yield place
            number = self.blocks[place][0]


def most_bytes(token_bytes: int, tokens: int) -> int:
    """What a store takes at most, where contexts have `tokens` in all."""
    return min(BUDGET_BYTES, token_bytes * tokens)


def whole_blocks(tokens: Sequence[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The index of the first token, and the tokens, of every whole block."""
    for first in range(0, len(tokens) - BLOCK + 1, BLOCK):
        yield first, tuple(tokens[first : first + BLOCK])


def shared_prefixes(contexts: Iterable[Sequence[int]]) -> dict[Sequence[int], int]:
    """For each distinct context, how many tokens of it are whole blocks that another begins with.

    At least one token of a context always stays out: something must be fed to go on from.
    """
    numbers: dict[Place, int] = {}
    users: dict[int, int] = {}
    paths: dict[Sequence[int], list[int]] = {}
    for context in dict.fromkeys(contexts):
        number, paths[context] = 0, []
        for _, block in whole_blocks(context[:-1]):
            number = numbers.setdefault((number, block), len(numbers) + 1)
            users[number] = users.get(number, 0) + 1
            paths[context].append(number)
    return {
        context: BLOCK * sum(users[number] > 1 for number in path)
        for context, path in paths.items()
    }


def joined(blocks: Sequence[Tensor]) -> Tensor:
    """Keys and values (L, 2, J, T, D) of consecutive blocks."""
    return torch.cat(list(blocks), dim=3)
