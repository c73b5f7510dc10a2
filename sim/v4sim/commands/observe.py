"""`v4sim observe`: logs of a running engine against its prediction, and the constants that fit it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from v4sim.commands import talk
from v4sim.commands.garbage import collected

if TYPE_CHECKING:
    from v4sim.config import Deployment
    from v4sim.cost.base import StepCost


@collected()
def observe(
    logs: Annotated[
        list[Path], typer.Argument(metavar="LOG...", help="Per-call logs, one JSON object a line.")
    ],
    trace: Annotated[Path, typer.Option("--trace", "-t", metavar="TRACE", help="The trace that was sent.")],
    deployment: Annotated[
        str | None,
        typer.Option("--deployment", "-d", metavar="PRESET|FILE", help="What runs: a preset or .toml file."),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option("--profile", "-p", metavar="NAME|FILE", help="Calibration profile [the GPU's own]."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change one key of the deployment; may be repeated."),
    ] = None,
    log_format: Annotated[
        str | None,
        typer.Option("--format", metavar="NAME", help="sglang, vllm, aiperf or dynamo [told by the keys]."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of every random draw.")] = 0,
    toml: Annotated[
        Path | None,
        typer.Option("--toml", metavar="FILE", help="Write the fitted constants as a deployment fragment."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file of --toml if it exists.")] = False,
) -> int:
    """Compare LOG with the prediction for TRACE, and fit the engine constants to it."""
    from v4sim import config
    from v4sim.cost import compile_cost, load_profile
    from v4sim.errors import ConfigError
    from v4sim.model import spec
    from v4sim.observe import compare, fit, join, read_logs
    from v4traces import read_table
    from v4traces.files import whole_file

    if toml is not None and toml.exists() and not force:
        raise ConfigError(f"{toml} exists and is not overwritten without --force. Name another file.")
    table = read_table(trace)
    log = read_logs(logs, log_format)
    joined = join(table, log.seen)
    deployed = config.resolve(
        config.load(config.DEFAULT_PRESET if deployment is None else deployment, settings or [])
    )
    measured = load_profile(deployed.hardware.gpu if profile is None else profile)
    if deployment is None:
        talk.say(f"default deployment: {deployed.name}")
    talk.say(
        f"{len(log.seen):,} calls in {', '.join(log.formats)} logs, {log.without_call:,} lines without one"
    )
    talk.say(f"replaying {joined.table.n:,} calls as they were sent, with changing constants")

    def cost_of(changed: Deployment) -> StepCost:
        return compile_cost(measured, changed, spec(changed.model.name))

    found = compare(joined, fit(joined, deployed, cost_of, seed), log.formats)
    if toml is not None:
        with whole_file(toml, force=force) as partial:
            partial.write_text(found.as_toml(), encoding="utf-8")
        talk.wrote(toml)
    print(found.as_json() if as_json else found.as_text(), end="" if as_json else "\n")
    return 0
