"""`v4traces check`: every broken law and every warning, each with its row and the way out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def check(
    trace: Annotated[Path, typer.Argument(help="Trace to check (.parquet).")],
    as_json: Annotated[bool, typer.Option("--json", help="Findings as JSON.")] = False,
) -> int:
    """Check the laws of a trace. Exit code 2 if one is broken; warnings leave it at 0."""
    import json
    from dataclasses import asdict

    from v4traces.check import check_trace
    from v4traces.read import load

    table, findings = load(trace)
    if not findings:
        findings = check_trace(table)
    broken = sum(finding.severity == "error" for finding in findings)
    if as_json:
        print(
            json.dumps(
                {"trace": table.path, "calls": table.n, "findings": [*map(asdict, findings)]}, indent=1
            )
        )
    else:
        for finding in findings:
            print(f"{finding.severity} [{finding.law}] {finding.message}")
        verdict = f"{broken} laws are broken" if broken else "all laws hold"
        print(f"{table.path}: {table.n} calls, {len(table.session_names)} sessions; {verdict}.")
    return 2 if broken else 0
