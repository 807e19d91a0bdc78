"""bf16 is computed in only where the hardware has it, weights stay fp32, and the reason is kept."""

import pytest
import torch

from assay.models import precision
from assay.models.matmul import ProductSpeeds
from assay.models.precision import choose_precision


@pytest.mark.parametrize(
    ("flags", "speed", "compute", "why"),
    [
        (["avx512_bf16", "avx2"], 1.9, "bfloat16", "cpu has avx512_bf16"),
        (["amx_bf16"], 0.0, "bfloat16", "cpu has amx_bf16"),
        (["avx512_bf16"], 0.57, "float32", "cpu has avx512_bf16, which is not faster than fp32"),
        (["avx2"], 0.0, "float32", "cpu has no bf16 arithmetic"),
    ],
)
def test_a_cpu_computes_in_bf16_where_that_is_faster(monkeypatch, flags, speed, compute, why):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: dict.fromkeys(flags, True))
    monkeypatch.setattr(precision, "product_speeds", lambda: ProductSpeeds(1.0, 1.0, speed))
    found = {"master": "float32", "compute": compute, "device": "cpu", "reason": why}
    assert choose_precision("auto", "cpu").record() == found


@pytest.mark.parametrize(("native", "compute"), [(True, torch.bfloat16), (False, torch.float32)])
def test_a_gpu_that_only_emulates_bf16_computes_in_fp32(
    monkeypatch: pytest.MonkeyPatch, native: bool, compute: torch.dtype
) -> None:
    def supported(including_emulation: bool = True) -> bool:
        return native or including_emulation

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    policy = choose_precision()
    assert (policy.device, policy.compute) == ("cuda", compute)


@pytest.mark.parametrize(("name", "dtype"), [("bf16", torch.bfloat16), ("fp32", torch.float32)])
def test_autocast_computes_products_in_the_compute_type_alone(
    name: precision.PrecisionName, dtype: torch.dtype
) -> None:
    layer = torch.nn.Linear(4, 4)
    with choose_precision(name, "cpu").autocast():
        output = layer(torch.ones(1, 4))
    output.float().sum().backward()
    assert output.dtype == dtype
    assert layer.weight.dtype == torch.float32
    assert layer.weight.grad is not None and layer.weight.grad.dtype == torch.float32
