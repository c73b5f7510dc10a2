"""`v4calib diff`: where two profiles differ, as ratios at the points they share. Exit 1 where they do."""

from __future__ import annotations

from typing import Annotated

import typer

from v4calib.commands.options import AsJson


def diff(
    first: Annotated[str, typer.Argument(metavar="A", help="Built-in name or file.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Built-in name or file.")],
    as_json: AsJson = False,
) -> int:
    """Compare two profiles: operations of one only, and times of A over B."""
    import json

    from v4calib.agreement import difference, table
    from v4sim.cost.profile import load_profile

    a, b = load_profile(first), load_profile(second)
    found = difference(a, b)
    if as_json:
        print(json.dumps(found.as_dict(), indent=1))
    else:
        for name, only in ((a.name, found.only_first), (b.name, found.only_second)):
            for operation in only:
                print(f"only in {name}: {operation}")
        if found.changed:
            print(table(found.changed, a.name, b.name))
        print(f"{found.same} operations are the same")
    return 1 if found.changed or found.only_first or found.only_second else 0
