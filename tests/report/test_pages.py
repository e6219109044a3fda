"""The terminal view and the HTML page."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from made_run import agg, counted, disagg, feasible, identity, metrics, sample, small_run, write_run
from rich.console import Console

from spica.deployment.sample import FlatConfig, KvLoad
from spica.report.charts import safe_json
from spica.report.collect import collect
from spica.report.data import RunReport
from spica.report.html import report_html
from spica.report.numbers import (
    batching_text,
    duration,
    in_sla,
    number,
    parallel_text,
    percent,
    policy_text,
    sla_text,
)
from spica.report.terminal import result_view
from spica.trial import Outcome, Sla, TrialResult

GOLDEN = Path(__file__).parent / "golden"
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


def printed(report: RunReport, width: int = 80) -> str:
    out = io.StringIO()
    Console(file=out, width=width, markup=False, highlight=False).print(result_view(report))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def test_terminal_view_is_the_golden_one(tmp_path: Path) -> None:
    small_run(tmp_path / "run")
    assert printed(collect(tmp_path / "run")) == (GOLDEN / "small_run.txt").read_text()


def test_terminal_view_of_a_front_fits_80_columns(tmp_path: Path) -> None:
    steps = [
        (sample(agg(1, n), kv_router=True), feasible(metrics(1000.0 * n, gpus=n, per_user=100.0 / n)))
        for n in (1, 2, 4, 8)
    ]
    goal = {"target": "pareto", "pareto_objectives": ["throughput", "throughput_per_user"]}
    write_run(tmp_path / "run", {"agg": steps}, identity(goal))
    text = printed(collect(tmp_path / "run"))
    assert max(map(len, text.splitlines())) <= 80
    assert "front of 4" in text
    assert "…" not in text


SLA = {"ttft_ms": 1500.0, "itl_ms": 20.0}


def sla_run(folder: Path, goal: dict[str, object]) -> RunReport:
    """Three candidates of 4000 tok/s on 8, 4 and 8 GPUs; 288, 256 and 0 of 288 requests met the SLA."""
    wide = sample(disagg((1, 2), (2, 1)), kv_router=True)
    found = [
        (sample(agg(2, 4)), counted(metrics(4000.0, per_user=40.0), 288, 288, p95_ttft=1234.5)),
        (wide, counted(metrics(4000.0, gpus=4.0, per_user=60.0), 256, 288, p95_ttft=2134.05)),
        (sample(agg(8, 1)), counted(metrics(4000.0, per_user=90.0), 0, 288, p95_ttft=9999.0)),
    ]
    write_run(folder, {"agg": [(one, feasible(m)) for one, m in found]}, identity({**goal, "sla": SLA}))
    return collect(folder)


def test_terminal_view_with_an_sla_is_the_golden_one(tmp_path: Path) -> None:
    text = printed(sla_run(tmp_path / "run", {"target": "goodput_per_gpu"}))
    assert text == (GOLDEN / "sla_run.txt").read_text()
    assert max(map(len, text.splitlines())) <= 80
    # 4000 / 4 * 256 / 288 = 888.9 and 256 / 288 = 0.8889; 4000 / 8 of 288 / 288; none of the third.
    rows = [line.split()[:3] for line in text.splitlines() if re.match(r"[123] +\d", line)]
    assert rows == [["1", "888.9", "88.9%"], ["2", "500.0", "100%"], ["3", "0", "0%"]]


@pytest.mark.parametrize(
    "objectives",
    [["goodput", "throughput_per_user"], ["goodput_per_gpu", "throughput_per_gpu", "e2e_latency"]],
)
def test_a_front_under_an_sla_fits_80_columns(tmp_path: Path, objectives: list[str]) -> None:
    report = sla_run(tmp_path / "run", {"target": "pareto", "pareto_objectives": objectives})
    spread = [replace(leader, std=(12.345,) * len(objectives)) for leader in report.leaders]
    text = printed(replace(report, leaders=tuple(spread)))
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert "88.9%" in text
    assert text.count("±12.35") == len(objectives) * len(report.front)
    assert {"disagg", "vllm", "batch", "8k/256"} <= set(text.split())  # no word of a deployment is cut


def test_deployments_stand_below_the_numbers_where_these_leave_no_room(tmp_path: Path) -> None:
    objectives = ["goodput_per_gpu", "throughput_per_user", "e2e_latency"]
    report = sla_run(tmp_path / "run", {"target": "pareto", "pareto_objectives": objectives})
    spread = [replace(leader, std=(12.345,) * 3) for leader in report.leaders]
    report = replace(report, leaders=tuple(spread))
    whole = "disagg vllm 2x tp1 > 1x tp2, batch 8k/256 8k/256, kv 0.5/2/0.2"
    assert [line for line in printed(report, 80).splitlines() if re.fullmatch(rf"[* ]\d  {whole}", line)]
    # With room for it, the deployment stands beside the numbers, in lines of its own.
    assert re.search(r"^[* ]\d  .*%.* disagg vllm 2x tp1 > 1x tp2$", printed(report, 100), re.MULTILINE)


def cells(row: str) -> list[str]:
    return re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)


def test_html_shows_the_sla_and_who_met_it(tmp_path: Path) -> None:
    page = report_html(sla_run(tmp_path / "run", {"target": "goodput_per_gpu"}))
    assert '<p class="lead">SLA: TTFT 1500 ms, ITL 20 ms</p>' in page
    assert "<b>88.9%</b><span>of the requests of the best in SLA</span>" in page
    section = page[page.index("<h2>Candidates") :]
    assert '<div class="scroll candidates"><table>' in section
    head, *rows = (cells(row) for row in re.findall(r"<tr.*?</tr>", section)[:4])
    shown = [dict(zip(head, row, strict=True)) for row in rows]
    assert [row["in SLA"] for row in shown] == ["88.9%", "100%", "0%"]
    assert [row["p95 TTFT ms"] for row in shown] == ["2,134", "1,234", "9,999"]
    assert {row["mean TTFT ms"] for row in shown} == {"769.7"}
    assert {row["mean ITL ms"] for row in shown} == {"20.80"}
    assert [row["tok/s/GPU"] for row in shown] == ["1,000", "500.0", "500.0"]


def test_a_wide_table_scrolls_in_its_own_box(tmp_path: Path) -> None:
    small_run(tmp_path / "run")
    page = report_html(collect(tmp_path / "run"))
    assert re.search(r"^\.scroll \{ overflow-x: auto;", page, re.MULTILINE)
    assert page.count("<table>") == page.count('<div class="scroll ') > 2


def test_without_an_sla_nothing_is_said_of_one(tmp_path: Path) -> None:
    """Even where the replay counts good requests, as under a planner with targets of its own."""
    one = counted(metrics(4000.0), 256, 288, p95_ttft=1234.5)
    write_run(tmp_path / "run", {"agg": [(sample(agg(2, 4)), feasible(one))]})
    report = collect(tmp_path / "run")
    page = report_html(report)
    assert "SLA" not in page[page.index("<main>") :]
    assert "SLA" not in printed(report)


@pytest.mark.parametrize(
    ("sla", "text"),
    [
        (None, None),
        (Sla(ttft_ms=1500.0, itl_ms=20.0), "SLA: TTFT 1500 ms, ITL 20 ms"),
        (Sla(e2e_ms=1234567.5), "SLA: end to end 1234567.5 ms"),
        (Sla(0.5, 0.01, 9.0), "SLA: TTFT 0.5 ms, ITL 0.01 ms, end to end 9 ms"),
    ],
)
def test_sla_words(sla: Sla | None, text: str | None) -> None:
    assert sla_text(sla) == text


@pytest.mark.parametrize(
    ("good", "requests", "text"),
    [
        (256, 288, "88.9%"), (288, 288, "100%"), (0, 288, "0%"), (4999, 5000, ">99.9%"), (1, 5000, "<0.1%"),
        (999, 1000, "99.9%"), (1, 1000, "0.1%"), (1, 2, "50.0%"), (0, 0, "-"), (None, 288, "-"),
    ],
)  # fmt: skip
def test_the_share_in_sla(good: int | None, requests: int, text: str) -> None:
    summary = {"completed_requests": float(requests)}
    if good is not None:
        summary["goodput_completed_requests"] = float(good)
    assert percent(in_sla(summary)) == text


def test_terminal_view_without_candidates(tmp_path: Path) -> None:
    failed = TrialResult(Outcome.FAILED, "[bold]no[/bold] engine")
    write_run(tmp_path / "run", {"agg": [(sample(agg(1, 1)), failed)]})
    text = printed(collect(tmp_path / "run"))
    assert "No candidate was feasible." in text
    assert "1 x agg failed: [bold]no[/bold] engine" in text


class Elements(HTMLParser):
    """Names of the elements and of all attributes, and the text of each script."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]


