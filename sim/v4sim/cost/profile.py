"""The calibration profile: one JSON file that says how long each operation takes, and how we know.

An operation is a *table* over one or two named axes or a *fit* (sum or maximum of coefficient x axes),
with its domain, its residual error and its provenance: measured by `v4calib run`, published by somebody,
or a roofline computed from hardware rates. Names are dotted keys that carry everything a number depends
on (`csa_decode.sglang.v4-flash.tp4`), so another model's shape is a missing key and an error, never
a neighbour's answer. `Profile.merged` replaces operations by better ones; `Profile.draw` gives one
plausible profile inside the residual errors and what `uncertainty` adds to them.

Only the standard library and numpy: GPU images write this format too. What operations mean together
is not here (see `compile`). Times in microseconds, shares as numbers, axes in the units that their names
end in.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from v4sim.cost.operation import Axis, Operation, Provenance, Residual, Term
from v4sim.cost.profile_checks import check_document
from v4sim.cost.uncertainty import factor, shared_factor
from v4sim.errors import ProfileError

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Profile:
    """All operations of one GPU."""

    name: str
    gpu: str
    description: str
    generator: str
    provenances: Mapping[str, Provenance]
    operations: Mapping[str, Operation]

    def operation(self, name: str) -> Operation:
        """The operation of exactly this name; the error lists what stands nearest."""
        try:
            return self.operations[name]
        except KeyError:
            raise ProfileError(
                f"Profile {self.name!r} has no operation {name!r}{self._nearest(name)}. A shape is never "
                "answered from another one: measure it with `v4calib run`, or choose a deployment and a "
                "profile that have it."
            ) from None

    def has(self, name: str) -> bool:
        return name in self.operations

    def provenance_of(self, operation: Operation) -> Provenance:
        return self.provenances[operation.provenance]

    def draw(self, seed: int) -> Profile:
        """One plausible profile: each operation scaled by its own log-normal residual error, and by what

        it has in common with others (`uncertainty`)."""
        drawn = {}
        for name, operation in self.operations.items():
            if operation.unit == "share":
                drawn[name] = operation
                continue
            own = factor(operation.residual.p95 / 1.96, seed, name)
            drawn[name] = operation.scaled(own * shared_factor(name, seed))
        return replace(self, name=f"{self.name} draw {seed}", operations=drawn)

    def merged(self, other: Profile) -> Profile:
        """This profile with the operations of another one of the same GPU put in their place."""
        if other.gpu != self.gpu:
            raise ProfileError(
                f"Profile {other.name!r} is of gpu {other.gpu!r} and cannot be merged into {self.name!r} "
                f"of gpu {self.gpu!r}: measure on {self.gpu}, or merge into a profile of {other.gpu}."
            )
        clash = [k for k, v in other.provenances.items() if self.provenances.get(k, v) != v]
        renamed = {k: f"{other.name}:{k}" if k in clash else k for k in other.provenances}
        provenances = dict(self.provenances) | {renamed[k]: v for k, v in other.provenances.items()}
        operations = dict(self.operations) | {
            k: replace(v, provenance=renamed[v.provenance]) for k, v in other.operations.items()
        }
        return replace(self, name=f"{self.name}+{other.name}", provenances=provenances, operations=operations)

    def _nearest(self, name: str) -> str:
        family = name.split(".", 1)[0]
        same = [k for k in self.operations if k.split(".", 1)[0] == family]
        if same:
            return f"; of {family} there are {', '.join(same[:12])}{' ...' if len(same) > 12 else ''}"
        families = sorted({k.split(".", 1)[0] for k in self.operations})
        return f"; it has {', '.join(families)}"


def builtin_profiles() -> tuple[str, ...]:
    """Names of the reference profiles that ship with v4sim."""
    folder = files("v4sim") / "profiles"
    return tuple(sorted(f.name.removesuffix(".json") for f in folder.iterdir() if f.name.endswith(".json")))


def load_profile(name_or_path: str | Path) -> Profile:
    """A built-in profile by name, or one of your own by path."""
    text = str(name_or_path)
    if text in builtin_profiles():
        resource = files("v4sim") / "profiles" / f"{text}.json"
        return parse_profile(resource.read_text(encoding="utf-8"), f"built-in {text}")
    path = Path(name_or_path)
    if not path.is_file():
        raise ProfileError(
            f"There is no profile {text!r}: the built-in ones are {', '.join(builtin_profiles()) or 'none'}, "
            "anything else must be the path of a profile file."
        )
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"Profile {text!r} cannot be read as UTF-8 text: {error}.") from None
    return parse_profile(content, text)


def parse_profile(content: str, where: str) -> Profile:
    """A profile from JSON text; `where` names the file in errors."""
    try:
        document = json.loads(content, parse_constant=_no_constant)
    except ValueError as error:
        raise ProfileError(f"Profile {where} is not JSON: {error}. Write it with v4calib.") from None
    check_document(document, where)
    return Profile(
        name=document["name"],
        gpu=document["gpu"],
        description=document["description"],
        generator=document["generator"],
        provenances={k: Provenance(**v) for k, v in document["provenances"].items()},
        operations={k: _operation(k, v) for k, v in document["operations"].items()},
    )


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number that a profile may hold")


def _operation(name: str, data: Mapping[str, Any]) -> Operation:
    return Operation(
        name=name,
        axes=tuple(Axis(a["name"], tuple(float(p) for p in a["points"])) for a in data["axes"]),
        values=_frozen(data.get("values", ())),
        terms=tuple(
            Term(t["name"], float(t["coefficient"]), tuple(t["axes"])) for t in data.get("terms", ())
        ),
        combine=data.get("combine", "sum"),
        provenance=data["provenance"],
        residual=Residual(**data["residual"]),
        note=data.get("note", ""),
        unit=data.get("unit", "us"),
    )


def _frozen(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(_frozen(v) if isinstance(v, list) else float(v) for v in values)


def dump_profile(profile: Profile) -> str:
    """The JSON text of a profile: sorted, one operation a line, the same bytes for the same profile."""
    head = {
        "schema_version": SCHEMA_VERSION,
        "name": profile.name,
        "gpu": profile.gpu,
        "description": profile.description,
        "generator": profile.generator,
    }
    lines = [f"  {json.dumps(k)}: {json.dumps(v)}," for k, v in head.items()]
    provenances = {
        k: {s: _plain(getattr(v, s)) for s in Provenance.__slots__} for k, v in profile.provenances.items()
    }
    operations = {k: _operation_dict(v) for k, v in profile.operations.items()}
    for key, block, end in (("provenances", provenances, ","), ("operations", operations, "")):
        rows = ",\n".join(
            f"    {json.dumps(k)}: {json.dumps(v, separators=(',', ':'), sort_keys=True)}"
            for k, v in sorted(block.items())
        )
        lines.append(f'  "{key}": {{\n{rows}\n  }}{end}')
    return "{\n" + "\n".join(lines) + "\n}\n"


def _operation_dict(operation: Operation) -> dict[str, Any]:
    out: dict[str, Any] = {
        "axes": [{"name": a.name, "points": [_short(p) for p in a.points]} for a in operation.axes],
        "provenance": operation.provenance,
        "residual": {s: getattr(operation.residual, s) for s in Residual.__slots__},
    }
    if operation.terms:
        out["combine"] = operation.combine
        out["terms"] = [
            {"name": t.name, "coefficient": t.coefficient, "axes": list(t.axes)} for t in operation.terms
        ]
    else:
        out["values"] = _shortened(operation.values)
    if operation.note:
        out["note"] = operation.note
    if operation.unit != "us":
        out["unit"] = operation.unit
    return out


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def _short(value: float) -> float | int:
    return int(value) if value == int(value) else value


def _shortened(values: Iterable[Any]) -> list[Any]:
    return [_shortened(v) if isinstance(v, tuple) else _short(v) for v in values]
