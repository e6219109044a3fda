"""Small deliberate faults of the product, each with the tests that must notice it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """``old``, which stands once in ``file`` (below ``src/spica``), becomes ``new``."""

    name: str
    file: str
    old: str
    new: str
    tests: str


GOALS, RANK = "tests/goals", "tests/goals"
GP = "tests/optimize/test_optimizer_parts.py"
ENGINE = "tests/evaluate/test_engine_args.py"
LEDGER, DAMAGE = "tests/record/test_ledger.py", "tests/report/test_damage.py"
LOOP, CONFIRM = "tests/sweep/test_sweep_loop.py", "tests/sweep/test_sweep_confirm.py"
FILES, BUDGET = "tests/report/test_manifests.py", "tests/sweep/test_sweep_budget.py"
KV, TRAFFIC = "tests/branches/test_kv_load.py", "tests/branches/test_traffic.py"

MUTANTS = (
    # What is compared
    Mutant(
        "a minimised objective measured from its best value",
        "goals/ranking.py",
        "max(finite))",
        "min(finite))",
        RANK,
    ),
    Mutant(
        "the front in the order of asking", "goals/ranking.py", "(point(c)[-1], key(c))", "point(c)[-1]", RANK
    ),
    Mutant(
        "ties without regard to GPUs",
        "goals/ranking.py",
        "-c.score, c.used_gpus, c.key",
        "-c.score, c.key",
        RANK,
    ),
    Mutant(
        "equals in the order of asking", "goals/ranking.py", "c.used_gpus, c.key)))", "c.used_gpus)))", RANK
    ),
    Mutant("the last knee of equals", "goals/ranking.py", "min(scaled(i)), -i)", "min(scaled(i)), i)", RANK),
    Mutant("an uneven knee", "goals/ranking.py", "sum(scaled(i)), min(", "sum(scaled(i)), -min(", RANK),
    Mutant("dominance without being better", "goals/ranking.py", " and high != low", "", RANK),
    Mutant("volume counted twice", "goals/ranking.py", "(level - below) * _vol", "level * _vol", RANK),
    Mutant(
        "GPUs averaged the wrong way",
        "goals/metrics/usage.py",
        "gpu_hours / (duration_ms / _MS_PER_HOUR)",
        "gpu_hours * (duration_ms / _MS_PER_HOUR)",
        GOALS,
    ),
    Mutant(
        "no request completed",
        "goals/score.py",
        "not completed >= 1",
        "completed < 0",
        DAMAGE + " tests/report",
    ),
    Mutant(
        "NaN passes",
        "goals/score.py",
        "if not 0 <= measured < math.inf",
        "if measured < 0",
        "tests/report/test_collect.py",
    ),
    # The search
    Mutant(
        "fitted to the worst half",
        "optimize/gp.py",
        "best = np.argsort(-table.max(axis=1)",
        "best = np.argsort(table.max(axis=1)",
        GP,
    ),
    Mutant("pending points ignored", "optimize/gp.py", "past.rows(past.pending_ids())", "past.rows(())", GP),
    Mutant(
        "the chance of a score without its deviation",
        "optimize/gp.py",
        "share + deviation * mean",
        "share + mean",
        GP,
    ),
    Mutant(
        "every restart from the same seed", "optimize/surrogate.py", "default_rng(seed)", "default_rng(0)", GP
    ),
    Mutant("told before it is measured", "sweep/loop.py", " and entry.key in state.told", "", LOOP),
    Mutant("the worst branch leads", "sweep/budget.py", "max(known) if up", "min(known) if up", BUDGET),
    Mutant(
        "a branch behind keeps its rounds", "sweep/budget.py", "// LEADER_ROUNDS", "* LEADER_ROUNDS", BUDGET
    ),
    Mutant("leaders by asking", "sweep/confirm.py", "(-share(c), c.used_gpus, c.key)", "-share(c)", CONFIRM),
    Mutant(
        "leaders without regard to GPUs",
        "sweep/confirm.py",
        "-share(c), c.used_gpus, c.key",
        "-share(c), c.key",
        CONFIRM,
    ),
    Mutant(
        "chosen for being high and averaged",
        "sweep/confirm.py",
        "s.mean for s in spreads",
        "s.max for s in spreads",
        CONFIRM,
    ),
    Mutant("everything differs", "sweep/confirm.py", "p_value < SIGNIFICANCE", "p_value <= 1", CONFIRM),
    # What can run
    Mutant(
        "GPUs of one role forgotten",
        "deployment/shapes.py",
        "self.prefill.total_gpus + self.decode.total_gpus",
        "self.decode.total_gpus",
        "tests/deployment/test_parallel_pool.py",
    ),
    Mutant(
        "pins beyond the budget",
        "branches/pins.py",
        "config.used_gpus > request.gpu_budget",
        "config.used_gpus > 2 * request.gpu_budget",
        "tests/deployment/test_parallel_pool.py",
    ),
    Mutant("KV: one request is too few", "deployment/kv_load.py", "if capacity < 1:", "if capacity < 2:", KV),
    Mutant(
        "KV: less than a block",
        "deployment/kv_load.py",
        "role.capacity_tokens < 1",
        "role.capacity_tokens < 0",
        KV,
    ),
    Mutant("KV: all of the answer", "deployment/kv_load.py", "isl + osl // 2", "isl + osl", KV),
    Mutant(
        "KV: prefill drives", "deployment/kv_load.py", 'role.role != "prefill")', 'role.role != "decode")', KV
    ),
    # What is replayed and written
    Mutant(
        "SGLang's step half told",
        "knobs/rows/engines.py",
        ', "engine.sglang.max_prefill_tokens"',
        ",",
        ENGINE,
    ),
    Mutant(
        "attention ranks forgotten",
        "evaluate/engine_args.py",
        '"attention_dp": shape.attention_dp',
        '"attention_dp": 1',
        ENGINE,
    ),
    Mutant("GPUs shared by workers", "ship/launch.py", "first_gpu += worker.gpus", "first_gpu += 1", FILES),
    Mutant(
        "one node for every worker", "ship/launch.py", "needed > context.gpus_per_node", "False", "tests/ship"
    ),
    Mutant(
        "GPUs of one rank",
        "ship/workers.py",
        "self.tp * self.pp * self.attention_dp",
        "self.tp * self.pp",
        FILES,
    ),
    # The record
    Mutant("a changed row believed", "record/seal.py", "value != digest(table, row)", "False", LEDGER),
    Mutant("a missing row unseen", "record/seal.py", "value != GONE and name not in seen", "False", LEDGER),
    Mutant("a moved row unseen", "record/seal.py", "number < latest", "False", LEDGER),
    Mutant("seals out of order", "record/seal.py", "!= seal.chain", "is None", LEDGER),
    Mutant("a key of other settings", "record/reading.py", "key_of(config) != key", "False", LEDGER),
    Mutant("negative numbers", "record/reading.py", "value < least or ", "", LEDGER),
    Mutant("any version", "record/reading.py", "not _VERSION.fullmatch(_text(version))", "False", LEDGER),
    Mutant(
        "a lock file that was replaced",
        "record/lock.py",
        "if self._is_current(fd):",
        "if fd:",
        "tests/sweep/test_run_folder.py",
    ),
    Mutant("links followed", "record/connect.py", "if part.is_symlink():", "if False:", LEDGER),
    Mutant(
        "a changed table believed",
        "evaluate/slim_tables.py",
        'made["files"] != _digests(folder / "systems")',
        "False",
        "tests/evaluate/test_slim_tables.py",
    ),
    Mutant(
        "a changed note believed",
        "storage/remembered.py",
        " and kept_sum == _sum([question], answer)",
        "",
        "tests/storage",
    ),
    Mutant("escape sequences pass", "text.py", '"Cc", ', "", LEDGER),
    Mutant(
        "formulas pass", "text.py", "if text.startswith(_FORMULA) else text", "if not text else text", DAMAGE
    ),
)
