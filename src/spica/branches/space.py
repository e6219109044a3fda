"""What will be searched, and what was left out, as JSON: for ``spica check --json`` and the run folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from spica.branches.backend_pool import RejectedShape
from spica.branches.branch import Branch
from spica.branches.build import BranchPlan

GIB = 2**30

Json = Mapping[str, "Json"] | Sequence["Json"] | str | int | float | bool | None


def space_json(plan: BranchPlan) -> dict[str, Json]:
    """The plan for programs, and for ``space.json``: branches, dimensions, pools, everything dropped."""
    return {
        "max_seq_len": plan.max_seq_len,
        "branches": [_branch_json(branch) for branch in plan.branches],
        "not_searched": [{"what": f"{d.kind} {d.what}", "reason": d.reason} for d in plan.dropped],
        "shapes_dropped": [
            {
                "what": f"{where} {shape.role} {shape.shape}",
                "reason": shape.reason,
                "detail": bytes_text(shape),
            }
            for where, shape in rejected_shapes(plan)
        ],
        "warnings": list(plan.warnings),
    }


def _branch_json(branch: Branch) -> dict[str, Json]:
    return {
        "name": branch.mode,
        "configs": len(branch.pool),
        "backends": [
            {"name": s.backend, "version": s.version, "configs": s.configs, "rejected": len(s.rejected)}
            for s in branch.summaries
        ],
        "dimensions": [
            {"name": d.name, "kind": d.kind, "values": list(d.values), "default": d.default, "log": d.log}
            for d in branch.dimensions
        ],
    }


def rejected_shapes(plan: BranchPlan) -> Iterator[tuple[str, RejectedShape]]:
    """Every shape ruled out, with the mode and backend it was ruled out for."""
    for branch in plan.branches:
        for summary in branch.summaries:
            for shape in summary.rejected:
                yield f"{branch.mode} {summary.backend}", shape
    for pool in plan.rejected:
        for shape in pool.rejected:
            yield f"{pool.mode} {pool.backend}", shape


def bytes_text(shape: RejectedShape) -> str:
    """Where the memory of one GPU goes, in GiB; empty when the memory was not the reason."""
    breakdown = None if shape.verdict is None else shape.verdict.capacity.breakdown
    if breakdown is None or shape.verdict is None:
        return ""
    tokens = shape.verdict.tokens
    held = "no KV cache" if tokens is None else f"{tokens} KV tokens per rank"
    return (
        f"GPU {breakdown.gpu_bytes / GIB:.1f} GiB: weights {breakdown.weights_bytes / GIB:.1f}, "
        f"activations {breakdown.activations_bytes / GIB:.1f}, runtime {breakdown.runtime_bytes / GIB:.1f}, "
        f"communication {breakdown.communication_bytes / GIB:.1f}; {held}"
    )
