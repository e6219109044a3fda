"""The format experts run in: data of this model, on this SKU, for an engine that quantizes activations."""

from __future__ import annotations

import pytest

from spica.facts import expert_format, model_facts

GPT = "openai/gpt-oss-120b"


@pytest.mark.real
@pytest.mark.parametrize(
    ("model", "sku", "backend", "version", "expected"),
    [
        (GPT, "b200_sxm", "trtllm", "1.3.0rc20", "w4a8_mxfp4_mxfp8"),
        # Hopper has no such kernels; vLLM keeps bfloat16 activations; others are no MXFP4.
        (GPT, "h200_sxm", "trtllm", "1.3.0rc20", None),
        (GPT, "b200_sxm", "vllm", "0.24.0", None),
        ("Qwen/Qwen3-30B-A3B", "b200_sxm", "trtllm", "1.3.0rc20", None),
        ("Qwen/Qwen3-32B", "b200_sxm", "trtllm", "1.3.0rc20", None),
    ],
)
def test_the_format_of_experts(
    model: str, sku: str, backend: str, version: str, expected: str | None
) -> None:
    assert expert_format(model_facts(model).path, sku, backend, version) == expected