def evil_run(folder: Path) -> RunReport:
    config = sample(agg(1, 1))
    who = identity(model=EVIL)
    who = type(who)(f"# {EVIL}\n", who.config_json, who.seed, who.versions)
    failed = TrialResult(Outcome.FAILED, EVIL, traceback=EVIL)
    write_run(folder, {"agg": [(config, feasible(metrics(1.0))), (sample(agg(2, 1)), failed)]}, who)
    return collect(folder)


def test_html_escapes_everything(tmp_path: Path) -> None:
    page = report_html(evil_run(tmp_path / "run"))
    parsed = Elements()
    parsed.feed(page)
    plain = Elements()
    small_run(tmp_path / "other")
    plain.feed(report_html(collect(tmp_path / "other")))
    assert parsed.tags.count("script") == plain.tags.count("script")
    assert "img" not in parsed.tags
    assert not {name for name in parsed.attributes if name.startswith("on")}
    assert parsed.links == []
    assert "alert(1)</script>" not in page
    assert page.count("&lt;script&gt;alert(1)") >= 4


def test_html_asks_for_nothing_from_outside(tmp_path: Path) -> None:
    small_run(tmp_path / "run")
    page = report_html(collect(tmp_path / "run"))
    assert "default-src 'none'" in page
    parsed = Elements()
    parsed.feed(page)
    assert parsed.links == []
    assert "link" not in parsed.tags


