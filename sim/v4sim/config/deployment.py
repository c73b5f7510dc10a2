"""What is deployed: model, hardware, parallelism, engine, speculation, router, objective.

One `Deployment` holds every choice that changes a result, in sections named as in a TOML file. It is
frozen and strict: an unknown key is an error, text is never taken for a number. None means "what the
engine would choose"; `v4sim.config.resolve` puts the number in its place.

Which options act where. Both engines: page_tokens, mem_fraction, kv_tokens_per_rank, schedule_policy
fcfs, prefix_cache, default_max_new_tokens, cuda_graph_max_bs, moe_backend, swa_veto,
the cpu_* constants. Only SGLang and only vLLM: `SGLANG_ONLY` and `VLLM_ONLY` below. An option given to
the engine that has no such thing, or whose switch is off, is refused (`v4sim.config.checks`), as are
hardware.h2d_gb_s and host_memory_gib (no host tier reads them yet) and documented options that are not
modelled (`UNMODELLED`): nothing is read and ignored.

Units are in the names. Rules and defaults are those of SGLang 0.5.23 (0.5.15: the sizes of its pools) and
vLLM 0.33 (0.29 or 0.25 where the version says so).
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

IdentityId = Literal["snapshot_id", "tool_schema_id", "system_id", "environment_id"]
EngineKind = Literal["sglang", "vllm"]
MoeBackend = Literal["auto", "megamoe", "deepep", "flashinfer_mxfp4", "marlin", "triton"]

SGLANG_ONLY: frozenset[str] = frozenset(
    {
        "chunked_prefill_tokens",
        "max_prefill_tokens",
        "max_running",
        "swa_full_ratio",
        "swa_tokens_per_rank",
        "overlap",
        "mixed_chunk",
        "prefill_decode_interval",
        "conservativeness",
        "clip_max_new_tokens",
        "retraction_policy",
        "prefill_delayer",
        "prefill_delayer_max_passes",
        "prefill_max_requests",
        "strip_output_cache",
        "spec_blocks_mixed_dp",
    }
)
VLLM_ONLY: frozenset[str] = frozenset(
    {
        "max_batched_tokens",
        "long_prefill_token_threshold",
        "max_num_seqs",
        "reserve_full_isl",
        "watermark",
        "prefill_schedule_interval",
        "async_scheduling",
        "window_retention",
    }
)


class Section(BaseModel):
    """A frozen, strict part of a deployment."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class ModelSection(Section):
    """Which weights are served, and in which formats."""

    name: str = "v4-flash"
    # FP8 keys are 132 B, FP4 keys 68 B. None: SGLang fp8 (fp4 is opt-in), vLLM fp4 on Blackwell; V4.1 fp4.
    index_dtype: Literal["fp8", "fp4"] | None = None
    # Routed experts. None: fp4 on Blackwell, the converted fp8 checkpoint on Hopper.
    weights: Literal["fp4", "fp8"] | None = None
    max_context_tokens: int = Field(default=1_048_576, ge=256)


class HardwareSection(Section):
    """The GPUs and what an hour of one costs."""

    gpu: str = "b200"
    num_gpus: int = Field(default=4, ge=1, le=4096)  # of all replicas together
    price_per_gpu_hour: float | None = Field(default=None, gt=0)
    price_low: float | None = Field(default=None, gt=0)
    price_high: float | None = Field(default=None, gt=0)
    h2d_gb_s: float | None = Field(default=None, gt=0)
    host_memory_gib: float | None = Field(default=None, gt=0)  # of one node of this deployment's GPUs
    mem_gib: float | None = Field(default=None, gt=0)  # device memory of one GPU


class ParallelSection(Section):
    """How one replica is cut over its GPUs, and how many replicas there are.

    A replica has attention_tp x attention_dp GPUs; its routed experts lie in ep groups of the same
    GPUs, each expert cut over (GPUs of the replica / ep) of them.
    """

    attention_tp: int = Field(default=1, ge=1)
    attention_dp: int = Field(default=4, ge=1)
    ep: int = Field(default=4, ge=1)
    replicas: int = Field(default=1, ge=1)


