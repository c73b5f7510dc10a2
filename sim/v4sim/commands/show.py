"""`v4sim show`: what stands in a trace, a profile or a deployment, as it would enter a replay.

A trace is shown as `v4traces stats` shows it. The kind is told by the name: a file by its ending (.parquet,
.json, .toml), anything else must be the name of a preset or of a built-in profile.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from v4sim.config import Deployment
    from v4sim.cost.profile import Profile


def show(
    what: Annotated[str, typer.Argument(metavar="TRACE|PROFILE|PRESET", help="A file, or a built-in name.")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change one key of a deployment; may be repeated."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Show what is in a trace, a profile or a deployment."""
    from v4sim.commands.text import as_json_text, key_values
    from v4sim.errors import ConfigError

    kind = _kind(what)
    if settings and kind != "deployment":
        raise ConfigError(f"--set changes a deployment, and {what} is a {kind}. Leave --set out.")
    if kind == "trace":
        from v4traces.commands.stats import stats

        stats(Path(what), as_json)
        return
    facts = profile_facts(what) if kind == "profile" else deployment_facts(what, settings or [])
    print(as_json_text(facts) if as_json else key_values(facts))


def profile_facts(name: str) -> dict[str, Any]:
    from v4sim.cost.profile import load_profile

    profile = load_profile(name)
    kinds = [profile.provenance_of(operation).kind for operation in profile.operations.values()]
    return {
        "profile": profile.name,
        "gpu": profile.gpu,
        "description": profile.description,
        "made by": profile.generator,
        "operations by origin": {kind: kinds.count(kind) for kind in sorted(set(kinds))},
        "operations": dict(_operations(profile)),
    }


def _operations(profile: Profile) -> Iterator[tuple[str, str]]:
    for name, operation in sorted(profile.operations.items()):
        origin, error = profile.provenance_of(operation), operation.residual
        doubt = f"±{error.p95:.0%}" + ("" if error.rows else " assumed")
        yield name, f"{operation.domain}; {origin.kind}, {origin.source}; {doubt}"


def deployment_facts(name: str, settings: list[str]) -> dict[str, Any]:
    """Every option after the engine's own choices, and where the memory of one GPU goes."""
    from v4sim import config
    from v4sim.capacity import pools
    from v4sim.model import spec

    deployment = config.resolve(config.load(name, settings))
    held = pools(deployment, spec(deployment.model.name))
    return {
        **_options(deployment),
        "capacity of one rank": {
            "kv tokens": held.kv_tokens,
            "sliding-window tokens": held.swa_tokens,
            "requests at once": held.request_slots,
        },
        "memory of one GPU (GiB)": {line.name: round(line.bytes / 2**30, 3) for line in held.ledger},
    }


def _options(deployment: Deployment) -> dict[str, Any]:
    return {
        section: dict(value) if isinstance(value, Mapping) else value
        for section, value in deployment.options().items()
    }


def _kind(what: str) -> str:
    from v4sim import config
    from v4sim.config.load import slug
    from v4sim.cost.profile import builtin_profiles
    from v4sim.errors import ConfigError

    endings = {".parquet": "trace", ".json": "profile", ".toml": "deployment"}
    ending = Path(what).suffix
    if ending in endings:
        return endings[ending]
    if what in builtin_profiles():
        return "profile"
    known = {slug(name): name for name in config.presets()}
    if slug(what) in known:
        return "deployment"
    near = difflib.get_close_matches(slug(what), list(known), 1, 0.4)
    hint = f" The nearest preset is {known[near[0]]!r}." if near else ""
    raise ConfigError(
        f"{what!r} is neither a file that ends in {', '.join(endings)}, nor a preset (`v4sim presets` lists "
        f"them), nor a built-in profile ({', '.join(builtin_profiles())}).{hint}"
    )
