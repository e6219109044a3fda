"""A Kubernetes resource for the Dynamo operator, to deploy a candidate from.

The layout of the resource follows the deployment templates that ship in ai-dynamo 1.6.1
(``dynamo/profiler/templates/dgd``) and its planner component.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import yaml

from spica.deployment.sample import FlatConfig, Scalar
from spica.knobs.bindings import PlannerArg, PlannerFields
from spica.knobs.table import KNOBS
from spica.ship.engine_model import engine_models
from spica.ship.workers import Worker, frontend_environment, take, worker_arguments, workers_of

Json = Mapping[str, "Json"] | Sequence["Json"] | Scalar

API_VERSION = "nvidia.com/v1beta1"
REGISTRY = "nvcr.io/nvidia/ai-dynamo"
IMAGES = {"vllm": "vllm-runtime", "sglang": "sglang-runtime", "trtllm": "tensorrtllm-runtime"}
PLANNER_MOUNT = "/workspace/planner_config"


@dataclass(frozen=True, slots=True)
class DeployContext:
    """What a candidate's own settings do not say: the version of ai-dynamo (its image tag), GPUs of a node,
    and the planner's target with its latency goals in milliseconds."""

    dynamo_version: str
    gpus_per_node: int
    planner_target: str = "throughput"
    ttft_ms: float | None = None
    itl_ms: float | None = None


def graph_yaml(config: FlatConfig, context: DeployContext, name: str) -> str:
    """The DynamoGraphDeployment of a candidate, with a ConfigMap for the planner when it scales.

    ``name`` is made a legal resource name. Raises ValueError for a config that is not a candidate's.
    """
    name = resource_name(name)
    workers = workers_of(config)
    components: list[Json] = [_frontend(config, context)]
    components += [_worker(worker, context) for worker in workers]
    documents: list[Json] = []
    planner = planner_settings(config, context)
    if planner is not None:
        components.append(_planner(context, name))
        documents.append(_planner_map(planner, name))
    documents.append(
        {
            "apiVersion": API_VERSION,
            "kind": "DynamoGraphDeployment",
            "metadata": {"name": name},
            "spec": {"components": components},
        }
    )
    return "".join(
        f"---\n{yaml.safe_dump(doc, sort_keys=False, width=110)}"
        if i
        else yaml.safe_dump(doc, sort_keys=False)
        for i, doc in enumerate(documents)
    )


def resource_name(text: str) -> str:
    """``text`` as a DNS label: lower case letters, digits and dashes, at most 40, a letter first."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if not plain or not plain[0].isalpha():
        plain = f"spica-{plain}".rstrip("-")
    return plain[:40].rstrip("-")


def _container(backend: str, context: DeployContext) -> dict[str, Json]:
    return {
        "name": "main",
        "image": f"{REGISTRY}/{IMAGES[backend]}:{context.dynamo_version}",
        "envFrom": [{"secretRef": {"name": "hf-token-secret"}}],
    }


def _frontend(config: FlatConfig, context: DeployContext) -> Json:
    environment: list[Json] = [
        {"name": key, "value": value} for key, value in frontend_environment(config).items()
    ]
    container = _container(take(config, "backend", str), context) | {
        "command": ["python3"],
        "args": ["-m", "dynamo.frontend"],
        "env": environment,
    }
    return {
        "name": "Frontend",
        "type": "frontend",
        "replicas": 1,
        "podTemplate": {"spec": {"containers": [container]}},
    }


def _worker(worker: Worker, context: DeployContext) -> Json:
    nodes = -(-worker.gpus // context.gpus_per_node)
    arguments: list[Json] = list(worker_arguments(worker))
    container = _container(worker.backend, context) | {
        "command": ["python3", "-m", f"dynamo.{worker.backend}"],
        "args": arguments,
        "resources": {"limits": {"nvidia.com/gpu": str(min(worker.gpus, context.gpus_per_node))}},
    }
    component: dict[str, Json] = {
        "name": "worker" if worker.role == "agg" else worker.role,
        "type": "worker" if worker.role == "agg" else worker.role,
        "replicas": worker.replicas,
    }
    if nodes > 1:
        component["multinode"] = {"nodeCount": nodes}
    component["podTemplate"] = {"spec": {"containers": [container]}}
    return component


def planner_settings(config: FlatConfig, context: DeployContext) -> dict[str, Json] | None:
    """The planner's configuration of a scaling candidate; None for a static one."""
    if not (config.get("enable_throughput_scaling") or config.get("enable_load_scaling")):
        return None
    found: dict[str, Json] = {
        "mode": take(config, "deployment_mode", str),
        "backend": take(config, "backend", str),
        "optimization_target": context.planner_target,
    }
    workers = workers_of(config)
    for worker in workers:
        role = "prefill" if worker.role == "prefill" else "decode"
        found[f"{role}_engine_num_gpu"] = worker.gpus
    found |= {name: config[key] for key, name in _planner_names() if config.get(key) is not None}
    if context.planner_target == "sla":
        found |= {"ttft_ms": context.ttft_ms, "itl_ms": context.itl_ms}
    if config.get("planner_engine_model"):
        found["ais_perf_model"] = engine_models(config, workers)
    return found


def _planner_names() -> Iterator[tuple[str, str]]:
    """The settings of a candidate that the planner is told, each with the planner's own name."""
    for knob in KNOBS.values():
        if isinstance(knob.files, PlannerArg):
            yield knob.name, knob.files.name
        elif isinstance(knob.files, PlannerFields):
            yield from ((place.name, place.name) for place in knob.places)


def _planner_map(planner: Mapping[str, Json], name: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"planner-config-{name}"},
        "data": {"planner_config.json": json.dumps(planner)},
    }


def _planner(context: DeployContext, name: str) -> Json:
    volume = f"planner-config-{name}"
    container: Json = {
        "name": "main",
        "image": f"{REGISTRY}/dynamo-planner:{context.dynamo_version}",
        "command": ["python3", "-m", "dynamo.planner"],
        "args": ["--config", f"{PLANNER_MOUNT}/planner_config.json"],
        "volumeMounts": [{"name": volume, "mountPath": PLANNER_MOUNT, "readOnly": True}],
    }
    volumes: Json = [{"name": volume, "configMap": {"name": volume}}]
    return {
        "name": "Planner",
        "type": "planner",
        "replicas": 1,
        "podTemplate": {"spec": {"containers": [container], "volumes": volumes}},
    }
