"""A targets file (schema 1): published whole-engine measurements with their configuration.

The file is read as a whole or refused (`ConfigError`); a single target that cannot be read becomes a
`Refusal` with its reason and the others are kept. Keys that the schema does not know are kept by name, so
that the table can say what was not read. `None` means that the source does not state it.

Units are in the names; a metric's own unit stands in `unit`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from v4sim.errors import ConfigError

SCHEMA = 1


class Record(BaseModel):
    """Frozen and typed; unknown keys are kept aside, to be named."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _null_is_not_stated(cls, data: Any) -> Any:
        """A null stands for what the source does not state, also where a field has a default of its own."""
        if not isinstance(data, Mapping):
            return data
        fields = cls.model_fields
        return {
            key: value
            for key, value in data.items()
            if value is not None or key not in fields or fields[key].is_required()
        }

    @property
    def unread(self) -> tuple[str, ...]:
        return tuple(sorted(self.model_extra or ()))


class Topology(Record):
    """`attention` is authoritative; the other fields repeat the engine's own flags."""

    attention: str | None = None
    tp: int | None = Field(default=None, ge=1)
    dp: int | None = Field(default=None, ge=1)
    ep: int | None = Field(default=None, ge=1)
    replicas: int = Field(default=1, ge=1)


class Speculation(Record):
    """`acceptance_length` counts tokens per verify step, bonus included."""

    kind: str = "none"
    steps: int | None = Field(default=None, ge=0)
    draft_tokens: int | None = Field(default=None, ge=0)
    acceptance_length: float | None = Field(default=None, ge=1)
    source: str | None = None


class Cache(Record):
    prefix_cache: bool | None = None
    host_tier_gib_per_rank: float | None = Field(default=None, ge=0)
    policy: str | None = None


class LengthModel(Record):
    """How lengths were drawn where isl and osl are caps, as in `uniform[1,8192]`."""

    isl: str | None = None
    osl: str | None = None
    inferred: bool = False


class WorkloadRecord(Record):
    """What was sent. `isl`, `osl`: prompt and output tokens; `reuse`: share of prompt tokens in the cache."""

    kind: str
    isl: int | None = Field(default=None, ge=1)
    osl: int | None = Field(default=None, ge=1)
    concurrency: int | None = Field(default=None, ge=0)
    num_requests: int | None = Field(default=None, ge=0)
    request_rate: float | None = Field(default=None, gt=0)
    reuse: float | None = Field(default=None, ge=0, le=1)
    notes: str = ""
    length_model: LengthModel | None = None
    osl_mean: float | None = Field(default=None, gt=0)
    osl_p90: float | None = Field(default=None, gt=0)
    cached_tokens: int | None = Field(default=None, ge=0)
    new_tokens: int | None = Field(default=None, ge=0)
    pooled: str = ""
    max_model_len: int | None = Field(default=None, ge=256)


class Metric(Record):
    """One published number. `low`..`high` is the range of published runs."""

    name: str
    stat: str
    value: float
    low: float
    high: float
    unit: str = ""
    at: dict[str, Any] | None = None
    derived: bool = False
    note: str | None = None
    runs: dict[str, float] | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Metric:
        if not self.low <= self.value <= self.high:
            raise ValueError(f"low {self.low:g} <= value {self.value:g} <= high {self.high:g} does not hold")
        return self

    @property
    def label(self) -> str:
        """How tables name it."""
        places = " ".join(str(v) for k, v in sorted((self.at or {}).items()) if k != "context_label")
        return f"{self.name} {self.stat}" + (f" @ {places}" if places else "")


class Target(Record):
    """One configuration and load point."""

    id: str
    title: str = ""
    confidence: str = "medium"
    model: str
    engine: str
    gpu: str
    num_gpus: int = Field(ge=1)
    topology: Topology
    moe_backend: str | None = None
    index_dtype: str | None = None
    weights: str | None = None
    chunked_prefill_tokens: int | None = None
    max_batched_tokens: int | None = Field(default=None, ge=1)
    max_running: int | None = Field(default=None, ge=1)
    mem_fraction: float | None = Field(default=None, gt=0, lt=1)
    swa_ratio: float | None = Field(default=None, gt=0, le=1)
    spec: Speculation = Speculation()
    cache: Cache = Cache()
    workload: WorkloadRecord
    metrics: tuple[Metric, ...] = Field(min_length=1, strict=False)
    engine_flags: tuple[str, ...] | None = Field(default=None, strict=False)
    source: dict[str, Any] | None = None
    unknowns: tuple[str, ...] = Field(default=(), strict=False)
    table_b: str | None = None
    checkpoint_note: str | None = None
    noise: str | None = None

    @property
    def unread_keys(self) -> tuple[str, ...]:
        """Names of keys that nothing reads, at any depth."""
        found = list(self.unread)
        for name in ("topology", "spec", "cache", "workload"):
            found += [f"{name}.{key}" for key in getattr(self, name).unread]
        return tuple(found)

    @property
    def engine_kind(self) -> str:
        """The first word of `engine`, which is its name."""
        return (self.engine.lower().split() or ["unknown"])[0]

    @property
    def second_hand(self) -> bool:
        return self.confidence == "low" or (self.source is not None and self.source.get("repo") is None)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A target that was not run, and why. `metrics`: how many published numbers it has."""

    target: str
    reason: str
    metrics: int = 0


@dataclass(frozen=True, slots=True)
class TargetFile:
    name: str
    targets: tuple[Target, ...]
    refused: tuple[Refusal, ...]


def read_targets(path: str | Path) -> TargetFile:
    """The targets of a file; `built-in` is the project's own."""
    if str(path) == "built-in":
        text, name = builtin_text(), "built-in"
    else:
        name = Path(path).name
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise ConfigError(f"{path} cannot be read: {reason}. Give a JSON file of targets.") from None
    return parse_targets(text, name)


def builtin_text() -> str:
    return (resources.files("v4sim") / "data" / "targets.json").read_text(encoding="utf-8")


def parse_targets(text: str, name: str) -> TargetFile:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{name} is not JSON: {error}. Give a file of targets, schema {SCHEMA}.") from None
    if not isinstance(document, Mapping) or document.get("schema") != SCHEMA:
        found = document.get("schema") if isinstance(document, Mapping) else None
        raise ConfigError(f"{name}: schema is {found!r} and must be {SCHEMA}. Convert the file.")
    entries = document.get("targets")
    if not isinstance(entries, list) or not entries:
        raise ConfigError(f"{name}: targets must be a list with at least one target.")
    targets: list[Target] = []
    refused: list[Refusal] = []
    seen: set[str] = set()
    for number, entry in enumerate(entries):
        label = entry.get("id") if isinstance(entry, Mapping) else None
        label = label if isinstance(label, str) else f"targets[{number}]"
        if label in seen:
            raise ConfigError(f"{name}: the id {label!r} stands twice. Rename one of the two targets.")
        seen.add(label)
        try:
            targets.append(Target.model_validate(entry))
        except ValidationError as error:
            metrics = entry.get("metrics") if isinstance(entry, Mapping) else None
            refused.append(Refusal(label, _reason(error), len(metrics) if isinstance(metrics, list) else 0))
    return TargetFile(name, tuple(targets), tuple(refused))


def _reason(error: ValidationError) -> str:
    """The first thing that is wrong, with its key."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"]) or "the target"
    return f"{where}: {first['msg'][0].lower()}{first['msg'][1:]}, given {first['input']!r:.60}"
