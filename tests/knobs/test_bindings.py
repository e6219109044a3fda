"""Every setting arrives where its row says, and the check of that fails for one that is forgotten."""

from __future__ import annotations

import ast
import inspect
import re
import shutil
import subprocess
import sys
import typing
from pathlib import Path

import pytest
from bindings_check import BACKENDS, MODES, PREDICTORS, everything, gaps
from branch_fakes import config as small_config

import spica.config.search_space as schema
from spica.config import SearchSpace
from spica.config.load import config_from_mapping, dump_resolved
from spica.deployment.canonical import RULES
from spica.evaluate.engine_args import engine_args
from spica.evaluate.planner_config import planner_config
from spica.evaluate.router import router_arguments
from spica.knobs.bindings import EngineArg, FrontendEnv, Holder, Inert, Pinned, Place, RouterArg, Search
from spica.knobs.knob import Knob, KnobKind
from spica.knobs.setting import Setting, ValueType
from spica.knobs.table import DERIVED, KNOBS
from spica.knobs.when import When
from spica.optimize.protocol import Influence
from spica.trial import Sla

ROOT = Path(__file__).parents[2]


def test_every_setting_arrives_where_its_row_says() -> None:
    assert gaps(KNOBS, DERIVED) == []


def threshold(*, replay: RouterArg | Inert) -> Knob:
    """A row of the router's queue threshold."""
    choices = (2.0, 4.0, 8.0)
    return Knob(
        Setting("router_queue_threshold", ValueType.FLOAT, choices, "x", choices=choices, is_list=True),
        "Queue threshold",
        KnobKind.ATOMIC,
        "Router",
        (Place(Holder.ROUTER, "router_queue_threshold"),),
        Search(Influence.WEIGHT),
        replay,
        FrontendEnv("DYN_ROUTER_QUEUE_THRESHOLD"),
        Pinned(),
        When.KV_ROUTER,
    )


def test_a_knob_that_is_sampled_and_keyed_alone_is_found() -> None:
    """What a copy with a row of its own holds, but no other code reads: a candidate that differs in it has a
    key of its own, and replays like the others."""
    row = threshold(replay=RouterArg("router_queue_threshold"))
    found = "\n".join(gaps({**KNOBS, row.name: row}, DERIVED))
    for sink in ("replay", "files", "repin"):
        assert f"router.{row.name} ({row.name}): the {sink} does not change, and no reason is given" in found
    assert "the key does not" not in found


def test_a_searched_knob_may_not_be_inert() -> None:
    row = threshold(replay=Inert("later"))
    assert f"{row.name}: it is searched, and changes no replay" in gaps({**KNOBS, row.name: row}, DERIVED)


def test_what_is_inert_has_a_reason() -> None:
    with pytest.raises(ValueError, match="reason"):
        Inert("")


#: Rows written into a copy of the project: two that are forgotten, one that is bound.
ROW = """
ROUTER = (*ROUTER, Knob(
    listed("router_queue_threshold", ValueType.FLOAT, (2.0, 4.0, 8.0), "load at which requests wait"),
    "Queue threshold", KnobKind.ATOMIC, "Router", {lives}, Search(Influence.WEIGHT, start=4.0),
    {replay}, {files}, Pinned(), When.KV_ROUTER))
"""
PLACE = '(Place(Holder.ROUTER, "router_queue_threshold"),)'
COPIES = {
    "sampled alone": (
        {"lives": PLACE, "replay": "EngineArg()", "files": 'Inert("later")'},
        "router.router_queue_threshold (router_queue_threshold): the replay does not change",
    ),
    "schema alone": (
        {"lives": "()", "replay": 'RouterArg("x")', "files": 'FrontendEnv("X")'},
        "router_queue_threshold: it lives nowhere in a sample, and no reason is given",
    ),
    "bound": (
        {
            "lives": PLACE,
            "replay": 'RouterArg("router_queue_threshold")',
            "files": 'FrontendEnv("DYN_ROUTER_QUEUE_THRESHOLD")',
        },
        "",
    ),
}


