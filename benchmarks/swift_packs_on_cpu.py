"""Lets ms-swift 4.6 pack rows without flash attention: a plugin, given by `--external_plugins`.

ms-swift refuses packs with any other attention, and flash attention has no kernel for CPUs. With
SDPA, Transformers keeps the rows of a pack apart by their positions. For benchmarks alone.
"""

from swift.arguments import SftArguments  # type: ignore[import-not-found]


def accept(self):
    """What ms-swift does, without asking which attention there is."""
    if self.packing:
        self.padding_free = True


SftArguments._check_padding_free = accept
