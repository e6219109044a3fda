"""The mappings given to the replay: read by eye, then by the runtime's own parser."""

from __future__ import annotations

from typing import Any

import pytest
from evaluation_samples import MOE, Make

from spica.deployment.sample import EngineSettings, KvManager
from spica.deployment.shapes import ParallelShape
from spica.evaluate.engine_args import engine_args, ignored_settings, unsupported_reason

OFFLOAD = KvManager(2000, 262144, 50.0, 40.0)


def test_dense_aggregated_worker_by_eye() -> None:
    assert engine_args(Make(startup_time=30).sample(), "agg") == {
        "engine": {
            "backend": "vllm",
            "worker_type": "aggregated",
            "block_size": 64,
            "max_num_seqs": 256,
            "max_num_batched_tokens": 8192,
            "enable_prefix_caching": True,
            "max_model_len": 40960,
            "timing_model": {
                "type": "external",
                "provider": "ais",
                "config": {
                    "model": "Qwen/Qwen3-32B",
                    "system": "h200_sxm",
                    "backend": "vllm",
                    "backend_version": "0.24.0",
                    "worker_type": "aggregated",
                    "tp": 2,
                    "attention_dp": 1,
                },
            },
        },
        "dp_size": 1,
        "tensor_parallel_size": 2,
        "gpu_memory_utilization": 0.9,
        "startup_time": 30.0,
    }


@pytest.mark.parametrize(
    ("backend", "key"),
    [
        ("vllm", "gpu_memory_utilization"),
        ("sglang", "mem_fraction_static"),
        ("trtllm", "free_gpu_memory_fraction"),
    ],
)
def test_each_backend_names_its_memory_share(backend: Any, key: str) -> None:
    args = engine_args(Make(backend=backend).sample(), "agg")
    shares = {"gpu_memory_utilization", "mem_fraction_static", "free_gpu_memory_fraction"} & set(args)
    assert shares == {key}


def _engine(args: dict[str, Any]) -> dict[str, Any]:
    engine: dict[str, Any] = args["engine"]
    return engine


def _timing(args: dict[str, Any]) -> dict[str, Any]:
    config: dict[str, Any] = _engine(args)["timing_model"]["config"]
    return config


def test_moe_widths_stand_only_in_moe_shapes() -> None:
    dep = Make(model=MOE, shape=ParallelShape(1, 1, 2, 1, 2)).sample()
    config = _timing(engine_args(dep, "agg"))
    assert (config["tp"], config["attention_dp"], config["moe_tp_size"], config["moe_ep_size"]) == (
        1,
        2,
        1,
        2,
    )
    assert engine_args(dep, "agg")["dp_size"] == 2
    one_gpu = _timing(engine_args(Make(model=MOE, shape=ParallelShape()).sample(), "agg"))
    assert "moe_tp_size" not in one_gpu
    assert "moe_ep_size" not in one_gpu


def test_speculation_stands_in_both_places_and_zero_in_none() -> None:
    args = engine_args(Make(aic_nextn=2).sample(), "agg")
    assert (_engine(args)["aic_nextn"], _timing(args)["nextn"]) == (2, 2)
    off = engine_args(Make(aic_nextn=0).sample(), "agg")
    assert "aic_nextn" not in _engine(off)
    assert "nextn" not in _timing(off)


def test_offload_on_prefill_and_not_on_decode() -> None:
    sample = Make(kv=OFFLOAD, disagg=True).sample()
    prefill, decode = _engine(engine_args(sample, "prefill")), _engine(engine_args(sample, "decode"))
    assert prefill["native_host_offload"] == {
        "num_host_blocks": 2000,
        "d2h_bandwidth_gbps": 50.0,
        "h2d_bandwidth_gbps": 40.0,
    }
    assert prefill["kv_cache_bytes_per_token"] == 262144
    assert "native_host_offload" not in decode
    assert decode["enable_prefix_caching"] is False


def test_what_the_replay_cannot_model_is_said() -> None:
    assert unsupported_reason(Make(kv=OFFLOAD).sample()) is None
    assert "vllm only, not sglang" in (unsupported_reason(Make(backend="sglang", kv=OFFLOAD).sample()) or "")
    uncached = EngineSettings(8192, 256, enable_prefix_caching=False)
    assert "prefix_caching" in (unsupported_reason(Make(kv=OFFLOAD, engine=uncached).sample()) or "")
    assert "1 to 5" in (unsupported_reason(Make(aic_nextn=6).sample()) or "")
    assert unsupported_reason(Make(aic_nextn=5).sample()) is None
    assert "without speculation" in (unsupported_reason(Make(kv=OFFLOAD, aic_nextn=2).sample()) or "")
    assert ignored_settings(OFFLOAD) == ()
    (note,) = ignored_settings(KvManager(2000, 262144, offload_batch_size=16))
    assert "offload_batch_size 16" in note


@pytest.mark.real
@pytest.mark.parametrize(("backend", "tokens"), [("vllm", 751550), ("sglang", 756186), ("trtllm", 780352)])
def test_the_runtime_sizes_the_kv_pool_from_the_estimator(backend: Any, tokens: int) -> None:
    """Whole 64-token blocks of the estimator's capacity; the capacities are those published for it."""
    from dynamo.mocker.config import normalize_mocker_config

    normal = normalize_mocker_config(engine_args(Make(backend=backend).sample(), "agg"))
    assert normal["engine"]["num_gpu_blocks"] == tokens // 64
    assert normal["num_gpu_blocks_is_explicit"] is False


@pytest.mark.real
def test_the_runtime_takes_every_role_and_shape() -> None:
    from dynamo.mocker.config import normalize_mocker_config

    shapes = {
        "tep": ParallelShape(2, 1, 1, 1, 2),
        "dep": ParallelShape(1, 1, 2, 1, 2),
        "moe_tp": ParallelShape(2, 1, 1, 2, 1),
        "one": ParallelShape(),
    }
    for shape in shapes.values():
        sample = Make(model=MOE, shape=shape, disagg=True, kv=OFFLOAD, replicas=1).sample()
        for role in ("prefill", "decode"):
            normal = normalize_mocker_config(engine_args(sample, role))
            assert normal["dp_size"] == shape.attention_dp
            assert normal["engine"]["worker_type"] == role
            assert (normal["engine"].get("native_host_offload") is not None) == (role == "prefill")


def test_sglang_is_told_the_step_of_prefill_twice_and_others_once() -> None:
    """SGLang's scheduler reads the tokens of a step from these two alone."""
    told = _engine(engine_args(Make(backend="sglang").sample(), "agg"))["sglang"]
    assert told == {"chunked_prefill_size": 8192, "max_prefill_tokens": 8192}
    for backend in ("vllm", "trtllm"):
        assert "sglang" not in _engine(engine_args(Make(backend=backend).sample(), "agg"))
