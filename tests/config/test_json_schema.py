"""The schema that editors check with: judged by another implementation of JSON Schema."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from spica.config.json_schema import json_schema
from spica.config.load import config_from_mapping
from spica.config.model import SmartSearchConfig
from spica.errors import ConfigError

EXAMPLES = Path(__file__).parents[2] / "examples"
SHIPPED = EXAMPLES / "spica.schema.json"
FILES = sorted(EXAMPLES.glob("*.yaml"))
CHECKER = Draft202012Validator(json_schema())

#: One change to a sound configuration each; both the schema and the product must refuse it.
WRONG: dict[str, dict[str, object]] = {
    "an unknown setting": {"search_space": {"model_nam": "x"}},
    "an unknown block": {"sweeep": {}},
    "a choice that is none": {"search_space": {"backend": ["vlm"]}},
    "an entry that is not on the menu": {"search_space": {"agg_max_num_seqs": [256, 300]}},
    "an empty list": {"search_space": {"deployment_mode": []}},
    "a word for a number": {"workload": {"isl": "many"}},
    "a number below the limit": {"workload": {"osl": 0}},
    "a number for a word": {"search_space": {"hardware_sku": 3}},
    "a target that is none": {"goal": {"target": "fastest"}},
    "a worker without tp": {"search_space": {"parallel_configs": [{"replicas": 2}]}},
    "one role alone": {"search_space": {"parallel_configs": [{"prefill": {"tp": 2}}]}},
    "a negative limit": {"goal": {"target": "goodput_per_gpu", "sla": {"ttft_ms": -1, "itl_ms": 3}}},
    "a number of rounds below one": {"sweep": {"max_rounds": 0}},
}
#: A knob pinned to one value takes any legal number, a list only entries of the menu.
RIGHT: dict[str, dict[str, object]] = {
    "a pin beside the menu": {"search_space": {"agg_max_num_seqs": [300]}},
    "one worker shape": {
        "search_space": {"deployment_mode": ["agg"], "parallel_configs": [{"tp": 2, "replicas": 2}]}
    },
    "two roles": {
        "search_space": {
            "deployment_mode": ["disagg"],
            "parallel_configs": [{"prefill": {"tp": 2}, "decode": {"tp": 1}}],
        }
    },
    "an sla": {"goal": {"target": "goodput_per_gpu", "sla": {"ttft_ms": 1000, "itl_ms": 30}}},
}


def with_change(change: dict[str, dict[str, object]]) -> dict[str, object]:
    sound: dict[str, dict[str, object]] = {
        "search_space": {"model_name": "Qwen/Qwen3-32B", "hardware_sku": "h200_sxm", "gpu_budget": 8},
        "workload": {"isl": 3000, "osl": 300, "concurrency": 64, "num_request_ratio": 10},
    }
    return {name: {**sound.get(name, {}), **change.get(name, {})} for name in {**sound, **change}}


def complaints(document: object) -> list[str]:
    return [error.message for error in CHECKER.iter_errors(document)]


def test_it_is_a_json_schema() -> None:
    Draft202012Validator.check_schema(json_schema())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_is_accepted_and_names_the_schema_beside_it(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert complaints(yaml.safe_load(text)) == []
    assert text.startswith(f"# yaml-language-server: $schema={SHIPPED.name}\n")


@pytest.mark.parametrize("change", RIGHT.values(), ids=RIGHT)
def test_what_is_right_is_accepted_by_both(change: dict[str, dict[str, object]]) -> None:
    document = with_change(change)
    assert complaints(document) == []
    assert isinstance(config_from_mapping(document), SmartSearchConfig)


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_refused_by_both(change: dict[str, dict[str, object]]) -> None:
    document = with_change(change)
    assert len(complaints(document)) == 1
    with pytest.raises(ConfigError):
        config_from_mapping(document)


def test_the_shipped_file_is_what_the_command_prints() -> None:
    assert json.loads(SHIPPED.read_text(encoding="utf-8")) == json_schema(), (
        f"write it again: spica schema > {SHIPPED.relative_to(EXAMPLES.parent)}"
    )
