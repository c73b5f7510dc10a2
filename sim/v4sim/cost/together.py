"""What all ranks of a step do together: experts, collectives, LM head, draft passes, launches.

Depends on token counts alone, so a shape is computed once and kept. The floats are rounded here, once,
half to even, so that all paths of the step cost share the same integers. Units: nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from v4sim.cost.attention import NS, AttentionCost
from v4sim.cost.draft_head import DraftHead, LmHead
from v4sim.cost.engine_constants import EngineConstants
from v4sim.cost.experts import ExpertCost, LayerParts
from v4sim.cost.operation import Operation
from v4sim.cost.profile import Profile
from v4sim.cost.tables import Line, whole

if TYPE_CHECKING:
    from v4sim.config import Deployment
    from v4sim.model import ModelSpec


# Full chunks recur at once; the last ones of prompts hardly ever, and a million of them are too many to keep.
_PREFILLS_KEPT = 1 << 14


@dataclass(slots=True)
class Together:
    """Nanoseconds of a step that every rank shares."""

    moe: int
    dispatch: int
    reduce: int
    shared: int
    head: int
    draft: int
    overhead: int


class TogetherCost:
    """Compiled common part of a step. `used` lists the operations that it reads."""

    def __init__(
        self,
        profile: Profile,
        deployment: Deployment,
        spec: ModelSpec,
        attention: AttentionCost,
        mhc: Line,
        constants: EngineConstants,
    ) -> None:
        self._experts = ExpertCost(profile, deployment, spec)
        self._head = LmHead(profile, deployment, spec)
        self._draft = DraftHead(profile, deployment, spec, attention, self._experts, mhc, self._head)
        launch = profile.operation(f"eager_launch.{deployment.engine.kind}")
        own_us = deployment.engine.cpu_launch_us
        self._launch_ns = NS * (launch.term("per_operation") if own_us is None else own_us)
        self._sampler_ns = NS * constants.sampler_operations.value * constants.operation_floor_us.value
        self._layers = spec.num_layers
        pass_ns = self._launch_ns * constants.operations_per_pass.value
        operations = constants.operations_per_layer.value
        if self._experts.waits_for_counts:
            operations += constants.operations_per_dispatch.value
        layer_ns = self._launch_ns * operations
        self._model_launches_ns = pass_ns + spec.num_layers * layer_ns
        self._draft_launches_ns = pass_ns + self._draft.layers * layer_ns if self._draft.layers else 0.0
        # Prefill without graphs: the host's time for all launches, and what its waits add to the GPU's.
        self.eager_ns = round(self._model_launches_ns + self._draft_launches_ns)
        dispatches = spec.num_layers + self._draft.layers if self._experts.waits_for_counts else 0
        self.eager_waits_ns = round(dispatches * self._launch_ns)
        self.top_tokens = self._experts.top_tokens
        self.used: dict[str, Operation] = {
            **self._experts.used,
            **self._draft.used,
            self._head.operation.name: self._head.operation,
            launch.name: launch,
        }
        self._decode: dict[tuple[int, int, int, bool], Together] = {}
        self._prefill: dict[tuple[tuple[int, ...], ...], Together] = {}

    def decode(self, total: int, widest: int, width: int, eager: bool) -> Together:
        """`total` sequences on all ranks, `widest` on one; eager: no captured graph is large enough."""
        key = (total, widest, width, eager)
        found = self._decode.get(key)
        if found is None:
            layer = self._experts.layer(total * width, widest * width, False)
            head = self._head.at(total * width, widest * width)
            draft = self._draft.decode(total, widest, width)
            passes = self._draft.passes(width)
            launches = self._model_launches_ns + passes * self._draft_launches_ns if eager else 0.0
            found = self._decode[key] = self._round(layer, head, draft, passes, round(launches))
        return found

    def prefill(
        self,
        rows: tuple[int, int, int],
        new: tuple[int, int],
        tokens: tuple[int, int],
        sampled: tuple[int, int],
    ) -> Together:
        """(total, widest) over ranks of decode rows (with width), new, all and sampled tokens."""
        key = (rows, new, tokens, sampled)
        found = self._prefill.get(key)
        if found is None:
            if len(self._prefill) >= _PREFILLS_KEPT:
                self._prefill.clear()
            layer = self._experts.layer(*tokens, True)
            draft = self._draft.prefill(*new) + self._draft.decode(*rows)
            passes = self._draft.passes(rows[2]) if rows[0] else 0
            found = self._prefill[key] = self._round(layer, self._head.at(*sampled), draft, passes, 0)
        return found

    def _round(self, layer: LayerParts, head: float, draft: float, passes: int, eager_ns: int) -> Together:
        n = self._layers
        return Together(
            moe=whole(n * layer.moe),
            dispatch=whole(n * layer.dispatch),
            reduce=whole(n * layer.all_reduce),
            shared=whole(n * layer.shared),
            head=whole(head),
            draft=whole(draft),
            overhead=whole(self._sampler_ns + passes * self._launch_ns) + eager_ns,
        )
