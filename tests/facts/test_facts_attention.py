"""The number format of prefill attention against the installed tables."""

import pytest

from spica.facts import model_facts, prefill_attention_format, resolve_backend_version


def chosen(model: str, sku: str, backend: str) -> str | None:
    version = resolve_backend_version(sku, backend)
    return prefill_attention_format(model_facts(model).path, sku, backend, version)


@pytest.mark.real
def test_an_fp8_model_without_fp8_attention_data_is_timed_in_bfloat16() -> None:
    from aisimulate_core.sdk import perf_database

    version = resolve_backend_version("gb200", "trtllm")
    database = perf_database.get_database("gb200", "trtllm", version)
    assert "fp8" not in database.supported_quant_mode["context_mla"]
    assert chosen("deepseek-ai/DeepSeek-V3", "gb200", "trtllm") == "bfloat16"


@pytest.mark.real
def test_a_bfloat16_model_needs_no_other_format() -> None:
    assert chosen("Qwen/Qwen3-32B", "h200_sxm", "vllm") is None
