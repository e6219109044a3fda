from __future__ import annotations

import subprocess
import sys

import pytest

from spica.errors import NoPerfDatabase
from spica.facts import BACKENDS, catalog, known_skus, resolve_backend_version, sku_facts, supported_backends

pytestmark = pytest.mark.real


def test_importing_the_facts_imports_none_of_the_components() -> None:
    code = (
        "import sys, spica.facts; print([m for m in sys.modules if m.split('.')[0] in "
        "('aisimulate_core', 'aisimulate', 'dynamo', 'vizier', 'jax', 'pandas')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_sku_is_what_its_system_file_says() -> None:
    gb200 = sku_facts("gb200")
    assert (gb200.gpus_per_node, gb200.vram_bytes, gb200.gpus_per_rack) == (4, 198_674_743_296, 72)
    h200 = sku_facts("h200_sxm")
    assert (h200.gpus_per_node, h200.vram_bytes, h200.gpus_per_rack) == (8, 151_397_597_184, None)


@pytest.mark.parametrize("sku", ["h200_sxm", "b60", "l4"])
def test_default_versions_are_the_databases_own(sku: str) -> None:
    from aisimulate_core.sdk import perf_database

    versions = {b: perf_database.get_latest_database_version(sku, b) for b in BACKENDS}
    assert supported_backends(sku) == {b: v for b, v in versions.items() if v is not None}


def test_every_sku_with_data_is_known_and_no_table_is_taken_for_one() -> None:
    from aisimulate_core.sdk import perf_database

    assert set(perf_database.get_supported_databases()) <= set(known_skus())
    assert all(perf_database.load_system_spec(sku)["gpu"]["mem_capacity"] > 0 for sku in known_skus())


@pytest.mark.parametrize(
    ("given", "nearest"), [("H100-SXM5-80GB", "h100_sxm"), ("h200", "h200_sxm"), ("GB200", "gb200")]
)
def test_an_unknown_sku_names_the_nearest(given: str, nearest: str) -> None:
    with pytest.raises(NoPerfDatabase) as caught:
        sku_facts(given)
    (problem,) = caught.value.problems
    assert given in problem.message
    assert problem.suggestion == nearest
    assert "h200_sxm" in problem.allowed


def test_a_backend_without_data_says_what_has_some() -> None:
    with pytest.raises(NoPerfDatabase) as caught:
        resolve_backend_version("b60", "trtllm")
    (problem,) = caught.value.problems
    assert problem.message == "no performance data for trtllm on b60"
    assert "on b60: vllm 0.26.0" in problem.allowed
    assert "h200_sxm" in problem.allowed
    with pytest.raises(NoPerfDatabase, match="on l4: no backend at all"):
        resolve_backend_version("l4", "vllm")


def test_an_unknown_backend_names_the_nearest() -> None:
    with pytest.raises(NoPerfDatabase) as caught:
        resolve_backend_version("h200_sxm", "vlm")
    assert caught.value.problems[0].suggestion == "vllm"


def test_the_catalog_lists_what_is_shipped() -> None:
    rows = catalog()
    models = {row.name: row for row in rows.models}
    assert len(models) == len(rows.models) > 80
    deepseek = models["deepseek-ai/DeepSeek-V3"]
    assert (deepseek.architecture, deepseek.is_moe, deepseek.context_length) == (
        "DeepseekV3ForCausalLM",
        True,
        163840,
    )
    hardware = {row.name: row for row in rows.hardware}
    assert dict(hardware["h200_sxm"].backends) == {
        "vllm": "0.24.0",
        "sglang": "0.5.14",
        "trtllm": "1.3.0rc20",
    }
    assert hardware["l4"].backends == ()
