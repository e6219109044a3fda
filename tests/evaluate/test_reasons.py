"""Messages as the runtime (1.6.1) gives them."""

from __future__ import annotations

import pytest

from spica.evaluate.reasons import STACK_PREFIX, TRACE_PREFIX, classify
from spica.trial import Outcome

MLA = (
    "engine error: generalized engine worker 0 is now poisoned because a rank may have been partially "
    "mutated: executing attention-DP rank 0: external prefill prediction failed: AIS prefill prediction "
    'failed: perf database error: context MLA data missing for ContextKey { fmha_quant: "fp8" } at gb200'
)


@pytest.mark.parametrize(
    ("message", "outcome", "reason"),
    [
        (
            "no KV budget: non-KV memory (9 bytes) exceeds it",
            Outcome.INFEASIBLE,
            "no KV budget: no KV budget",
        ),
        (
            "replay invariant violated: offline replay detected an effect-free zero-duration pass",
            Outcome.INFEASIBLE,
            "the replay stands still: a request is larger than a worker's whole KV pool",
        ),
        ("native_host_offload is supported only for backend=vllm", Outcome.UNSUPPORTED, "host KV offload"),
        ("aic_nextn must be in 1..=5, got 9", Outcome.UNSUPPORTED, "speculative decoding"),
        ("unsupported schema version for EngineSpec: 28", Outcome.FAILED, STACK_PREFIX),
        ("trace line 1 is missing hash_ids", Outcome.FAILED, TRACE_PREFIX),
        ("failed to parse line 1 from t.jsonl as JSON", Outcome.FAILED, TRACE_PREFIX),
        (
            MLA,
            Outcome.UNSUPPORTED,
            "no performance data: context MLA data missing for ContextKey { fmha_quant",
        ),
        ("something new", Outcome.FAILED, "ValueError: something new"),
    ],
)
def test_each_known_message(message: str, outcome: Outcome, reason: str) -> None:
    got = classify(ValueError(message))
    assert got[0] is outcome
    assert got[1].startswith(reason)


def test_a_missing_package_is_the_stacks_fault_and_a_long_message_is_cut() -> None:
    assert classify(ImportError("No module named 'filterpy'")) == (
        Outcome.FAILED,
        f"{STACK_PREFIX}: No module named 'filterpy'",
    )
    assert len(classify(RuntimeError("x\n" * 5000))[1]) < 450
    assert classify(RuntimeError())[1] == "RuntimeError: no message"
