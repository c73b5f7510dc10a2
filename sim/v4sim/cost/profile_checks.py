"""What a profile file must look like, checked before any of it is used.

Every rule names the file, the key and the way out. Shapes of tables, ascending axes, finite times that
are not negative, known words; nothing about the meaning of operations (see `compile`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from v4sim.errors import ProfileError

SCHEMA_VERSION = 1
KINDS = ("measured", "published", "roofline")
UNITS = ("us", "share")
_HEAD = {
    "schema_version": int,
    "name": str,
    "gpu": str,
    "description": str,
    "generator": str,
    "provenances": dict,
    "operations": dict,
}
_PROVENANCE = ("kind", "source", "timing", "kernel", "commit", "gpu", "driver", "clocks", "libraries")
_OPERATION = {"axes", "values", "terms", "combine", "provenance", "residual", "note", "unit"}


def check_document(document: Any, where: str) -> None:
    """Raise `ProfileError` for the first thing that is wrong."""
    if not isinstance(document, dict):
        raise _error(where, "", f"is a {type(document).__name__}, not an object")
    version = document.get("schema_version")
    if version != SCHEMA_VERSION:
        raise _error(where, "schema_version", f"is {version!r}; this version of v4sim reads {SCHEMA_VERSION}")
    _keys(document, set(_HEAD), where, "")
    for key, kind in _HEAD.items():
        if not isinstance(document.get(key), kind):
            raise _error(where, key, f"must be {kind.__name__}, it is {document.get(key)!r:.60}")
    for key, value in document["provenances"].items():
        _check_provenance(value, where, f"provenances.{key}")
    for key, value in document["operations"].items():
        _check_operation(value, document["provenances"], where, f"operations.{key}")


def _check_provenance(value: Any, where: str, key: str) -> None:
    if not isinstance(value, dict):
        raise _error(where, key, "must be an object")
    _keys(value, set(_PROVENANCE), where, key)
    missing = [k for k in _PROVENANCE if k not in value]
    if missing:
        raise _error(where, f"{key}.{missing[0]}", "is missing (write null where it is not known)")
    if value["kind"] not in KINDS:
        raise _error(where, f"{key}.kind", f"is {value['kind']!r}; it must be one of {', '.join(KINDS)}")
    if not isinstance(value["source"], str) or not value["source"]:
        raise _error(where, f"{key}.source", "must say where the numbers come from")
    if not isinstance(value["libraries"], dict):
        raise _error(where, f"{key}.libraries", "must be an object of name to version")


def _check_operation(value: Any, provenances: Mapping[str, Any], where: str, key: str) -> None:
    if not isinstance(value, dict):
        raise _error(where, key, "must be an object")
    _keys(value, _OPERATION, where, key)
    if value.get("provenance") not in provenances:
        raise _error(
            where, f"{key}.provenance", f"is {value.get('provenance')!r}, which is not under provenances"
        )
    if value.get("unit", "us") not in UNITS:
        raise _error(where, f"{key}.unit", f"is {value['unit']!r}; it must be one of {', '.join(UNITS)}")
    axes = value.get("axes")
    if not isinstance(axes, list) or len(axes) > 2:
        raise _error(where, f"{key}.axes", "must be a list of at most two axes")
    names = [_check_axis(axis, where, f"{key}.axes[{i}]") for i, axis in enumerate(axes)]
    _check_residual(value.get("residual"), where, f"{key}.residual")
    if ("values" in value) == ("terms" in value):
        raise _error(where, key, "needs either values (a table) or terms (a fit), not both")
    if "values" in value:
        if not axes:
            raise _error(where, f"{key}.axes", "a table needs an axis")
        _check_values(value["values"], [len(a["points"]) for a in axes], where, f"{key}.values")
    else:
        if value.get("combine") not in ("sum", "max"):
            raise _error(where, f"{key}.combine", "must be sum or max")
        _check_terms(value["terms"], names, where, f"{key}.terms")


def _check_axis(axis: Any, where: str, key: str) -> str:
    if not isinstance(axis, dict) or not isinstance(axis.get("name"), str):
        raise _error(where, key, "must be an object with a name")
    _keys(axis, {"name", "points"}, where, key)
    points = axis.get("points")
    if not isinstance(points, list) or len(points) < 2:
        raise _error(where, f"{key}.points", "needs two points at least")
    for point in points:
        _number(point, where, f"{key}.points")
    if any(b <= a for a, b in pairwise(points)):
        raise _error(where, f"{key}.points", "must ascend strictly")
    return str(axis["name"])


def _check_residual(value: Any, where: str, key: str) -> None:
    if not isinstance(value, dict) or set(value) != {"median", "p95", "rows"}:
        raise _error(where, key, "must be an object of median, p95 and rows")
    for name in ("median", "p95", "rows"):
        _number(value[name], where, f"{key}.{name}")


def _check_values(values: Any, shape: list[int], where: str, key: str) -> None:
    if not isinstance(values, list) or len(values) != shape[0]:
        raise _error(where, key, f"must be a list of {shape[0]} entries, one a point of the axis")
    for i, value in enumerate(values):
        if len(shape) > 1:
            _check_values(value, shape[1:], where, f"{key}[{i}]")
        else:
            _number(value, where, f"{key}[{i}]")


def _check_terms(terms: Any, names: list[str], where: str, key: str) -> None:
    if not isinstance(terms, list) or not terms:
        raise _error(where, key, "must be a list with a term at least")
    for i, term in enumerate(terms):
        if not isinstance(term, dict) or set(term) != {"name", "coefficient", "axes"}:
            raise _error(where, f"{key}[{i}]", "must be an object of name, coefficient and axes")
        _number(term["coefficient"], where, f"{key}[{i}].coefficient")
        unknown = [a for a in term["axes"] if a not in names]
        if unknown:
            raise _error(where, f"{key}[{i}].axes", f"names {unknown[0]!r}, which is not an axis")


def _number(value: Any, where: str, key: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise _error(where, key, f"is {value!r}; times and points are finite numbers and not negative")


def _keys(value: Mapping[str, Any], known: set[str], where: str, key: str) -> None:
    unknown = sorted(set(value) - known)
    if unknown:
        dotted = f"{key}.{unknown[0]}" if key else unknown[0]
        raise _error(where, dotted, f"is not a key of a profile (there are {', '.join(sorted(known))})")


def _error(where: str, key: str, problem: str) -> ProfileError:
    subject = f"{key} of profile {where}" if key else f"Profile {where}"
    return ProfileError(f"{subject} {problem}. Write it again with v4calib, or correct it by hand.")
