"""The likelihood batches that SFT and RFT share: each trained token weighs the same."""

from collections.abc import Sequence

from assay.data.episode import Episode
from assay.rl.aggregation import sft_weights
from assay.rl.objectives import Nll
from assay.rl.packed import Packed, pack

NLL = Nll()


def likelihood_batch(episodes: Sequence[Episode], temperature: float = 1.0) -> Packed:
    """Episodes packed so that each trained token of the batch weighs the same."""
    packed = pack(episodes, temperature)
    return packed.with_tokens(weight_S=sft_weights(packed.mask_S, packed.episode_S))