def figures(page: str) -> list[dict]:  # type: ignore[type-arg]
    return [json.loads(text) for text in re.findall(r"<script>\{ const f = (\{.*?\});\n", page)]


def test_html_shows_the_best_so_far(tmp_path: Path) -> None:
    small_run(tmp_path / "run")
    progress, tradeoff = figures(report_html(collect(tmp_path / "run")))
    line = next(trace for trace in progress["data"] if trace["name"] == "best so far")
    assert [float(v) for v in line["y"]] == [2746.464, 3064.08, 3064.08, 3064.08]
    assert line["x"] == [1, 2, 4, 5]
    star = next(trace for trace in tradeoff["data"] if trace["name"] == "best")
    assert star["y"] == [3064.08 / 8]


def test_html_front(tmp_path: Path) -> None:
    steps = [
        (sample(agg(1, n)), feasible(metrics(8 * gpu, per_user=user)))
        for n, (gpu, user) in enumerate([(4.0, 10.0), (3.0, 20.0), (1.0, 40.0), (1.0, 5.0)], start=1)
    ]
    goal = {"target": "pareto", "pareto_objectives": ["throughput_per_gpu", "throughput_per_user"]}
    write_run(tmp_path / "run", {"agg": steps}, identity(goal))
    (figure,) = figures(report_html(collect(tmp_path / "run")))
    front = next(trace for trace in figure["data"] if trace["name"] == "front")
    assert (front["x"], front["y"]) == ([10.0, 20.0, 40.0], [4.0, 3.0, 1.0])


