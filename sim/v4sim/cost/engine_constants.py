"""What no kernel table holds: host time of the engines and how their steps are put together.

Every constant says where it comes from and which validation targets share that source (those leave the
score of a backtest, DESIGN §8). `kind`: published = stated in the source; inferred = read out of the
engine's code or counted from the model's dataflow; assumed = nothing was found. A deployment's own
`engine.cpu_*` values win over these.

Units in the names. Nothing here is fitted to whole-engine measurements.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from v4sim.cost.uncertainty import factor
from v4sim.errors import ConfigError

if TYPE_CHECKING:
    from v4sim.config import Deployment, EngineSection


@dataclass(frozen=True, slots=True)
class EngineConstant:
    """One number with its source."""

    value: float
    kind: str  # published | inferred | assumed
    source: str
    shared_targets: tuple[str, ...] = ()  # validation targets measured in the same campaign
    log_sd: float = 0.0  # spread of the number in its sources (see `uncertainty`)


@dataclass(frozen=True, slots=True)
class EngineConstants:
    """All constants of one engine."""

    cpu_step_us: EngineConstant  # host work of one scheduler iteration
    dp_gather_us: EngineConstant  # added to it when DP ranks agree on a batch
    cpu_cached_token_us: EngineConstant  # per prompt token that hits the cache: tokenise, hash, copy
    cpu_request_us: EngineConstant  # per request, apart from its tokens
    operations_per_layer: EngineConstant  # launches of one layer when no graph replays them
    operations_per_dispatch: EngineConstant  # more of them where DeepEP sends tokens to experts
    operations_per_pass: EngineConstant  # launches of a pass besides its layers, likewise
    prefill_graph_tokens: EngineConstant  # prefill steps up to this many tokens a rank replay graphs
    sampler_operations: EngineConstant  # launches after the last layer
    operation_floor_us: EngineConstant  # what a launch in a graph takes at least

    def draw(self, seed: int) -> EngineConstants:
        """One plausible set: each constant scaled inside the spread of its sources."""
        drawn = {}
        for name in self.__slots__:
            constant: EngineConstant = getattr(self, name)
            scale = factor(constant.log_sd, seed, f"engine.{name}")
            drawn[name] = replace(constant, value=constant.value * scale)
        return EngineConstants(**drawn)

    def provenance(self) -> list[dict[str, Any]]:
        """One row a constant, in the form of `StepCost.provenance`."""
        rows = []
        for name in self.__slots__:
            constant: EngineConstant = getattr(self, name)
            rows.append(
                {
                    "op": f"engine.{name}",
                    "kind": constant.kind,
                    "source": constant.source,
                    "domain": f"{constant.value:g}",
                    "residual": None,
                }
            )
        return rows


_CAMPAIGN = ("V14c-132K-specoff", "V14c-132K-k5", "V14c-265K-specoff", "V14c-265K-k5")
_WARM_TURNS = EngineConstant(
    2.6,
    "published",
    "8xB200 vLLM 0.25 campaign (stewtong/dsv4-flash-0731): warm turns cost 2.2 to 3.0 us a cached token",
    (*_CAMPAIGN, "V14e-132K-k5", "V14e-265K-k5"),
    log_sd=0.12,  # 2.2 to 3.0 as 80 %
)
_LAYER = EngineConstant(
    40.0,
    "inferred",
    "counted from a layer's dataflow: 4 mHC, 10 projections and quantisations, 5 norms, RoPE and cache "
    "writes, 4 compressor, 5 indexer and top-k, 2 attention, 10 router and experts",
)
_SGLANG_LAYER = EngineConstant(
    47.0,
    "inferred",
    "counted in sglang 0.5.15 models/deepseek_v4.py, attention/dsv4 and deepseek_v2.DeepseekV2MoE, mean "
    "over layers: 6 mHC, 7 query and cache write, 10 indexer (CSA only), 4 compressor, 4 gather and "
    "attention, 5 output projection, 3 router, 5 shared expert, 7 experts, 1 all-reduce",
    log_sd=0.12,  # 41 (HCA) to 53 (CSA)
)
_SGLANG_DISPATCH = EngineConstant(
    9.0,
    "inferred",
    "counted likewise in token_dispatcher/deepep.py and moe_runner/deep_gemm.py: 4 dispatch, 10 experts, 2 "
    "combine, for 7 experts and an all-reduce",
)
_PASS = EngineConstant(
    90.0,
    "inferred",
    "counted in sglang 0.5.15, mean of a prompt's pass through the model (120: inputs and KV slots 25, "
    "metadata of attention, indexer and compressors 70, embedding, head mixing, norm, LM head and choice 25) "
    "and through the draft layer (60)",
    log_sd=0.3,
)
_SAMPLER = EngineConstant(10.0, "inferred", "final norm, LM head, penalties, softmax, sort, draw, copies")
_FLOOR = EngineConstant(3.0, "published", "aiconfigurator system files at 095f58a: 3 us per memory-bound op")

_ENGINES: dict[str, EngineConstants] = {
    "sglang": EngineConstants(
        cpu_step_us=EngineConstant(
            2750.0,
            "published",
            "sglang-jax PR 1484: 2.6 to 2.9 ms of host work a scheduler iteration (Qwen3-8B, TP4)",
            log_sd=0.4,  # another host: six published ones differ so much in launching the same operations
        ),
        dp_gather_us=EngineConstant(
            172.0,
            "published",
            "sglang PR 34338: consuming the DP-attention gather, 4 ranks, after the change",
        ),
        cpu_cached_token_us=_WARM_TURNS,
        cpu_request_us=EngineConstant(0.0, "assumed", "not published for either engine"),
        operations_per_layer=_SGLANG_LAYER,
        operations_per_dispatch=_SGLANG_DISPATCH,
        operations_per_pass=_PASS,
        prefill_graph_tokens=EngineConstant(
            0.0,
            "inferred",
            "sglang 0.5.15 server_args.py, 0.5.23 cuda_graph_hook.py: the default prefill graphs (breakable) "
            "are switched off for DeepSeek-V4 (pressure on the capture pool): every prefill step is eager",
        ),
        sampler_operations=_SAMPLER,
        operation_floor_us=_FLOOR,
    ),
    "vllm": EngineConstants(
        cpu_step_us=EngineConstant(
            2750.0,
            "assumed",
            "not published for vLLM V1: SGLang's order of magnitude (sglang-jax PR 1484)",
            log_sd=0.4,
        ),
        dp_gather_us=EngineConstant(0.0, "assumed", "not published for vLLM"),
        cpu_cached_token_us=_WARM_TURNS,
        cpu_request_us=EngineConstant(0.0, "assumed", "not published for either engine"),
        operations_per_layer=_LAYER,
        operations_per_dispatch=EngineConstant(0.0, "assumed", "not counted for vLLM"),
        operations_per_pass=replace(_PASS, kind="assumed", source=f"not counted for vLLM; {_PASS.source}"),
        prefill_graph_tokens=EngineConstant(
            512.0, "inferred", "vLLM compilation config: largest captured piecewise graph"
        ),
        sampler_operations=_SAMPLER,
        operation_floor_us=_FLOOR,
    ),
}


_OWN = ("cpu_step_us", "cpu_cached_token_us", "cpu_request_us")


def stated_us(engine: EngineSection) -> dict[str, float]:
    """Host times that the deployment states itself, by the row of the provenance that they replace."""
    found = {f"engine.{name}": getattr(engine, name) for name in _OWN}
    found[f"eager_launch.{engine.kind}"] = engine.cpu_launch_us
    return {name: value for name, value in found.items() if value is not None}


def cpu_step_us(engine: EngineSection, attention_dp: int, constants: EngineConstants | None = None) -> float:
    """Host work of one scheduler iteration: the deployment's own value, else the constants'."""
    if engine.cpu_step_us is not None:
        return engine.cpu_step_us
    constants = constants or engine_constants(engine.kind)
    return constants.cpu_step_us.value + (constants.dp_gather_us.value if attention_dp > 1 else 0.0)


def host_is_hidden(deployment: Deployment) -> bool:
    """Whether the host works on a step while the GPU runs another one.

    With drafts vLLM's runner up to 0.25 builds inputs and attention metadata between the verify and the draft
    passes. Its async scheduling is on, but how much of that it hides is not published: assumed, none.
    """
    engine = deployment.engine
    if engine.kind == "sglang":
        return engine.overlap
    early = (engine.version or "").startswith("0.25") and deployment.speculation.kind != "off"
    return engine.async_scheduling and not early


def engine_constants(kind: str) -> EngineConstants:
    """The constants of an engine; the error lists the choices."""
    try:
        return _ENGINES[kind]
    except KeyError:
        raise ConfigError(
            f"engine.kind = {kind!r} has no engine constants; choose one of {', '.join(sorted(_ENGINES))}."
        ) from None
