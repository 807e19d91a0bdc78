"""Small choices among made-up demonstrations, for tests of selectors."""

import torch
import torch.nn.functional as F

from assay.labs.demos.modules import FeatureTable, SelectionContext

WIDTH, COUNT = 8, 12


def table(width: int = WIDTH, count: int = COUNT, seed: int = 0) -> FeatureTable:
    generator = torch.Generator().manual_seed(seed)
    vectors_ND = F.normalize(torch.randn(count, width, generator=generator), dim=-1)
    return FeatureTable(f"{width}/{count}/{seed}", vectors_ND)


TABLE = table()


def choice(
    index: int = 0,
    pool: tuple[int, ...] = (7, 2, 11, 4, 9),
    shots: int = 2,
    features: FeatureTable = TABLE,
) -> SelectionContext:
    generator = torch.Generator().manual_seed(100 + index)
    query_D = F.normalize(torch.randn(features.width, generator=generator), dim=-1)
    return SelectionContext(f"q{index}", f"asked {index}", pool, shots, features, query_D)
