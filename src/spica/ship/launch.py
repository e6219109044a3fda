"""A script that runs a candidate on one node, without Kubernetes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Final

from spica.deployment.sample import FlatConfig
from spica.ship.manifests import DeployContext, planner_settings
from spica.ship.workers import Worker, frontend_environment, worker_arguments, workers_of

#: Seconds that the servers have to end by themselves before they are killed.
GRACE_SECONDS: Final = 30
#: What the script ends with where it cannot start the deployment.
CANNOT_START: Final = 3

#: Services of one host that find each other through files and talk over TCP: no etcd, no NATS. Each server
#: leads a process group of its own, so that what it starts ends with it, and nothing else does.
_PROLOGUE: Final = f"""\
set -eu
if ! command -v setsid >/dev/null; then
    echo "launch.sh: setsid (util-linux) is not installed" >&2
    exit {CANNOT_START}
fi
export PYTHONHASHSEED=0
export DYN_DISCOVERY_BACKEND=file DYN_REQUEST_PLANE=tcp DYN_EVENT_PLANE=zmq
DYN_FILE_KV="$(mktemp -d)"
export DYN_FILE_KV
servers=

start() {{
    setsid env "$@" &
    servers="$servers $!"
}}

signal_all() {{ # a server that has only just been started may not lead its group yet
    for server in $servers; do
        kill -s "$1" -- "-$server" 2>/dev/null || kill -s "$1" "$server" 2>/dev/null || :
    done
}}

some_left() {{
    for server in $servers; do
        if kill -s 0 -- "-$server" 2>/dev/null; then return 0; fi
    done
    return 1
}}

stop() {{ # end every server, then this script with status $1
    trap '' INT TERM HUP
    trap - EXIT
    signal_all TERM
    left={GRACE_SECONDS}
    while some_left && [ "$left" -gt 0 ]; do
        sleep 1
        left=$((left - 1))
    done
    signal_all KILL
    wait
    rm -rf "$DYN_FILE_KV"
    exit "$1"
}}

trap 'stop 130' INT
trap 'stop 143' TERM
trap 'stop 129' HUP
trap 'stop $?' EXIT
"""

#: The deployment needs all of its servers: when one ends, so do the others.
_WATCH: Final = """
while :; do
    for server in $servers; do
        if ! kill -s 0 "$server" 2>/dev/null; then
            status=0
            wait "$server" || status=$?
            echo "launch.sh: a server (process $server) ended with status $status; stopping the others" >&2
            [ "$status" -ne 0 ] || status=1
            stop "$status"
        fi
    done
    sleep 1
done
"""


def fits_one_node(config: FlatConfig, gpus_per_node: int) -> bool:
    """Whether ``launch_script`` can start the candidate."""
    return _gpus(workers_of(config)) <= gpus_per_node


def launch_script(config: FlatConfig, context: DeployContext) -> str:
    """A POSIX shell script that starts the frontend and every worker on one node and runs until it is stopped
    or one of them ends: with that one's status (1 for 0), 130 after SIGINT, 143 after SIGTERM, 129 after
    SIGHUP. Nothing it started outlives it.

    For a candidate that needs more GPUs than a node has it says so and ends with ``CANNOT_START``; the
    commands to start by hand stand in it as comments. Raises ValueError for a config that is no candidate's.
    """
    workers = workers_of(config)
    needed = _gpus(workers)
    head = [
        "#!/bin/sh",
        f"# {needed} GPUs; needs ai-dynamo {context.dynamo_version} with {workers[0].backend}.",
    ]
    scales = planner_settings(config, context) is not None
    if needed > context.gpus_per_node:
        return "\n".join([*head, *_refusal(config, workers, context)]) + "\n"
    if scales:
        note = "launch.sh: the measured candidate scales; here its workers stay as they start"
        head += [f"echo {shlex.quote(note)} >&2"]
    commands = [f"start {command}" for command in _commands(config, workers)]
    return "\n".join([*head, _PROLOGUE, *commands, _WATCH.rstrip("\n")]) + "\n"


def _gpus(workers: tuple[Worker, ...]) -> int:
    return sum(worker.gpus * worker.replicas for worker in workers)


def _refusal(config: FlatConfig, workers: tuple[Worker, ...], context: DeployContext) -> Iterator[str]:
    reason = (
        f"launch.sh: this deployment needs {_gpus(workers)} GPUs, a node has {context.gpus_per_node}: use "
        "graph.yaml, or start the commands that stand in this file where there is room"
    )
    yield f"# {_frontend(config)}"
    for worker in workers:
        command = shlex.join(worker_arguments(worker, events_port=20081))
        yield f"# {worker.replicas} x {worker.role}:"
        # A line break inside a quoted argument would end the comment.
        yield from (f"# {line}" for line in f"python3 -m dynamo.{worker.backend} {command}".splitlines())
    yield f"echo {shlex.quote(reason)} >&2"
    yield f"exit {CANNOT_START}"


def _frontend(config: FlatConfig) -> str:
    environment = [f"{key}={shlex.quote(value)}" for key, value in frontend_environment(config).items()]
    return " ".join([*environment, "python3 -m dynamo.frontend"])


def _commands(config: FlatConfig, workers: tuple[Worker, ...]) -> Iterator[str]:
    """The command line of the frontend and of every worker on one node, with the environment before it."""
    yield _frontend(config)
    first_gpu = 0
    every = [worker for worker in workers for _ in range(worker.replicas)]
    for index, worker in enumerate(every):
        gpus = ",".join(str(g) for g in range(first_gpu, first_gpu + worker.gpus))
        arguments = shlex.join(worker_arguments(worker, events_port=20081 + index))
        ports = f"CUDA_VISIBLE_DEVICES={gpus} {_ports(worker, index)}"
        yield f"{ports} python3 -m dynamo.{worker.backend} {arguments}"
        first_gpu += worker.gpus


def _ports(worker: Worker, index: int) -> str:
    """Ports that workers on one host must not share."""
    ports = f"DYN_SYSTEM_PORT={8181 + index}"
    if worker.backend == "vllm":
        ports += f" DYN_FORWARDPASS_METRIC_PORT={20181 + index} VLLM_NIXL_SIDE_CHANNEL_PORT={20281 + index}"
    return ports