@pytest.mark.parametrize("name", COPIES)
def test_a_row_in_a_copy_of_the_project(name: str, tmp_path: Path) -> None:
    """The check of the copy finds the forgotten rows; the bound one needs nothing but itself."""
    binding, message = COPIES[name]
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    rows = tmp_path / "src" / "spica" / "knobs" / "rows" / "router.py"
    imports = "from spica.knobs.bindings import EngineArg, Inert\n"
    rows.write_text(rows.read_text().replace("\n\n_SCALES", f"\n{imports}\n_SCALES") + ROW.format(**binding))
    paths = [str(tmp_path / "src"), str(ROOT / "tests" / "knobs"), str(ROOT / "tests" / "branches")]
    code = (
        f"import sys; sys.path[:0] = {paths!r}\n"
        "from bindings_check import gaps\n"
        "from spica.knobs.table import DERIVED, KNOBS\n"
        "assert 'router_queue_threshold' in KNOBS\n"
        "print(*gaps(KNOBS, DERIVED), sep='\\n')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert message in done.stdout
    if not message:
        assert done.stdout.strip() == ""


def test_the_schema_names_for_types_what_the_table_makes() -> None:
    """The annotations that mypy reads are those of the fields pydantic has, but for literals."""
    (tree,) = ast.parse(inspect.getsource(SearchSpace)).body
    assert isinstance(tree, ast.ClassDef)
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    names = dict(vars(schema)) | {"Mode": str, "Backend": str, "RouterMode": str}
    for node in block.body:
        assert isinstance(node, ast.AnnAssign)
        assert isinstance(node.target, ast.Name)
        told = eval(ast.unparse(node.annotation), names)
        assert SearchSpace.model_fields[node.target.id].annotation == told, node.target.id
    assert typing.get_args(SearchSpace.model_fields["agg_max_num_seqs"].annotation) == (int, ...)


def test_every_rule_is_named_by_a_row_and_proven_on_the_replay() -> None:
    named = {rule for knob in KNOBS.values() for rule in knob.rules}
    # The ratio is a setting of the workload.
    assert named == {rule.__name__ for rule in RULES} - {"ratio_of_the_same_load"}
    proofs = (ROOT / "tests" / "branches" / "test_canonical_real.py").read_text()
    assert all(re.search(rf"def test_{rule}", proofs) for rule in named)


@pytest.mark.real
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_runtime_takes_all_that_the_rows_tell_it(backend: str, mode: str) -> None:
    """The engine's, the router's and the planner's own parsers refuse what they do not know."""
    from dynamo.llm import KvRouterConfig
    from dynamo.mocker.config import normalize_mocker_config
    from dynamo.planner.config.planner_config import PlannerConfig

    sample = everything(backend, mode, PREDICTORS[0], KNOBS)  # type: ignore[arg-type]
    for role, _ in sample.parallel.groups:
        args = engine_args(sample, role)
        engine = args["engine"]
        assert isinstance(engine, dict)
        # No data of that version is installed; offload is vLLM's alone, and not with speculation.
        engine.pop("timing_model")
        engine["num_gpu_blocks"] = 1000
        without = dict(engine)
        for name in ("native_host_offload", "kv_cache_bytes_per_token"):
            without.pop(name, None)
        assert normalize_mocker_config({**args, "engine": without})["engine"]["aic_nextn"] == 2
        if backend == "vllm":
            engine.pop("aic_nextn")
            assert normalize_mocker_config(args)["engine"]["max_num_seqs"] == 256
    KvRouterConfig(**router_arguments(sample))
    fields = planner_config(sample, "sla", Sla(ttft_ms=1500.0, itl_ms=25.0))
    assert fields is not None
    assert set(fields) <= set(PlannerConfig.model_fields)
    PlannerConfig.model_validate(fields)


def test_a_carried_knob_at_its_default_changes_no_identity() -> None:
    """A run that was begun before there was the knob has neither its key on record, nor its setting."""
    carried = {name: knob for name, knob in KNOBS.items() if knob.carried}
    assert carried
    for name, knob in carried.items():
        assert knob.default in (knob.unset, (knob.unset,))
        assert name not in dump_resolved(small_config())["search_space"]  # type: ignore[operator]
        other = small_config({name: [knob.choices[-1]]})
        assert dump_resolved(other)["search_space"][name] == [knob.choices[-1]]  # type: ignore[index,call-overload]
        assert config_from_mapping(dump_resolved(other)) == other
    for mode in MODES:
        sample = everything("vllm", mode, PREDICTORS[0], {})
        assert not any(name in sample.config() for name in carried)


def test_paths_of_the_engine_are_given_once() -> None:
    """Two knobs of one role that write one argument would hide each other."""
    for role in ("agg", "prefill", "decode"):
        for backend in BACKENDS:
            paths = [
                path
                for knob in KNOBS.values()
                if isinstance(knob.replay, EngineArg) and knob.role in (None, role)
                for path in knob.replay.of(backend)
            ]
            assert len(paths) == len(set(paths))
