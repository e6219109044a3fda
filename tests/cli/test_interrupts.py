"""Interrupts before the search: one line, nothing left behind; and a run stopped before any result."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from commands import SMALL

from spica.api import RunOptions, run, source_of
from spica.record import Ledger
from spica.report.terminal import result_view
from spica.sweep import StopFlag, terminate_as_interrupt
from spica.sweep.events import PhaseChanged, SweepEvent

TOLD = "interrupted before anything was measured; nothing was written"


@pytest.mark.real
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("line", ["enumerating", "tiny candidate"])
def test_before_the_search_nothing_is_left(tmp_path: Path, number: int, line: str) -> None:
    config, scratch = tmp_path / "small.yaml", tmp_path / "tmp"
    config.write_text(SMALL)
    scratch.mkdir()
    command = [sys.executable, "-m", "spica", "sweep", str(config), "--out", str(tmp_path / "new" / "run")]
    environment = os.environ | {"TMPDIR": str(scratch)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as sweep:
        assert sweep.stderr is not None
        for said in sweep.stderr:
            if line in said:
                break
        family = psutil.Process(sweep.pid).children(recursive=True)
        sweep.send_signal(number)
        rest = sweep.stderr.read()
    assert sweep.returncode == 130
    assert rest.splitlines()[-1] == f"error: {TOLD}"
    assert "Traceback" not in rest
    assert {p.name for p in tmp_path.iterdir()} == {"small.yaml", "tmp"}
    assert [p.name for p in scratch.iterdir() if p.name.startswith("spica")] == []
    _, left = psutil.wait_procs(family, timeout=10)
    assert left == []


@pytest.mark.real
def test_killed_in_the_preflight_no_worker_stays_and_the_folder_can_be_used(tmp_path: Path) -> None:
    config, run_folder = tmp_path / "small.yaml", tmp_path / "run"
    config.write_text(SMALL)
    command = [sys.executable, "-m", "spica", "sweep", str(config), "--out", str(run_folder)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as sweep:
        assert sweep.stderr is not None
        for said in sweep.stderr:
            if "tiny candidate" in said:
                break
        # Held there: a preflight may be over before the second start has got to the folder.
        sweep.send_signal(signal.SIGSTOP)
        family = psutil.Process(sweep.pid).children(recursive=True)
        second = subprocess.run(command, capture_output=True, text=True, check=False)
        sweep.kill()
    assert (second.returncode, second.stdout) == (2, "")
    assert second.stderr.startswith(f"error: {run_folder} is in use by process {sweep.pid}")
    assert family, "there were workers"
    _, left = psutil.wait_procs(family, timeout=10)
    assert [p for p in left if p.status() != psutil.STATUS_ZOMBIE] == []
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr


_SCRIPT = """
import sys, yaml
from spica import run_smart_search

class Teller:
    def on_event(self, event):
        print(type(event).__name__, getattr(event, "phase", ""), file=sys.stderr, flush=True)

