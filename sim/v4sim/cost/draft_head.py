"""What speculation adds to a step: the draft passes; the wider verify pass is priced as the step itself.

MTP (EAGLE with one chain), k drafts: k - 1 passes over one token a sequence, and a draft-extend over the
whole verify window, which yields the first draft of the next step. DSpark: one block pass over the verify
window through all draft layers. A prefill chunk runs through the draft layers once. Every pass has its own LM
head. Draft experts fewer than the model's (DSpark: 128, top-3) are priced as the model's at the same
number of token-expert pairs.

A draft layer attends to its sliding window only. Units: nanoseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from v4sim.cost.attention import NS, AttentionCost
from v4sim.cost.experts import ExpertCost
from v4sim.cost.operation import Operation
from v4sim.cost.profile import Profile
from v4sim.cost.tables import Line

if TYPE_CHECKING:
    from v4sim.config import Deployment
    from v4sim.model import ModelSpec


class LmHead:
    """The vocabulary GEMM. SGLang's DP ranks gather hidden states and cut it over all GPUs; else over TP."""

    def __init__(self, profile: Profile, deployment: Deployment, spec: ModelSpec) -> None:
        parallel = deployment.parallel
        self._gathered = deployment.engine.kind == "sglang" and parallel.attention_dp > 1
        cut = parallel.attention_tp
        if self._gathered and profile.has(f"lm_head.{spec.name}.tp{deployment.gpus_per_replica}"):
            cut = deployment.gpus_per_replica
        else:
            self._gathered = False
        self.operation = profile.operation(f"lm_head.{spec.name}.tp{cut}")
        self._line = self.operation.line(NS)

    def at(self, total: int, widest: int) -> float:
        rows = total if self._gathered else widest
        return self._line.at(rows) if rows else 0.0


class DraftHead:
    """Compiled draft passes; costs nothing where speculation is off."""

    def __init__(
        self,
        profile: Profile,
        deployment: Deployment,
        spec: ModelSpec,
        attention: AttentionCost,
        experts: ExpertCost,
        mhc: Line,
        head: LmHead,
    ) -> None:
        kind = deployment.speculation.kind
        self.used: dict[str, Operation] = {}
        self._attention, self._experts, self._mhc, self._head = attention, experts, mhc, head
        self._block = kind == "dspark"
        self.layers = 0
        if kind == "off":
            return
        speculator = spec.speculators[kind]
        self.layers = speculator.layers
        self._pairs = (speculator.active_experts, spec.moe.active_experts)
        name = f"mtp_projection.{spec.name}"
        self.used[name] = profile.operation(name)
        self._projection = self.used[name].line(NS)

    def passes(self, width: int) -> int:
        """Draft passes of one decode step."""
        if not self.layers or width < 2:
            return 0
        return 1 if self._block else width - 1

    def decode(self, total: int, widest: int, width: int) -> float:
        """Nanoseconds of all draft passes of one step over `total` sequences, `widest` on one rank."""
        passes = self.passes(width)
        if not passes or not total:
            return 0.0
        ns = self._pass(total * width, widest * width, False)
        ns += (passes - 1) * self._pass(total, widest, False)
        drafted = width - 1 if self._block else 1
        return ns + passes * self._head.at(total * drafted, widest * drafted)

    def prefill(self, total: int, widest: int) -> float:
        """Nanoseconds of the draft layers over prefill tokens."""
        if not self.layers or not total:
            return 0.0
        return self._pass(total, widest, True)

    def _pass(self, total: int, widest: int, prefill: bool) -> float:
        active, model_active = self._pairs
        expert = self._experts.layer(
            -(-total * active // model_active), -(-widest * active // model_active), prefill
        )
        layer = self._attention.window_layer(widest, prefill) + self._mhc.at(widest) + sum(expert)
        return self.layers * layer + self._projection.at(widest)