def test_json_in_a_script_cannot_end_it() -> None:
    import plotly.graph_objects as go

    text = safe_json(go.Figure(layout={"title": {"text": "</script><!-- &"}}))
    assert "<" not in text
    assert json.loads(text)["layout"]["title"]["text"] == "</script><!-- &"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2746.464, "2,746"), (383.01, "383.0"), (15.5889, "15.59"), (0.29917, "0.2992"), (0.0, "0"),
        (1234567.0, "1,234,567"), (None, "-"), (float("inf"), "inf"), (-3.14159, "-3.142"),
    ],
)  # fmt: skip
def test_numbers(value: float | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(4.24, "4.2 s"), (185.0, "3 min 05 s"), (7380.0, "2 h 03 min"), (59.99, "60.0 s")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_candidate_words() -> None:
    config = sample(agg(1, 2, attention_dp=4, moe_ep=4), tokens=32768, seqs=512).config()
    assert parallel_text(config) == "2x tp1 dp4 ep4"
    assert batching_text(config) == "32k/512"


def test_the_load_of_each_candidate_is_shown_where_it_differs(tmp_path: Path) -> None:
    loads = {1: KvLoad(0.25, 1368, 5472, 5_472_000, (("agg", 5_472_000),)), 2: KvLoad(0.0, 1, 9, 9000, ())}
    steps = [
        (
            replace(sample(agg(1, n)), concurrency=load.concurrency, kv_load=load),
            feasible(metrics(1000.0 * n, gpus=n, per_user=100.0 / n)),
        )
        for n, load in loads.items()
    ]
    write_run(tmp_path / "run", {"agg": steps}, identity({"target": "pareto"}))
    report = collect(tmp_path / "run")
    page = report_html(report)
    head, first, second = re.findall(r"<tr.*?</tr>", page[page.index("<h2>Candidates") :])[:3]
    place = re.findall(r"<th[^>]*>(.*?)</th>", head).index("in flight")
    shown = {re.findall(r"<td[^>]*>(.*?)</td>", row)[place] for row in (first, second)}
    assert shown == {"1,368", "1"}
    assert "1,368 in flight" in printed(report)
    small_run(tmp_path / "other")
    assert "in flight</th>" not in report_html(collect(tmp_path / "other"))


def test_a_policy_of_ones_own_is_told_by_its_loops() -> None:
    both = {"enable_throughput_scaling": True, "enable_load_scaling": True}
    times = {"throughput_adjustment_interval_seconds": 30, "load_adjustment_interval_seconds": 5}
    own: FlatConfig = both | times | {"planner_scaling_policy": '{"enable_load_scaling":true}'}
    assert policy_text(own) == "throughput 30 s + load 5 s"
    assert policy_text(own | {"enable_throughput_scaling": False}) == "load 5 s"
    assert policy_text(own | {"planner_scaling_policy": "hybrid_180_5"}) == "hybrid_180_5"
    assert policy_text({"planner_scaling_policy": "disabled", "enable_load_scaling": False}) is None


def test_the_hypervolume_of_each_round_is_printed(tmp_path: Path) -> None:
    steps = [(sample(agg(1, n)), feasible(metrics(1000.0 * n, gpus=n, per_user=100.0 / n))) for n in (1, 2)]
    write_run(tmp_path / "run", {"agg": steps}, identity({"target": "pareto"}))
    report = collect(tmp_path / "run")
    assert "hypervolume" not in printed(report)
    grown = replace(report, extras=replace(report.extras, hypervolumes=((4, 1250.4), (8, 30792.0))))
    text = " ".join(printed(grown).split())
    assert "hypervolume per round, tok/s/GPU x tok/s/user: 1,250 (4 replays), 30,792 (8 replays)" in text
