"""`v4calib show`: what a profile holds, or one of its operations in full."""

from __future__ import annotations

from typing import Annotated

import typer


def show(
    profile: Annotated[str, typer.Argument(metavar="PROFILE", help="Built-in name or file.")],
    operation: Annotated[
        str | None, typer.Argument(metavar="[OPERATION]", help="Print this operation with its numbers.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Show the operations of a profile: domain, provenance, residual error."""
    import json

    from v4calib.report import describe, describe_operation
    from v4sim.cost.profile import load_profile

    loaded = load_profile(profile)
    rows = describe_operation(loaded, operation) if operation else describe(loaded)
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        print("  ".join(f"{value}" for value in row.values()))
