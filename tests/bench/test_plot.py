from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from tests.bench.plot import HEIGHT, WIDTH, Panel, plotted

SVG = "{http://www.w3.org/2000/svg}"
panels = st.builds(
    Panel,
    title=st.text("abc <&\"'", max_size=9),
    unit=st.just("µs"),
    costs=st.dictionaries(
        st.integers(1, 2**32),
        st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=5),
        min_size=1,
        max_size=6,
    ),
)


@given(st.lists(panels, max_size=5))
def test_every_point_is_drawn_within_its_panel(drawn: list[Panel]) -> None:
    text = plotted("costs", drawn)
    assert plotted("costs", drawn) == text
    picture = ElementTree.fromstring(text)
    assert (picture[0].tag, picture[0].text) == (f"{SVG}title", "costs")
    groups = picture.findall(f"{SVG}g/{SVG}g")
    for group, panel in zip(groups, drawn, strict=True):
        dots = group.findall(f"{SVG}circle")
        assert len(dots) == len(panel.costs)
        for dot in dots:
            assert 0 < float(dot.get("cx", "")) < WIDTH
            assert 0 < float(dot.get("cy", "")) < HEIGHT
        across = [float(dot.get("cx", "")) for dot in dots]
        assert across == sorted(across)


def test_what_costs_more_stands_higher_and_a_bar_has_all_runs() -> None:
    root = ElementTree.fromstring(
        plotted("costs", [Panel("cost", "µs", {1: (10.0, 20.0, 15.0), 100: (40.0,)})])
    )
    low, high = (float(dot.get("cy", "")) for dot in root.iter(f"{SVG}circle"))
    assert high < low
    bar = next(line for line in root.iter(f"{SVG}line") if line.get("x1") == line.get("x2"))
    assert float(bar.get("y1", "")) > low > float(bar.get("y2", ""))
