from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from spica.errors import InputError, NoPerfDatabase
from spica.facts import known_models, model_facts, model_weight_bytes

pytestmark = pytest.mark.real

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 8192,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError(f"reached for the network: {args}")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)


def local(folder: Path, config: object) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def test_shipped_models() -> None:
    qwen = model_facts("Qwen/Qwen3-32B")
    assert (qwen.architecture, qwen.is_moe, qwen.context_length, qwen.num_experts, qwen.num_layers) == (
        "Qwen3ForCausalLM",
        False,
        40960,
        0,
        64,
    )
    assert (qwen.dtype, qwen.quantization, qwen.is_quantized) == ("bfloat16", None, False)
    deepseek = model_facts("deepseek-ai/DeepSeek-V3")
    assert (deepseek.is_moe, deepseek.num_experts, deepseek.quantization) == (True, 256, "fp8_block")


def test_every_shipped_model_has_facts() -> None:
    for name in known_models():
        facts = model_facts(name)
        assert facts.context_length > 0
        assert facts.num_layers > 0
        assert facts.architecture


def test_weights_are_the_checkpoints() -> None:
    # As published: 32.8e9 parameters of 2 bytes; 671e9 of 1 byte, some kept wider.
    assert model_weight_bytes("Qwen/Qwen3-32B", "vllm") == pytest.approx(2 * 32.8e9, rel=0.01)
    assert model_weight_bytes("deepseek-ai/DeepSeek-V3", "trtllm") == pytest.approx(671e9, rel=0.06)


def test_a_local_folder_and_its_config_file_are_one_model(tmp_path: Path) -> None:
    folder = local(tmp_path / "mine", LLAMA)
    by_folder = model_facts(folder)
    by_file = model_facts(f"{folder}/config.json")
    assert by_folder.path == by_file.path == str((tmp_path / "mine").resolve())
    assert (by_folder.context_length, by_folder.is_moe, by_folder.num_layers) == (8192, False, 32)
    # Attention 2 x 4096^2 + 2 x 4096 x 1024, FFN 3 x 4096 x 14336, 32 layers; embeddings in and out.
    parameters = 32 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336) + 2 * 128256 * 4096
    assert model_weight_bytes(folder, "vllm") == pytest.approx(2 * parameters, rel=0.01)


def test_an_unknown_model_names_the_nearest_and_stays_offline() -> None:
    with pytest.raises(NoPerfDatabase) as caught:
        model_facts("qwen/qwen3-32b-fp8")
    (problem,) = caught.value.problems
    assert problem.suggestion == "Qwen/Qwen3-32B-FP8"
    assert "not downloaded" in problem.message
    with pytest.raises(NoPerfDatabase):
        model_facts("mistralai/Mixtral-8x7B-v0.1")


def without(key: str) -> dict[str, object]:
    return {k: v for k, v in LLAMA.items() if k != key}


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (without("max_position_embeddings"), "config.json lacks 'max_position_embeddings'"),
        (without("vocab_size"), "config.json lacks 'vocab_size'"),
        (without("architectures"), "no list of 'architectures'"),
        ({**LLAMA, "architectures": []}, "no list of 'architectures'"),
        ({**LLAMA, "max_position_embeddings": "8k"}, "max_position_embeddings is '8k'"),
        ({**LLAMA, "max_position_embeddings": float("inf")}, "max_position_embeddings is inf"),
        ({**LLAMA, "hidden_size": -1}, "hidden_size is -1, not a positive whole number"),
        ({**LLAMA, "num_hidden_layers": "many"}, "num_hidden_layers is 'many'"),
        ({**LLAMA, "num_attention_heads": True}, "num_attention_heads is True"),
        ({**LLAMA, "num_hidden_layers": None}, "config.json cannot be used"),
        ([LLAMA], "holds a list, not an object"),
    ],
)
def test_a_local_config_that_lacks_something(tmp_path: Path, config: object, says: str) -> None:
    folder = local(tmp_path / "m", config)
    with pytest.raises(InputError) as caught:
        model_facts(folder)
    (problem,) = caught.value.problems
    assert says in problem.message
    assert folder in problem.message


def test_an_architecture_without_a_model(tmp_path: Path) -> None:
    folder = local(tmp_path / "m", {**LLAMA, "architectures": ["MambaForCausalLM"]})
    with pytest.raises(NoPerfDatabase, match="architecture MambaForCausalLM is not supported"):
        model_facts(folder)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{not json", "is not JSON"),
        (b"\xff\xfe\x00", "is not JSON"),
        (b"", "is not JSON"),
        (None, "has no config.json"),
    ],
)
def test_a_folder_without_a_readable_config(tmp_path: Path, content: bytes | None, says: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(InputError, match=says):
        model_facts(str(tmp_path))


@pytest.mark.parametrize(
    "path", ["./no/such/model", "/no/such/model", "~/no-such-model", "no/such/model/config.json"]
)
def test_a_path_that_does_not_exist(path: str) -> None:
    with pytest.raises(InputError, match="there is no such folder"):
        model_facts(path)


@pytest.mark.parametrize("path", ["x" * 5000, "~no_such_user_at_all/model"])
def test_a_name_that_is_no_path(path: str) -> None:
    with pytest.raises(InputError, match="not a path that can be looked at"):
        model_facts(path)


def test_a_file_that_is_not_a_config(tmp_path: Path) -> None:
    file = tmp_path / "weights.safetensors"
    file.write_bytes(b"")
    with pytest.raises(InputError, match=r"a folder with a config\.json, or that file itself"):
        model_facts(str(file))
