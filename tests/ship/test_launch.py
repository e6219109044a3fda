"""``launch.sh`` as it is shipped, run by real shells with a stub in the place of ``python3``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))

from made_run import agg, disagg, sample

from spica.ship.launch import CANNOT_START, fits_one_node, launch_script
from spica.ship.manifests import DeployContext

CONTEXT = DeployContext("1.6.1", gpus_per_node=8)

#: A server: leaves its pid and its arguments, starts a process of its own, and runs until it is told to end;
#: one that finds its module's name in the folder ends with the status that stands there.
STUB = """\
#!/bin/sh
echo "$CUDA_VISIBLE_DEVICES $*" >"$STUBS/started.$$"
sleep 1000 &
trap 'exit 0' TERM
while :; do
    if [ -f "$STUBS/end.$2" ]; then exit "$(cat "$STUBS/end.$2")"; fi
    sleep 0.1
done
"""


class Launched:
    """A running ``launch.sh``."""

    def __init__(self, process: subprocess.Popen[str], stubs: Path) -> None:
        self.process = process
        self.stubs = stubs
        self.family: list[psutil.Process] = []

    def servers(self, count: int) -> list[str]:
        """What the servers were started with, once there are ``count``."""
        deadline = time.monotonic() + 20
        while len(found := list(self.stubs.glob("started.*"))) < count:
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
        time.sleep(0.3)  # their own processes
        self.family = psutil.Process(self.process.pid).children(recursive=True)
        assert len(self.family) >= 2 * count
        return sorted(path.read_text().strip() for path in found)

    def ended(self) -> int:
        status = self.process.wait(timeout=20)
        _, alive = psutil.wait_procs(self.family, timeout=5)
        assert alive == []
        assert list(self.stubs.glob("tmp/*")) == []  # the folder of the discovery
        return status


@contextmanager
def launched(shell: str, script: str, folder: Path) -> Iterator[Launched]:
    stubs = folder / "stubs"
    (stubs / "tmp").mkdir(parents=True)
    python = stubs / "python3"
    python.write_text(STUB)
    python.chmod(0o755)
    path = folder / "launch.sh"
    path.write_text(script)
    env = os.environ | {
        "PATH": f"{stubs}:{os.environ['PATH']}",
        "STUBS": str(stubs),
        "TMPDIR": str(stubs / "tmp"),
    }
    with subprocess.Popen([shell, str(path)], env=env, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield Launched(process, stubs)
        finally:
            for left in (
                psutil.Process(process.pid).children(recursive=True) if process.poll() is None else ()
            ):
                left.kill()
            process.kill()


SHELLS = [shell for shell in ("dash", "bash") if subprocess.run(["which", shell], capture_output=True).stdout]
SCRIPT = launch_script(sample(disagg((2, 2), (4, 1)), kv_router=True).config(), CONTEXT)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_every_server_and_is_the_status(
    tmp_path: Path, shell: str, number: signal.Signals, status: int
) -> None:
    with launched(shell, SCRIPT, tmp_path) as run:
        started = run.servers(4)
        assert [line.split(" -m ")[0] for line in started] == ["", "0,1", "2,3", "4,5,6,7"] or [
            line.split(" ")[0] for line in started
        ] == ["-m", "0,1", "2,3", "4,5,6,7"]
        run.process.send_signal(number)
        assert run.ended() == status


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("module", "given", "status"), [("vllm", 7, 7), ("frontend", 0, 1)])
def test_the_end_of_one_server_ends_the_others_with_its_status(
    tmp_path: Path, shell: str, module: str, given: int, status: int
) -> None:
    with launched(shell, SCRIPT, tmp_path) as run:
        run.servers(4)
        (run.stubs / f"end.dynamo.{module}").write_text(f"{given}\n")
        assert run.ended() == status
        assert run.process.stderr is not None
        assert f"ended with status {given}; stopping the others" in run.process.stderr.read()


@pytest.mark.parametrize("shell", SHELLS)
def test_more_gpus_than_a_node_has_end_with_the_reason(tmp_path: Path, shell: str) -> None:
    config = sample(agg(8, 2)).config()
    script = tmp_path / "launch.sh"
    script.write_text(launch_script(config, CONTEXT))
    done = subprocess.run([shell, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == CANNOT_START
    assert "needs 16 GPUs, a node has 8" in done.stderr
    assert not fits_one_node(config, 8)
    assert fits_one_node(config, 16)
    assert "# 2 x agg:\n# python3 -m dynamo.vllm --model" in script.read_text()


def test_a_line_break_in_an_argument_does_not_end_a_comment(tmp_path: Path) -> None:
    config = sample(agg(8, 2)).config() | {"model_name": f"m\ntouch {tmp_path}/proof\n"}
    script = tmp_path / "launch.sh"
    script.write_text(launch_script(config, CONTEXT))
    assert subprocess.run(["sh", str(script)], capture_output=True, check=False).returncode == CANNOT_START
    assert not (tmp_path / "proof").exists()