result = run_smart_search(yaml.safe_load(sys.argv[1]), out=sys.argv[2], observer=Teller())
print(result.stop, len(result.candidates), flush=True)
"""
#: More candidates than are chosen without a model, so that one is compiled from the start.
_SEARCH = SMALL.replace("parallel_configs: [{tp: 2, replicas: 4}]", "backend: [vllm]").replace(
    "{max_rounds: 1, parallel_evals: 1}", "{max_rounds: 20, candidates_per_round: 4, parallel_evals: 2}"
)


@pytest.mark.real
def test_a_script_interrupted_while_the_model_is_compiled_ends_in_order(tmp_path: Path) -> None:
    """Taking the interpreter down under the compiler would abort the process."""
    command = [sys.executable, "-c", _SCRIPT, _SEARCH, str(tmp_path / "run")]
    script = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with script:
        assert script.stdout is not None
        assert script.stderr is not None
        for said in script.stderr:
            if said.startswith("TrialFinished"):
                break
        script.send_signal(signal.SIGINT)
        out, rest = script.stdout.read(), script.stderr.read()
    assert script.returncode == 0, rest
    stop, found = out.split()
    assert (stop, int(found) >= 1) == ("interrupted", True)
    assert rest.split("PhaseChanged done")[1].strip() == "", "nothing is said after the end"


@pytest.mark.real
def test_stopped_at_once_the_way_to_go_on_is_named(tmp_path: Path) -> None:
    config, run_folder = tmp_path / "long.yaml", tmp_path / "run"
    config.write_text(SMALL.replace("num_request_ratio: 4", "num_request_ratio: 2000"))
    command = [sys.executable, "-m", "spica", "sweep", str(config), "--out", str(run_folder)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as sweep:
        assert sweep.stderr is not None
        for awaited in ("searching", "once more ends everything at once"):
            for said in sweep.stderr:
                if awaited in said:
                    break
            sweep.send_signal(signal.SIGINT)
        rest = sweep.stderr.read()
    assert sweep.returncode == 130
    assert rest.splitlines() == [
        f"error: stopped at once; what was measured is in {run_folder}",
        f"    continue with: spica sweep --resume {run_folder}",
    ]


class At:
    """Calls ``act`` when a phase begins."""

    def __init__(self, phase: str, act: Callable[[], None]) -> None:
        self.phase, self.act = phase, act
        self.lines: list[str] = []
        self.times: list[float] = []

    def on_event(self, event: SweepEvent) -> None:
        if isinstance(event, PhaseChanged):
            self.lines.append(event.detail)
            if event.phase in ("preflight", self.phase):
                self.times.append(time.monotonic())
            if event.phase == self.phase:
                self.act()


@pytest.mark.real
def test_stopped_before_any_result_it_does_not_speak_of_feasibility(tmp_path: Path) -> None:
    config, stop = tmp_path / "small.yaml", StopFlag()
    config.write_text(SMALL)
    observer = At("searching", stop.request)
    options = RunOptions(out=tmp_path / "run")
    done = run(source_of(config, options), options, observer, stop)
    assert done.result.stop == "interrupted"
    assert "replaying 1 tiny candidate, one of each backend and mode" in observer.lines
    assert "1 of 1 work" in observer.lines
    from rich.console import Console

    console = Console(width=100, record=True, file=(tmp_path / "shown").open("w"))
    console.print(result_view(done.report))
    text = console.export_text()
    console.file.close()
    assert "Nothing was measured: the sweep was interrupted before the first replay had ended." in text
    assert "feasible" not in text
    assert "Nothing was measured" in (tmp_path / "run" / "report.html").read_text()
    assert done.result.timings.wall >= observer.times[-1] - observer.times[0], "preparing counts"


def test_the_first_interrupt_is_raised_and_the_second_lets_the_undoing_go_on() -> None:
    undone = []

    def work() -> None:
        with terminate_as_interrupt():
            try:
                os.kill(os.getpid(), signal.SIGINT)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)
                undone.append(True)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert undone == [True]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


#: A command that is sent a signal at a moment of its life.
_STRUCK = """
import os, signal, sys
from spica import cli

number, moment = int(sys.argv.pop(1)), sys.argv.pop(1)

class Strike:
    def find_spec(self, name, path=None, target=None):
        if name == moment:
            os.kill(os.getpid(), number)

sys.meta_path.insert(0, Strike())
sys.exit(cli.main())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("moment", ["typer", "spica.commands.listing", "spica.facts.models"])
def test_while_a_command_loads_every_interrupt_is_130(number: int, moment: str) -> None:
    """In the imports of the program, between them, and in a command."""
    command = [sys.executable, "-c", _STRUCK, str(int(number)), moment, "models"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_a_hang_up_that_is_to_be_outlived_is() -> None:
    command = ["nohup", sys.executable, "-c", _STRUCK, str(int(signal.SIGHUP)), "typer", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("spica ")


# Not ``pty.fork``: libraries of other tests, already loaded in this process, warn when it forks.
_ON_A_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.real
def test_a_run_whose_terminal_is_lost_still_writes_its_results(tmp_path: Path) -> None:
    """As when an ssh session ends: the terminal is gone, and writing to it is an error."""
    config, run_folder = tmp_path / "long.yaml", tmp_path / "run"
    config.write_text(SMALL.replace("num_request_ratio: 4", "num_request_ratio: 2000"))
    command = [sys.executable, "-m", "spica", "sweep", str(config), "--out", str(run_folder)]
    terminal, inner = pty.openpty()
    sweep = subprocess.Popen(
        [sys.executable, "-c", _ON_A_TERMINAL, *command],
        stdin=inner, stdout=inner, stderr=inner, start_new_session=True,
    )  # fmt: skip
    os.close(inner)
    seen, end = b"", time.monotonic() + 120
    while b"searching" not in seen and time.monotonic() < end:
        if select.select([terminal], [], [], 1.0)[0]:
            seen += os.read(terminal, 65536)
    os.close(terminal)
    assert sweep.wait(120) == 130
    assert (run_folder / "report.html").exists()
    with Ledger.read(run_folder) as ledger:
        assert ledger.events()[-1][0] == "interrupted"
