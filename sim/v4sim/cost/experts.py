"""Routed and shared experts with what moves tokens to them, per layer and step.

Recipes, by `engine.moe_backend`:

    flashinfer_mxfp4, triton, marlin   experts cut over the replica's GPUs (TP x EP) see all tokens.
        One DP rank: all-reduce after attention and after the experts. DP attention in vLLM: all-gather in
        front and reduce-scatter behind. In SGLang: all-gather in front (prefill: an all-reduce of the
        concatenated tokens), all-reduce behind, a reduce-scatter where EP = DP; CUDA graphs pad every rank
        to the widest one (MAX_LEN).
    deepep     dispatch and combine, low-latency under graphs and normal otherwise, paid by the rank with
        most tokens; experts by the table's busiest EP rank; shared expert on each rank's own tokens.
    megamoe    one fused kernel, priced by the mean tokens a GPU (its table holds the skew of experts); a rank
        with more tokens than the mean is held up by its NVLink egress, the excess is dispatch_combine.

In vLLM's decode graphs every DP rank dispatches as many tokens as the widest one (dummy batches).

Attention TP adds an all-reduce over its group in front. With dispatch, SGLang then splits the tokens over
the group and gathers them behind. vLLM does not: every TP rank dispatches all tokens of its group, so the
experts see each token TP times, nothing is gathered, and the shared expert is cut over TP with an all-reduce
of its own. (sglang 0.5.15 models/deepseek_v4.py and layers/dp_attention.py; vllm 0.25.0
models/deepseek_v4/nvidia/model.py: DeepseekV4MoE, DeepseekV4MegaMoEExperts.)

Passes over the tokens that no table holds (`_pass_bytes`) cost their bytes at the streaming rate. DeepEP
tables are of eight ranks: other sizes scale by the share of copies that leave a rank. Leaves out: attention.
Units: nanoseconds, tokens of one layer call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from v4sim.cost.collectives import collective_line
from v4sim.cost.operation import Operation
from v4sim.cost.profile import Profile
from v4sim.cost.tables import Line
from v4sim.errors import ProfileError

if TYPE_CHECKING:
    from v4sim.config import Deployment
    from v4sim.model import ModelSpec

NS = 1000.0
_FORMATS = {"flashinfer_mxfp4": "mxfp4", "triton": "fp8", "marlin": "marlin"}
_DEEPEP_RANKS = 8
_BF16 = 2


class LayerParts(NamedTuple):
    """Nanoseconds of one layer."""

    moe: float
    dispatch: float
    all_reduce: float
    shared: float


class ExpertCost:
    """Compiled experts of one deployment. `used` lists the operations that it reads."""

    def __init__(self, profile: Profile, deployment: Deployment, spec: ModelSpec) -> None:
        self.used: dict[str, Operation] = {}
        self._profile = profile
        parallel = deployment.parallel
        self._tp, self._dp, self._ep = parallel.attention_tp, parallel.attention_dp, parallel.ep
        self._gpus = deployment.gpus_per_replica
        self._backend = deployment.engine.moe_backend
        engine, model = deployment.engine.kind, spec.name
        self._token_bytes = spec.hidden * _BF16
        self._dispatched = self._backend in ("deepep", "megamoe")
        self.waits_for_counts = self._backend == "deepep"
        self._vllm = engine == "vllm"
        stream = NS * self._take("hbm_stream").term("per_byte")
        self._attention_reduce = (
            self._collective(f"all_reduce.{engine}.gpus{self._tp}") if self._tp > 1 else None
        )
        self._behind = self._gather = self._gather_prefill = None
        self._replicated = self._dispatched and self._vllm
        self._moe, self._low, self._normal = self._zero(), self._zero(), self._zero()
        self._link_ns_token = 0.0
        shared_cut = 1
        if self._replicated:
            shared_cut = self._tp
        elif self._dispatched:
            if self._tp > 1:
                self._gather = self._collective(f"all_gather.gpus{self._tp}")
        else:
            shared_cut = self._gpus
            if self._dp > 1:
                self._gather = self._gather_prefill = self._collective(f"all_gather.gpus{self._gpus}")
                if not self._vllm:
                    self._gather_prefill = self._collective(f"all_reduce.{engine}.gpus{self._gpus}")
                if self._vllm or self._ep == self._dp:
                    self._behind = self._collective(f"reduce_scatter.gpus{self._gpus}")
                else:
                    self._behind = self._gather_prefill
            elif self._gpus > 1:
                self._behind = self._collective(f"all_reduce.{engine}.gpus{self._gpus}")
        self._shared = self._line(f"shared_expert.{model}.tp{shared_cut}")
        routed, shared = _pass_bytes(spec, shared_cut)
        self._routed_pass, self._shared_pass = stream * routed, stream * shared
        cut = f"{model}.tp{deployment.moe_tp}ep{self._ep}"
        remote = _remote_ranks(spec.moe.active_experts, self._ep)
        if self._backend == "megamoe":
            self._moe = self._line(f"megamoe.{model}.ep{self._ep}")
            # FP8 with a scale per 32 values out, BF16 back, one copy a remote rank.
            sent = remote * spec.hidden * (1 + 1 / 32 + _BF16)
            self._link_ns_token = NS * self._take("ep_link").term("per_byte") * sent
        elif self._backend == "deepep":
            form = "mxfp4" if deployment.model.weights == "fp4" else "fp8"
            self._moe = self._line(f"moe.{form}.{engine}.{cut}")
            low = (1 - 1 / self._ep) / (1 - 1 / _DEEPEP_RANKS)
            normal = remote / _remote_ranks(spec.moe.active_experts, _DEEPEP_RANKS)
            self._low = self._scaled(f"deepep_ll.{model}", low)
            self._normal = self._scaled(f"deepep_normal.{model}", normal)
        elif self._backend in _FORMATS:
            owner = "all" if self._backend == "marlin" else engine
            self._moe = self._line(f"moe.{_FORMATS[self._backend]}.{owner}.{cut}")
        else:
            raise ProfileError(
                f"engine.moe_backend = {self._backend!r} has no price: resolve the deployment first, or "
                f"choose one of deepep, megamoe, {', '.join(_FORMATS)}."
            )
        self.top_tokens = self._moe.top * (self._gpus if self._backend == "megamoe" else 1)
        self._cache: dict[tuple[int, int, bool], LayerParts] = {}

    def _take(self, name: str) -> Operation:
        operation = self.used[name] = self._profile.operation(name)
        return operation

    def _line(self, name: str) -> Line:
        return self._take(name).line(NS)

    def _collective(self, name: str) -> Line:
        return collective_line(self._profile, self._take(name))

    def _scaled(self, name: str, share: float) -> Line:
        """A dispatch table with everything above its first point scaled: the floor is latency."""
        operation = self._take(name)
        first = operation.values[0]
        return Line(operation.axes[0].points, [NS * (first + (v - first) * share) for v in operation.values])

    @staticmethod
    def _zero() -> Line:
        return Line((0.0, 1.0), (0.0, 0.0))

    def layer(self, total: int, widest: int, prefill: bool) -> LayerParts:
        """One layer when the ranks bring `total` tokens together and the fullest one `widest`."""
        key = (total, widest, prefill)
        found = self._cache.get(key)
        if found is None:
            found = self._cache[key] = self._layer(total, widest, prefill)
        return found

    def _layer(self, total: int, widest: int, prefill: bool) -> LayerParts:
        if not total:
            return LayerParts(0.0, 0.0, 0.0, 0.0)
        reduce = 0.0
        if self._attention_reduce is not None:
            reduce = self._attention_reduce.at(widest * self._token_bytes)
        if self._dispatched:
            return self._dispatch_layer(total, widest, prefill, reduce)
        tokens = total if prefill else widest * self._dp
        size = tokens * self._token_bytes
        gather = self._gather_prefill if prefill else self._gather
        if gather is not None:
            reduce += gather.at(size)
        if self._behind is not None:
            reduce += self._behind.at(size)
        moe = self._moe.at(tokens) + tokens * self._routed_pass
        return LayerParts(moe, 0.0, reduce, self._shared.at(tokens) + tokens * self._shared_pass)

    def _dispatch_layer(self, total: int, widest: int, prefill: bool, reduce: float) -> LayerParts:
        if self._vllm and not prefill:
            # Agreed on before a graph: an idle rank's dummy batch is as wide as the widest.
            total = widest * self._dp
        own = -(-widest // self._tp)
        if self._replicated:
            total, own = total * self._tp, widest
            if self._attention_reduce is not None:
                reduce *= 2  # and that of the shared expert
        elif self._gather is not None:
            reduce += self._gather.at(widest * self._token_bytes)
        shared = self._shared.at(own) + own * self._shared_pass
        passes = own * self._routed_pass
        if self._backend == "megamoe":
            moe = self._moe.at(-(-total // self._gpus))
            return LayerParts(moe + passes, max(own * self._link_ns_token - moe, 0.0), reduce, shared)
        dispatch = (self._normal if prefill else self._low).at(own)
        return LayerParts(self._moe.at(total) + passes, dispatch, reduce, shared)


def _pass_bytes(spec: ModelSpec, shared_cut: int) -> tuple[int, int]:
    """Bytes a token moves through HBM in one layer outside every table: (routed, shared expert).

    Routed: the router reads BF16 hidden states, writes FP32 scores and top-k reads them; the input is
    quantised (BF16 in, FP8 out); routed and shared outputs are added (two BF16 in, one out).
    Shared: its input is quantised; SwiGLU reads gate and up and writes BF16, which is read and quantised.
    Counted from DeepseekV4MoE of vllm 0.25.0; norms are fused into mHC, and attention modules hold theirs.
    """
    hidden, wide = spec.hidden, spec.moe.intermediate * spec.moe.shared_experts // shared_cut
    routed = _BF16 * hidden + 2 * 4 * spec.moe.routed_experts + (_BF16 + 1) * hidden + 3 * _BF16 * hidden
    shared = (_BF16 + 1) * hidden + 3 * _BF16 * wide + (_BF16 + 1) * wide
    return routed, shared


def _remote_ranks(active: int, ranks: int) -> float:
    """Distinct other ranks that a token's experts lie on, uniform routing."""
    return float(ranks * (1 - (1 - 1 / ranks) ** active) * (1 - 1 / ranks))