class EngineSection(Section):
    """Options of the serving engine, named after what they do."""

    kind: EngineKind = "sglang"
    version: str | None = None  # sglang 0.5.23 or 0.5.15; vllm 0.33, 0.29 or 0.25
    # *-native: the engine that is installed beside v4sim decides what each step computes.
    scheduler: Literal["modelled", "vllm-native", "sglang-native"] = "modelled"

    # Memory and cache
    page_tokens: int = Field(default=256, ge=128)
    mem_fraction: float | None = Field(default=None, gt=0, lt=1)
    # Window tokens per KV token. None: 0.1; with chunked prefill V4.1 has windows for the calls that may run.
    swa_full_ratio: float | None = Field(default=None, gt=0, le=1)
    kv_tokens_per_rank: int | None = Field(default=None, ge=256)
    swa_tokens_per_rank: int | None = Field(default=None, ge=256)
    prefix_cache: bool = True
    strip_output_cache: bool = False
    swa_veto: Literal["strict", "bounded_replay", "recompute_window"] = "strict"
    cuda_graph_max_bs: int | None = Field(default=None, ge=1)

    # Batch forming, SGLang
    chunked_prefill_tokens: int | None = Field(default=None, ge=-1)  # whole DP group; 0 or -1: no chunking
    max_prefill_tokens: int = Field(default=16_384, ge=1)  # per rank and pass
    max_running: int | None = Field(default=None, ge=1)  # whole DP group
    prefill_max_requests: int | None = Field(default=None, ge=1)
    overlap: bool = True
    mixed_chunk: bool = False
    prefill_decode_interval: int = Field(default=0, ge=0)
    conservativeness: float = Field(default=1.0, ge=0)  # DP attention multiplies it by 0.3
    clip_max_new_tokens: int = Field(default=4_096, ge=0)
    retraction_policy: Literal["default", "priority"] = "default"
    prefill_delayer: bool = False
    prefill_delayer_max_passes: int = Field(default=30, ge=1)
    spec_blocks_mixed_dp: bool = True

    # Batch forming, vLLM (per rank)
    max_batched_tokens: int = Field(default=8_192, ge=1)
    long_prefill_token_threshold: int = Field(default=0, ge=0)
    max_num_seqs: int = Field(default=1_024, ge=1)
    reserve_full_isl: bool = True
    watermark: float = Field(default=0.0, ge=0, lt=1)
    prefill_schedule_interval: int = Field(default=1, ge=1)  # steps; 1: prefills in every step
    async_scheduling: bool = True
    # Windows and compressor state stay at every page boundary, or where a prompt can be replayed (what
    # --prefix-cache-retention-interval 0 does). None: replay since 0.33.
    window_retention: Literal["all", "replay"] | None = None

    # Both
    schedule_policy: Literal["fcfs", "lpm"] = "fcfs"
    default_max_new_tokens: int = Field(default=4_096, ge=1)  # for calls whose client set no limit
    moe_backend: MoeBackend = "auto"
    dispatch_tokens_per_rank: int | None = Field(
        default=None, ge=1
    )  # MoE dispatch buffer of DeepEP and MegaMoE
    redundant_experts: int = Field(default=0, ge=0)  # EPLB copies, of the whole EP group, in each layer
    # Index logits come in tiles of at most this; 0: all at once. None: 2 on V4.1, 0.5 in vLLM, else 0.
    index_tile_gib: float | None = Field(default=None, ge=0)
    engram: Literal["device", "host"] = "device"  # V4.1 n-gram tables, cut over the GPUs of a replica
    # Processes that tokenise and stream for one replica. None: one in SGLang, one a DP rank in vLLM.
    front_ends: int | None = Field(default=None, ge=1)
    # Host time. None: the published engine constants; for a launch outside graphs, the profile's.
    cpu_step_us: float | None = Field(default=None, ge=0)
    cpu_launch_us: float | None = Field(default=None, ge=0)
    cpu_cached_token_us: float | None = Field(default=None, ge=0)
    cpu_request_us: float | None = Field(default=None, ge=0)


def foreign(kind: EngineKind) -> frozenset[str]:
    """Options that an engine does not have."""
    return SGLANG_ONLY if kind == "vllm" else VLLM_ONLY


def changed(section: EngineSection, key: str) -> bool:
    """Whether an option differs from its default."""
    return bool(getattr(section, key) != type(section).model_fields[key].default)


class CacheSection(Section):
    """What a prefix hit asks for beside equal tokens. The engine's own cache options are in `engine`."""

    # Ids of the trace that are part of the cache key. None by default, as in both engines: what the model
    # sees of schema, system prompt and files is in its tokens, and a salt is the client's choice.
    identity: tuple[IdentityId, ...] = Field(default=(), strict=False)


class SpeculationSection(Section):
    """Draft tokens: the verify width is draft_tokens + 1."""

    kind: Literal["off", "mtp", "dspark"] = "off"
    draft_tokens: int = Field(default=0, ge=0, le=16)
    acceptance: str = "auto"
    adaptive: bool = False  # fewer drafts the more sequences the busiest rank runs
    adaptive_max_rows: int = Field(default=32, ge=1)


class RouterSection(Section):
    """How a call finds its replica and rank."""

    policy: Literal[
        "round_robin", "least_requests", "least_tokens", "front_ends", "sticky", "rendezvous", "cache_aware"
    ] = "round_robin"
    cache_threshold: float = Field(default=0.5, ge=0, le=1)
    balance_abs: int = Field(default=32, ge=0)
    balance_rel: float = Field(default=1.1, ge=1)
    load_factor: float = Field(default=1.25, ge=1)
    signal_period_s: float = Field(default=0.02, ge=0)
    load_signal: Literal["active_work", "resident_tokens"] = "active_work"


class ObjectiveSection(Section):
    """What counts as good enough. `itl_form` says which of the two inter-token latencies is meant."""

    ttft_p95_s: float = Field(default=10.0, gt=0)
    itl_p95_ms: float = Field(default=100.0, gt=0)
    itl_form: Literal["burst", "divided"] = "divided"


class Deployment(Section):
    """Everything about the serving side that a run depends on."""

    name: str = "unnamed"
    model: ModelSection = ModelSection()
    hardware: HardwareSection = HardwareSection()
    parallel: ParallelSection = ParallelSection()
    engine: EngineSection = EngineSection()
    cache: CacheSection = CacheSection()
    speculation: SpeculationSection = SpeculationSection()
    router: RouterSection = RouterSection()
    objective: ObjectiveSection = ObjectiveSection()

    def options(self) -> dict[str, Any]:
        """All options as plain values, less those that the engine does not have."""
        return self.model_dump(mode="json", exclude={"engine": set(foreign(self.engine.kind))})

    @property
    def gpus_per_replica(self) -> int:
        return self.parallel.attention_tp * self.parallel.attention_dp

    @property
    def num_ranks(self) -> int:
        """Attention-DP ranks of all replicas: each owns its cache."""
        return self.parallel.attention_dp * self.parallel.replicas

    @property
    def moe_tp(self) -> int:
        """Over how many GPUs one expert is cut."""
        return self.gpus_per_replica // self.parallel.ep

    @property
    def verify_width(self) -> int:
        return 1 + (self.speculation.draft_tokens if self.speculation.kind != "off" else 0)
