"""bf16 is computed in only where the hardware has it, weights stay fp32, and the reason is kept."""

import pytest
import torch

from assay.models import precision
from assay.models.matmul import ProductSpeeds
from assay.models.precision import choose_precision


def with_cpu(monkeypatch: pytest.MonkeyPatch, **flags: bool) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: flags)


@pytest.mark.parametrize(("flag", "speed"), [("avx512_bf16", 1.9), ("amx_bf16", 0.0)])
def test_a_cpu_that_is_faster_in_bf16_computes_in_it(
    monkeypatch: pytest.MonkeyPatch, flag: str, speed: float
) -> None:
    with_cpu(monkeypatch, **{flag: True, "avx2": True})
    monkeypatch.setattr(precision, "product_speeds", lambda: ProductSpeeds(1.0, 1.0, speed))
    policy = choose_precision("auto", "cpu")
    assert policy.record() == {
        "master": "float32",
        "compute": "bfloat16",
        "device": "cpu",
        "reason": f"cpu has {flag}",
    }


def test_a_cpu_whose_bf16_products_are_slower_computes_in_fp32(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_cpu(monkeypatch, avx512_bf16=True)
    monkeypatch.setattr(precision, "product_speeds", lambda: ProductSpeeds(1.0, 1.0, 0.57))
    policy = choose_precision("auto", "cpu")
    assert policy.compute == torch.float32
    assert policy.reason == "cpu has avx512_bf16, which is not faster than fp32"


def test_a_cpu_without_bf16_computes_in_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    with_cpu(monkeypatch, avx2=True, avx512_bf16=False)
    policy = choose_precision("auto", "cpu")
    assert (policy.master, policy.compute) == (torch.float32, torch.float32)
    assert policy.reason == "cpu has no bf16 arithmetic"


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


def test_a_stated_precision_overrides_the_hardware(monkeypatch: pytest.MonkeyPatch) -> None:
    with_cpu(monkeypatch, avx512_bf16=True)
    assert choose_precision("fp32", "cpu").compute == torch.float32
    with_cpu(monkeypatch)
    assert choose_precision("bf16", "cpu").compute == torch.bfloat16


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
