"""Files, overrides and the way back to YAML."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from spica.config import OptimizationTarget
from spica.config.load import config_from_mapping, dump_resolved, dump_yaml, load_config
from spica.errors import ConfigError, Problem, TraceError

GOOD = """\
search_space:
  model_name: Qwen/Qwen3-32B
  hardware_sku: h200_sxm
  gpu_budget: 8
workload:
  isl: 3000
  osl: 300
  concurrency: 64
  num_request_ratio: 4
"""


@pytest.fixture
def write(tmp_path: Path):  # type: ignore[no-untyped-def]
    def _write(text: str | bytes, name: str = "c.yaml") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return _write


def problems(path: Path, *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    return [str(problem).replace(str(path), "FILE") for problem in caught.value.problems]


def test_a_file_is_read(write) -> None:  # type: ignore[no-untyped-def]
    path = write(GOOD)
    loaded = load_config(path)
    assert loaded.config.search_space.gpu_budget == 8
    assert loaded.path == path
    assert loaded.text == GOOD
    assert loaded.warnings == ()
    assert loaded.config == config_from_mapping(yaml.safe_load(GOOD))


def test_a_byte_order_mark_and_windows_line_ends_are_fine(write) -> None:  # type: ignore[no-untyped-def]
    path = write(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert load_config(path).config.search_space.gpu_budget == 8


def test_a_symbolic_link_is_followed(write, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "link.yaml").symlink_to(write(GOOD))
    assert load_config(tmp_path / "link.yaml").config.search_space.gpu_budget == 8


def test_anchors_and_merges_work(write) -> None:  # type: ignore[no-untyped-def]
    text = GOOD.replace(
        "gpu_budget: 8", "gpu_budget: &n 8\n  min_gpu_budget: *n\n  agg_max_num_seqs: &s [256]"
    )
    text = text.replace("  isl: 3000", "  <<: {isl: 3000, osl: 7}")
    c = load_config(write(text)).config
    assert (c.search_space.min_gpu_budget, c.workload.isl, c.workload.osl) == (8, 3000, 300)


def test_every_problem_has_its_file_line_and_key(write) -> None:  # type: ignore[no-untyped-def]
    text = GOOD.replace("gpu_budget", "gpu_budge").replace("concurrency: 64", "concurrency: many")
    text += "goal:\n  target: goodput\nsweep: {max_rounds: 3, confirm: {top: 0}}\n"
    first_lines = [problem.split("\n")[0] for problem in problems(write(text))]
    assert first_lines == [
        "FILE:4: search_space.gpu_budge: no such setting",
        "FILE:8: workload.concurrency: 'many' is text, not a whole number",
        # goal.sla is not there: the line is that of the block it is missing from.
        "FILE:10: goal.sla: goodput needs an SLA",
        "FILE:12: sweep.confirm.top: 0 is too small",
    ]


def test_entries_of_block_lists_have_their_own_lines(write) -> None:  # type: ignore[no-untyped-def]
    text = GOOD.replace("gpu_budget: 8", "backend:\n    - vllm\n    - vlm\n  deployment_mode: [agg]")
    assert problems(write(text))[0].startswith("FILE:6: search_space.backend[1]: 'vlm' is not a choice")


def test_warnings_have_file_line_and_key(write) -> None:  # type: ignore[no-untyped-def]
    path = write(GOOD.replace("gpu_budget: 8", "backend: [vllm, sglang, vllm]"))
    loaded = load_config(path)
    assert loaded.config.search_space.backend == ("vllm", "sglang")
    assert loaded.warnings == (
        f"{path}:4: search_space.backend[2]: 'vllm' is listed twice; the second one is dropped",
    )


def test_yaml_and_schema_problems_are_told_together(write) -> None:  # type: ignore[no-untyped-def]
    text = GOOD.replace(
        "gpu_budget: 8", "gpu_budget: 8\n  gpu_budget: 9\n  aic_nextn: !!binary aGk=\n  bakend: [vllm]"
    )
    found = [problem.split("\n")[0] for problem in problems(write(text))]
    assert found == [
        "FILE:5: search_space.gpu_budget: the key stands twice, in lines 4 and 5",
        "FILE:6: search_space.aic_nextn: the tag !!binary is not allowed",
        "FILE:7: search_space.bakend: no such setting",
    ]


def test_files_that_are_none(tmp_path: Path) -> None:
    assert problems(tmp_path) == ["FILE: this is a directory, not a YAML file"]
    assert problems(tmp_path / "nothing.yaml") == ["FILE: no such file"]
    (tmp_path / "sweep.yaml").write_text(GOOD)
    (near,) = problems(tmp_path / "sweeep.yaml")
    assert near == f"FILE: no such file\n    did you mean {tmp_path / 'sweep.yaml'}?"
    (folder,) = problems(tmp_path / "no" / "c.yaml")
    assert "the folder" in folder


def test_a_dangling_link_and_a_pipe_are_no_files(tmp_path: Path) -> None:
    (tmp_path / "dangling.yaml").symlink_to(tmp_path / "gone.yaml")
    assert "no such file" in problems(tmp_path / "dangling.yaml")[0]
    os.mkfifo(tmp_path / "pipe.yaml")
    (pipe,) = problems(tmp_path / "pipe.yaml")
    assert pipe.startswith("FILE: this is not a regular file\n    to read a pipe, give -")


def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "loop.yaml").symlink_to(tmp_path / "loop.yaml")
    (found,) = problems(tmp_path / "loop.yaml")
    assert found.startswith("FILE: ")


def test_a_file_of_more_than_a_mebibyte_is_refused(write) -> None:  # type: ignore[no-untyped-def]
    assert "larger than 1024 KiB" in problems(write(GOOD + "#" * (1 << 20)))[0]


def test_thousands_of_problems_are_cut_short(write) -> None:  # type: ignore[no-untyped-def]
    found = problems(write(GOOD.replace("gpu_budget: 8", f"backend: [{'x, ' * 900}]")))
    assert len(found) == 51
    assert found[-1] == "FILE: and 850 more problems"
    (too_many,) = problems(write(GOOD.replace("gpu_budget: 8", f"backend: [{'x, ' * 5000}]")))
    assert "the list has 5000 entries" in too_many


def test_a_trace_is_relative_to_the_folder_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = GOOD.split("workload")[0]
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "c.yaml").write_text(space + "workload: {trace_path: data/t.jsonl}\n")
    monkeypatch.chdir(tmp_path)
    loaded = load_config("sub/c.yaml")
    assert loaded.config.workload.trace_path == str(tmp_path / "sub" / "data" / "t.jsonl")
    # An override was typed in the current folder.
    loaded = load_config("sub/c.yaml", ["workload.trace_path=mine.jsonl"])
    assert loaded.config.workload.trace_path == str(tmp_path / "mine.jsonl")
    absolute = load_config("sub/c.yaml", ["workload.trace_path=/data/t.jsonl"])
    assert absolute.config.workload.trace_path == "/data/t.jsonl"


def test_overrides_replace_and_add_values(write) -> None:  # type: ignore[no-untyped-def]
    c = load_config(
        write(GOOD),
        [
            "search_space.gpu_budget=16",
            "search_space.backend=[vllm, sglang]",
            "goal.target=goodput",
            "goal.sla.ttft_ms=500",
            "goal.sla.itl_ms=5.0e+1",
            "sweep={max_rounds: 2}",
            "workload.concurrency=",
            "workload.request_rate=2.5",
            "search_space.gpu_budget=4",
        ],
    ).config
    assert c.search_space.gpu_budget == 4
    assert c.search_space.backend == ("vllm", "sglang")
    assert c.goal.target is OptimizationTarget.GOODPUT
    assert c.goal.sla is not None
    assert (c.goal.sla.ttft_ms, c.sweep.max_rounds) == (500.0, 2)
    assert (c.workload.concurrency, c.workload.request_rate) == (None, 2.5)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("gpu_budget", "--set gpu_budget: an override is written block.key=value"),
        ("=3", "--set =3: an override is written"),
        ("search_space..x=3", "an override is written"),
        ("gpu_budget=3", "--set: gpu_budget: no such setting\n    did you mean 'search_space.gpu_budget'?"),
        ("search_space.gpu_budge=3", "did you mean 'search_space.gpu_budget'?"),
        ("serch_space.gpu_budget=3", "did you mean 'search_space.gpu_budget'?"),
        (
            "search_space.gpu_budget=many",
            "--set: search_space.gpu_budget: 'many' is text, not a whole number",
        ),
        ("search_space.gpu_budget=[1", "--set: search_space.gpu_budget: YAML cannot be read"),
        ("search_space.gpu_budget=!!python/name:os.system x", "is not allowed"),
        ("search_space.gpu_budget=010", "010 is octal to YAML"),
        ("search_space.gpu_budget=0x10", "0x10 is no decimal number"),
        ("search_space.gpu_budget=-0b11", "-0b11 is no decimal number"),
        ("search_space.gpu_budget=1__0", "1__0 has a stray underscore"),
        ("search_space.gpu_budget=1_0_", "1_0_ has a stray underscore"),
        ("workload.num_request_ratio=1__0.5", "1__0.5 has a stray underscore"),
        ("workload.isl={a: 1, a: 2}", "--set: workload.isl: the key stands twice"),
        ("goal.sla.ttft=3", "did you mean 'goal.sla.ttft_ms'?"),
        ("goal.target=goodput", " and --set goal.target: goal.sla: goodput needs an SLA"),
        ("workload.concurrency=", "FILE:5 and --set workload.concurrency: workload: no traffic is set"),
        ("search_space.context_length=9", " and --set search_space.context_length: workload.isl: a request"),
    ],
)
def test_overrides_that_are_wrong_name_themselves(write, override: str, expected: str) -> None:  # type: ignore[no-untyped-def]
    found = problems(write(GOOD), override)
    assert len(found) == 1
    assert expected in found[0]


def test_what_shows_later_names_the_overrides_it_may_come_from(write) -> None:  # type: ignore[no-untyped-def]
    """A value of one setting can be told at another one, or at a place outside the configuration."""
    path = write(GOOD)
    loaded = load_config(path, ["search_space.hardware_sku=l4", "search_space.context_length=4000"])
    told = [
        Problem("no performance data for vllm on l4", "search_space.backend"),
        Problem("needs 5000 tokens", where="t.jsonl:1", remedy="raise search_space.context_length"),
        Problem("no such file", "workload.trace_path"),
    ]
    with pytest.raises(TraceError) as caught, loaded.locating():
        raise TraceError(told)
    assert [p.where for p in caught.value.problems] == [
        f"{path}:1 and --set search_space.hardware_sku",
        "t.jsonl:1 and --set search_space.context_length",
        f"{path}:5",
    ]


def test_an_override_cannot_go_into_a_block_that_is_none(write) -> None:  # type: ignore[no-untyped-def]
    found = problems(write(GOOD + "goal: 3\n"), "goal.target=throughput")
    assert any("goal is not a block of settings in the file" in problem for problem in found)


def test_a_resolved_configuration_reads_back_equal(write) -> None:  # type: ignore[no-untyped-def]
    config = load_config(write(GOOD)).config
    assert config_from_mapping(dump_resolved(config)) == config
    assert load_config(write(dump_yaml(config), "again.yaml")).config == config
