"""The profile file: strict on the way in, the same bytes on the way out, never another shape's answer."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from v4sim.cost import Profile, builtin_profiles, load_profile
from v4sim.cost.operation import Residual
from v4sim.cost.profile import dump_profile, parse_profile
from v4sim.cost.uncertainty import BUILD, MACHINE, SKEW
from v4sim.errors import ProfileError

PROVENANCE = {
    "kind": "measured",
    "source": "a bench run",
    "timing": "cuda graph, L2 flushed",
    "kernel": "index_scan",
    "commit": "abc123",
    "gpu": "B200",
    "driver": None,
    "clocks": None,
    "libraries": {"triton": "3.6"},
}


def document(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "schema_version": 1,
        "name": "mine",
        "gpu": "b200",
        "description": "for tests",
        "generator": "by hand",
        "provenances": {"run": dict(PROVENANCE)},
        "operations": {
            "lm_head.v4-flash.tp1": {
                "axes": [{"name": "tokens", "points": [1, 100]}],
                "values": [10.0, 20.0],
                "provenance": "run",
                "residual": {"median": 0.01, "p95": 0.04, "rows": 12},
            },
            "index_scan.v4-flash.fp8": {
                "axes": [{"name": "entries", "points": [1, 100]}, {"name": "pairs", "points": [1, 100]}],
                "combine": "max",
                "terms": [
                    {"name": "hbm", "coefficient": 2.0, "axes": ["entries"]},
                    {"name": "matrix", "coefficient": 1.0, "axes": ["pairs"]},
                ],
                "provenance": "run",
                "residual": {"median": 0.01, "p95": 0.04, "rows": 0},
            },
        },
    }
    return base | changes


def parse(data: dict[str, Any]) -> Profile:
    return parse_profile(json.dumps(data), "mine.json")


@pytest.mark.parametrize("name", builtin_profiles())
def test_built_in_profiles_load_small_and_come_out_as_the_same_bytes(name: str) -> None:
    profile = load_profile(name)
    text = dump_profile(profile)
    assert dump_profile(parse_profile(text, name)) == text
    assert len(text) < 400_000
    assert profile.gpu == name
    assert {p.kind for p in profile.provenances.values()} <= {"published", "roofline"}


def test_the_six_reference_profiles_ship() -> None:
    assert set(builtin_profiles()) >= {"b200", "b300", "h200", "gb200", "gb300", "h100"}


def test_operations_evaluate_tables_and_fits() -> None:
    profile = parse(document())
    assert profile.operation("lm_head.v4-flash.tp1").at(tokens=50.5) == pytest.approx(15.0)
    scan = profile.operation("index_scan.v4-flash.fp8")
    assert scan.at(entries=10, pairs=10) == 20.0, "memory is the slower leg at width 1"
    assert scan.at(entries=10, pairs=60) == 60.0, "arithmetic at width 6"
    with pytest.raises(ProfileError, match="function of entries, pairs"):
        scan.at(entries=10)


@pytest.mark.parametrize(
    ("path", "value", "match"),
    [
        (("schema_version",), 2, "schema_version .* is 2"),
        (("extra",), 1, "extra .* is not a key"),
        (("gpu",), None, "gpu .* must be str"),
        (("provenances", "run", "kind"), "guessed", "kind .* is 'guessed'"),
        (("provenances", "run", "source"), "", "must say where"),
        (("operations", "lm_head.v4-flash.tp1", "provenance"), "nobody", "not under provenances"),
        (("operations", "lm_head.v4-flash.tp1", "values"), [10.0], "list of 2 entries"),
        (("operations", "lm_head.v4-flash.tp1", "values"), [10.0, -1], "not negative"),
        (("operations", "lm_head.v4-flash.tp1", "values"), [10.0, True], "is True"),
        (("operations", "lm_head.v4-flash.tp1", "axes"), [], "a table needs an axis"),
        (
            ("operations", "lm_head.v4-flash.tp1", "axes"),
            [{"name": "tokens", "points": [5, 5]}],
            "must ascend",
        ),
        (("operations", "lm_head.v4-flash.tp1", "residual"), {"median": 0.1}, "median, p95 and rows"),
        (("operations", "index_scan.v4-flash.fp8", "combine"), "mean", "sum or max"),
        (("operations", "index_scan.v4-flash.fp8", "terms"), [], "a term at least"),
        (("operations", "index_scan.v4-flash.fp8", "values"), [1.0], "either values"),
    ],
)
def test_a_wrong_file_is_refused_by_key(path: tuple[str, ...], value: Any, match: str) -> None:
    data = document()
    spot = data
    for key in path[:-1]:
        spot = spot[key]
    spot[path[-1]] = value
    with pytest.raises(ProfileError, match=match) as refused:
        parse(data)
    assert "mine.json" in str(refused.value)


@pytest.mark.parametrize("text", ["", "not json", "[]", '{"schema_version": NaN}'])
def test_what_is_no_profile_at_all_is_refused(text: str) -> None:
    with pytest.raises(ProfileError, match=r"mine\.json"):
        parse_profile(text, "mine.json")


def test_a_missing_shape_is_an_error_that_lists_what_is_there(profiles: Callable[[str], Profile]) -> None:
    with pytest.raises(ProfileError, match=r"csa_decode\.sglang\.v5.*of csa_decode there are") as refused:
        profiles("b200").operation("csa_decode.sglang.v5.tp4")
    assert "measure it" in str(refused.value)


def test_an_unknown_profile_names_the_built_in_ones(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="b200"):
        load_profile("b20")
    (tmp_path / "mine.json").write_text(json.dumps(document()))
    assert load_profile(tmp_path / "mine.json").name == "mine"


def test_a_draw_is_repeatable_moves_operations_apart_and_stays_near(
    profiles: Callable[[str], Profile],
) -> None:
    profile = profiles("b200")
    one, again, other = profile.draw(1), profile.draw(1), profile.draw(2)
    assert one.operations == again.operations
    assert one.operations != other.operations
    factors = {
        name: one.operations[name].terms[0].coefficient / operation.terms[0].coefficient
        for name, operation in profile.operations.items()
        if operation.terms and operation.terms[0].coefficient
    }
    assert len({round(f, 9) for f in factors.values()}) > 10, "errors are independent"
    for name, found in factors.items():
        spread = math.hypot(profile.operations[name].residual.p95 / 1.96, MACHINE.log_sd)
        assert abs(math.log(found)) < 5 * spread


def test_draws_share_the_machine_the_build_and_the_skew_of_experts_but_not_the_host(
    profiles: Callable[[str], Profile],
) -> None:
    """Without residuals of their own, what is left of a draw is what operations have in common."""
    b200 = profiles("b200")
    exact = replace(
        b200,
        operations={
            name: replace(operation, residual=Residual(0.0, 0.0, 1))
            for name, operation in b200.operations.items()
        },
    )
    machines, skews, builds = [], [], []
    for seed in range(200):
        drawn = exact.draw(seed)

        def moved(name: str, drawn: Profile = drawn) -> float:
            one, other = exact.operation(name), drawn.operation(name)
            before = one.terms[0].coefficient if one.terms else one.values[0]
            return float((other.terms[0].coefficient if other.terms else other.values[0]) / before)

        assert moved("lm_head.v4-pro.tp8") == pytest.approx(moved("mhc.sglang.v4-flash"))
        build = moved("hca_decode.vllm.v4-pro.tp8")
        assert build == pytest.approx(moved("csa_tail.v4-flash"))
        builds.append(math.log(build / moved("hbm_stream")))
        assert moved("moe.mxfp4.sglang.v4-flash.tp4ep1") == pytest.approx(moved("hbm_stream"))
        skewed = moved("megamoe.v4-flash.ep8")
        assert skewed == pytest.approx(moved("moe.mxfp4.sglang.v4-flash.tp1ep4"))
        assert moved("eager_launch.sglang") == 1.0
        machines.append(math.log(moved("hbm_stream")))
        skews.append(math.log(skewed / moved("hbm_stream")))
        if seed % 2:  # draws come in pairs of opposite signs
            assert machines[-1] == pytest.approx(-machines[-2])
            assert skews[-1] == pytest.approx(-skews[-2])
    assert np.std(machines) == pytest.approx(MACHINE.log_sd, rel=0.2)
    assert np.std(skews) == pytest.approx(SKEW.log_sd, rel=0.2)
    assert np.std(builds) == pytest.approx(BUILD.log_sd, rel=0.2)


def test_merging_replaces_operations_and_keeps_both_origins() -> None:
    base = parse(document())
    better = document(name="lab")
    better["operations"] = {"lm_head.v4-flash.tp1": better["operations"]["lm_head.v4-flash.tp1"]}
    better["operations"]["lm_head.v4-flash.tp1"]["values"] = [1.0, 2.0]
    better["provenances"]["run"]["source"] = "our lab"
    merged = base.merged(parse(better))
    operation = merged.operation("lm_head.v4-flash.tp1")
    assert operation.values == (1.0, 2.0)
    assert merged.provenance_of(operation).source == "our lab"
    assert merged.provenance_of(merged.operation("index_scan.v4-flash.fp8")).source == "a bench run"
    with pytest.raises(ProfileError, match="gpu 'h200'"):
        base.merged(parse(document(gpu="h200")))
