"""Piecewise-linear tables: through their points, monotone between, the same on both paths."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4sim.cost.tables import Grids, Line, whole

ascending = st.lists(st.integers(0, 2_000_000), min_size=2, max_size=12, unique=True).map(sorted)


@st.composite
def lines(draw: st.DrawFn) -> tuple[list[int], list[float], str]:
    points = draw(ascending)
    values = draw(st.lists(st.floats(0, 1e9, allow_nan=False), min_size=len(points), max_size=len(points)))
    return points, sorted(values), draw(st.sampled_from(["linear", "hold"]))


@given(lines(), st.lists(st.floats(0, 4e6, allow_nan=False), min_size=1, max_size=40).map(sorted))
def test_pieces_are_found_from_those_before_them(
    line: tuple[list[int], list[float], str], xs: list[float]
) -> None:
    table = Line(*line)
    piece = 0
    for x in xs:
        piece = table.piece_from(piece, x)
        assert piece == table.piece(x)
    assert [table.piece_from(0, x) for x in line[0]] == [table.piece(x) for x in line[0]]


@given(
    st.one_of(
        st.floats(0, 1e19, allow_nan=False),
        st.integers(0, 2**53).map(lambda n: n + 0.5),
        st.floats(2**51, 2**54, allow_nan=False),
    )
)
def test_whole_rounds_half_to_even_whatever_the_size(x: float) -> None:
    assert whole(x) == round(x)
    assert isinstance(whole(x), int)


@given(lines())
def test_a_line_goes_through_its_points(line: tuple[list[int], list[float], str]) -> None:
    points, values, _ = line
    table = Line(*line)
    steepest = max(
        (b - a) / (q - p) for (p, q), (a, b) in zip(pairwise(points), pairwise(values), strict=True)
    )
    for x, y in zip(points, values, strict=True):
        assert table.at(x) == pytest.approx(y, rel=1e-9, abs=1e-15 * steepest * points[-1] * 4)


def test_below_the_first_point_a_line_holds_and_above_the_last_it_does_as_told() -> None:
    assert Line([10, 20], [1.0, 3.0]).at(0) == 1.0
    assert Line([10, 20], [1.0, 3.0]).at(30) == pytest.approx(5.0)
    assert Line([10, 20], [1.0, 3.0], above="hold").at(30) == 3.0


def test_grids_meet_their_corners_and_are_bilinear_between() -> None:
    grids = Grids([0, 10, 20], [0, 100], [[[0, 1], [10, 31], [20, 61]], [[5, 5], [5, 5], [5, 5]]])
    assert grids.at(10, 100) == pytest.approx([31, 5])
    assert grids.at(5, 50) == pytest.approx([(0 + 1 + 10 + 31) / 4, 5])
    assert grids.at(-5, -5) == pytest.approx([0, 5]), "the first point holds below it"
    assert grids.at(30, 0)[0] == pytest.approx(30), "the last cell goes on"


@given(st.floats(0, 2e4), st.floats(0, 2e6))
def test_grids_repeat_any_bilinear_function(x: float, y: float) -> None:
    xs, ys = [1, 64, 4096, 16_384], [0, 8192, 1_000_000]

    def truth(a: float, b: float) -> float:
        return 90 + 0.3 * a + 1e-5 * b + 3e-6 * a * b

    grids = Grids(xs, ys, [[[truth(a, b) for b in ys] for a in xs]])
    assert grids.at(x, y)[0] == pytest.approx(truth(max(x, 1), y), rel=1e-9)
