"""The trace commands, run in process; errors come out as SpicaError for the main program to print."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spica.commands.traces import app
from spica.errors import InputError, SpicaError, TraceError
from spica.traffic.read import read_trace


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "100"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_synth_info_convert(tmp_path: Path) -> None:
    made = tmp_path / "made.jsonl.gz"
    run("synth", "shared_prefix", "-o", made, "--duration", 120, "--rate", 5, "--isl", 1024, "--seed", 3)
    trace = read_trace(made)
    output = run("info", made, "--context", 1500, "--html", tmp_path / "page.html")
    assert f"requests       {len(trace)}" in output
    assert "format         mooncake" in output
    share = 100 * sum(r.total_tokens <= 1500 for r in trace.requests) / len(trace)
    assert f"{share:.1f}%" in output
    page = (tmp_path / "page.html").read_text()
    assert page.startswith("<!doctype html>")
    assert page.rstrip().endswith("</html>")
    output = run("convert", made, "-o", tmp_path / "cut.jsonl", "--window", "30:90", "--sample", "10")
    assert "10 requests over" in output
    assert len(read_trace(tmp_path / "cut.jsonl")) == 10


def test_convert_says_what_it_did(tmp_path: Path) -> None:
    source = tmp_path / "b.csv"
    source.write_text("Timestamp,Request tokens,Response tokens\n9,5,5\n7,5000,5\n8,0,0\n")
    output = run("convert", source, "-o", tmp_path / "o.jsonl", "--context-length", 4096)
    assert "dropped 1 row(s) with an empty prompt" in output
    assert "rows were not in arrival order (1 step(s) back): sorted" in output
    assert "1 requests beyond the context length of 4096 tokens were dropped" in output
    assert (
        tmp_path / "o.jsonl"
    ).read_text() == '{"timestamp": 2000, "input_length": 5, "output_length": 5}\n'


def test_nothing_is_overwritten_by_accident(tmp_path: Path) -> None:
    out = tmp_path / "t.jsonl"
    run("synth", "poisson", "-o", out, "--duration", 10)
    before = out.read_bytes()
    with pytest.raises(InputError, match="exists"):
        run("synth", "sine", "-o", out, "--duration", 10)
    with pytest.raises(InputError, match="is the file being read"):
        run("convert", out, "-o", out, "--force")
    with pytest.raises(InputError, match="is a directory"):
        run("convert", out, "-o", tmp_path)
    assert out.read_bytes() == before
    run("synth", "sine", "-o", out, "--duration", 10, "--force")
    assert out.read_bytes() != before


def test_markup_in_a_file_name_is_shown_as_it_is(tmp_path: Path) -> None:
    odd = tmp_path / "[bold]<b>x.jsonl"
    odd.write_text('{"timestamp": 0, "input_length": 5, "output_length": 5}\n')
    assert "[bold]<b>x.jsonl" in run("info", odd, "--html", tmp_path / "p.html").replace("\n", "")
    page = (tmp_path / "p.html").read_text()
    assert "[bold]&lt;b&gt;x.jsonl</h1>" in page
    assert "<b>x.jsonl" not in page


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("info", "none.jsonl"), "no such file"),
        (("info", "none.jsonl", "-f", "mooncak"), "did you mean 'mooncake'"),
        (("synth", "diurnall", "-o", "x.jsonl"), "did you mean 'diurnal'"),
        (("convert", "none", "-o", "x.jsonl", "--window", "5"), "no window of time"),
        (("convert", "none", "-o", "x.jsonl", "--sample", "0"), "no sample"),
    ],
)
def test_errors_are_spica_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TraceError, match=expected) as caught:
        run(*arguments)
    assert isinstance(caught.value, SpicaError)
    assert list(tmp_path.iterdir()) == []


def test_errors_name_the_options_of_the_command(tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 500, "output_length": 5}\n')
    out = ("-o", tmp_path / "o.jsonl")
    with pytest.raises(TraceError) as caught:
        run("convert", trace, *out, "--context-length", 100)
    assert "raise --context-length" in str(caught.value)
    assert "search_space" not in str(caught.value)
    assert "workload" not in str(caught.value)
    for command in (("convert", trace, *out), ("info", trace)):
        with pytest.raises(TraceError, match="--format: is not an azure trace"):
            run(*command, "--format", "azure")
    with pytest.raises(TraceError, match="--length-cv: -1"):
        run("synth", "poisson", *out, "--length-cv", "-1")


def test_importing_the_commands_imports_nothing_heavy() -> None:
    code = (
        "import sys, spica.commands.traces, spica.planner.predictors\n"
        "heavy = {'dynamo', 'pandas', 'numpy', 'plotly', 'pebble', 'prophet'} & set(sys.modules)\n"
        "print(sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
