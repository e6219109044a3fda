"""Files to deploy from, against the flags and templates of the installed ai-dynamo."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from made_run import agg, disagg, sample

from spica.deployment.shapes import AggConfig, ParallelShape, WorkerGroup
from spica.ship.launch import launch_script
from spica.ship.manifests import DeployContext, graph_yaml, planner_settings, resource_name
from spica.ship.workers import frontend_environment, worker_arguments, workers_of

CONTEXT = DeployContext("1.6.1", gpus_per_node=8)


def arguments(parallel: AggConfig, **more: object) -> list[str]:
    config = sample(parallel, **more).config()  # type: ignore[arg-type]
    return worker_arguments(workers_of(config)[0])


def pairs(flags: list[str]) -> dict[str, str]:
    """Flags with the value that follows, empty for a switch."""
    found = {}
    for index, flag in enumerate(flags):
        if flag.startswith("--"):
            value = flags[index + 1] if index + 1 < len(flags) else ""
            found[flag] = "" if value.startswith("--") else value
    return found


def moe(tp: int, dp: int, moe_tp: int, moe_ep: int) -> AggConfig:
    return AggConfig(WorkerGroup(ParallelShape(tp, 1, dp, moe_tp, moe_ep), 1))


def test_vllm_dense_worker() -> None:
    assert arguments(agg(2, 4), tokens=16384, seqs=512) == [
        "--model", "Qwen/Qwen3-32B", "--tensor-parallel-size", "2",
        "--max-num-batched-tokens", "16384", "--max-num-seqs", "512", "--block-size", "64",
        "--gpu-memory-utilization", "0.9", "--enable-prefix-caching",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "tensor", "data", "experts"),
    [((8, 1, 1, 8), "8", None, True), ((1, 8, 1, 8), "1", "8", True), ((8, 1, 8, 1), "8", None, False)],
)
def test_vllm_experts(shape: tuple[int, int, int, int], tensor: str, data: str | None, experts: bool) -> None:
    found = pairs(arguments(moe(*shape)))
    assert found["--tensor-parallel-size"] == tensor
    assert found.get("--data-parallel-size") == data
    assert ("--enable-expert-parallel" in found) is experts


def test_sglang_counts_all_gpus_as_tp_and_shares_limits_among_ranks() -> None:
    found = pairs(arguments(moe(1, 8, 1, 8), backend="sglang", tokens=8192, seqs=256))
    assert (found["--tp"], found["--dp"], found["--ep"]) == ("8", "8", "8")
    assert "--enable-dp-attention" in found
    assert found["--chunked-prefill-size"] == str(8 * 8192)
    assert found["--max-running-requests"] == str(8 * 256)


def test_trtllm_worker() -> None:
    found = pairs(arguments(moe(1, 4, 1, 4), backend="trtllm", context_length=32768, prefix_caching=False))
    assert found["--tensor-parallel-size"] == "4"
    assert found["--expert-parallel-size"] == "4"
    assert "--enable-attention-dp" in found
    assert found["--max-seq-len"] == "32768"
    assert json.loads(found["--override-engine-args"]) == {"kv_cache_config": {"enable_block_reuse": False}}


def test_disagg_roles_and_events() -> None:
    prefill, decode = workers_of(sample(disagg((2, 1), (4, 1)), kv_router=True).config())
    first, second = pairs(worker_arguments(prefill, events_port=7)), pairs(worker_arguments(decode))
    assert first["--disaggregation-mode"] == "prefill"
    assert second["--disaggregation-mode"] == "decode"
    assert json.loads(first["--kv-events-config"])["endpoint"] == "tcp://*:7"
    assert "--kv-events-config" not in second
    assert "--no-enable-prefix-caching" in second


@pytest.mark.real
@pytest.mark.parametrize("mode", ["agg", "disagg"])
@pytest.mark.parametrize("backend", ["vllm", "sglang", "trtllm"])
def test_graph_has_the_layout_of_the_installed_template(backend: str, mode: str) -> None:
    spec = find_spec("dynamo.profiler")
    assert spec is not None
    assert spec.origin is not None
    template = yaml.safe_load(
        (Path(spec.origin).parent / "templates" / "dgd" / backend / f"{mode}.yaml").read_text()
    )
    parallel = agg(2, 4) if mode == "agg" else disagg((2, 1), (4, 1))
    made = yaml.safe_load(
        graph_yaml(sample(parallel, backend=backend).config(), CONTEXT, "x")  # type: ignore[arg-type]
    )

    def outline(graph: dict) -> list[tuple]:  # type: ignore[type-arg]
        rows = []
        for component in graph["spec"]["components"]:
            (container,) = component["podTemplate"]["spec"]["containers"]
            rows.append((component["type"], container["image"], container["command"]))
        return sorted(rows)

    assert (made["apiVersion"], made["kind"]) == (template["apiVersion"], template["kind"])
    assert outline(made) == outline(template)


def test_graph_replicas_gpus_and_nodes() -> None:
    wide = AggConfig(WorkerGroup(ParallelShape(tp=16), 3))
    (_, worker) = yaml.safe_load(graph_yaml(sample(wide).config(), CONTEXT, "x"))["spec"]["components"]
    (container,) = worker["podTemplate"]["spec"]["containers"]
    assert worker["replicas"] == 3
    assert worker["multinode"] == {"nodeCount": 2}
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "8"}}


@pytest.mark.real
def test_planner_is_told_what_was_measured() -> None:
    from dynamo.planner.config.planner_config import PlannerConfig

    config = sample(disagg((2, 1), (4, 1)), scaling=True).config()
    context = DeployContext("1.6.1", 8, "sla", ttft_ms=2000.0, itl_ms=30.0)
    told = planner_settings(config, context)
    made = PlannerConfig.model_validate(told)
    assert (made.mode, made.backend, made.optimization_target) == ("disagg", "vllm", "sla")
    assert (made.ttft_ms, made.itl_ms) == (2000.0, 30.0)
    assert (made.prefill_engine_num_gpu, made.decode_engine_num_gpu) == (2, 4)
    assert (made.load_predictor, made.prophet_window_size) == ("prophet", 20)
    configmap, graph = yaml.safe_load_all(graph_yaml(config, context, "X Y"))
    assert json.loads(configmap["data"]["planner_config.json"]) == told
    assert graph["spec"]["components"][-1]["name"] == "Planner"
    assert planner_settings(sample(agg(1, 1)).config(), context) is None


@pytest.mark.real
def test_frontend_reads_the_router_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    from dynamo.frontend.frontend_args import FrontendArgGroup

    environment = frontend_environment(sample(agg(2, 4), kv_router=True).config())
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    parser = argparse.ArgumentParser()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # the settings move to a file in a later version
        FrontendArgGroup().add_arguments(parser)
        read = parser.parse_args([])
    assert read.router_mode == "kv"
    assert read.kv_cache_block_size == 64
    assert (read.overlap_score_credit, read.prefill_load_scale, read.router_temperature) == (0.5, 2.0, 0.2)


@pytest.mark.real
def test_trtllm_flags_exist_in_the_installed_package() -> None:
    spec = find_spec("dynamo")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    roots = [Path(p) for p in spec.submodule_search_locations]
    source = next(p for r in roots if (p := r / "trtllm" / "backend_args.py").is_file()).read_text()
    known = set(re.findall(r'flag_name="(--[a-z-]+)"', source))
    shape = moe(1, 4, 1, 4)
    used = set(
        pairs(arguments(shape, backend="trtllm", context_length=1024, prefix_caching=False, kv_router=True))
    )
    assert used
    assert used <= known


def test_launch_script_gives_each_worker_its_gpus_and_ports(tmp_path: Path) -> None:
    script = launch_script(sample(disagg((2, 2), (4, 1)), kv_router=True).config(), CONTEXT)
    assert re.findall(r"CUDA_VISIBLE_DEVICES=(\S+)", script) == ["0,1", "2,3", "4,5,6,7"]
    assert re.findall(r"tcp://\*:(\d+)", script) == ["20081", "20082"]
    for name in ("DYN_SYSTEM_PORT", "VLLM_NIXL_SIDE_CHANNEL_PORT"):
        ports = re.findall(rf"{name}=(\d+)", script)
        assert len(set(ports)) == 3
    path = tmp_path / "launch.sh"
    path.write_text(script)
    subprocess.run(["sh", "-n", str(path)], check=True)


def test_quoting_survives_a_hostile_model_name() -> None:
    config = sample(agg(1, 1)).config() | {"model_name": "a'; rm -rf / #"}
    script = launch_script(config, CONTEXT)
    assert "'a'\"'\"'; rm -rf / #'" in script
    worker = yaml.safe_load(graph_yaml(config, CONTEXT, "n"))["spec"]["components"][1]
    assert "a'; rm -rf / #" in worker["podTemplate"]["spec"]["containers"][0]["args"]


@pytest.mark.parametrize(
    ("given", "name"),
    [("Qwen3-32B-agg-1", "qwen3-32b-agg-1"), ("--", "spica"), ("7b/x", "spica-7b-x"), ("a" * 60, "a" * 40)],
)
def test_resource_names_are_legal(given: str, name: str) -> None:
    assert resource_name(given) == name


def test_every_rank_of_attention_has_its_gpus() -> None:
    config = sample(moe(2, 4, 1, 8)).config()
    assert workers_of(config)[0].gpus == 8
    worker = yaml.safe_load(graph_yaml(config, CONTEXT, "n"))["spec"]["components"][1]
    container = worker["podTemplate"]["spec"]["containers"][0]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert re.findall(r"CUDA_VISIBLE_DEVICES=(\S+)", launch_script(config, CONTEXT)) == ["0,1,2,3,4,5,6,7"]
