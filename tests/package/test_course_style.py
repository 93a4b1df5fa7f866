"""Figures of the course: all of it inside, colours by kind, no picture shown twice."""

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import pytest

from course import style

ROWS = {"DDP": {"parameters": 2, "gradients": 2, "optimizer": 12}, "ZeRO-1": {"optimizer": 3}}


def texts(figure):
    return [text.get_text().strip() for text in figure.axes[0].texts]


def test_bars_show_totals_the_limit_and_each_kind_once():
    figure = style.bars(ROWS, unit="bytes a parameter", limit=12)
    assert texts(figure) == ["16", "3", "limit 12"]
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["parameters", "gradients", "optimizer states"]
    assert figure.axes[0].get_xlim()[1] > 16


def test_a_row_a_rank():
    rows = [[(0, 3, "0", "a")], [(3, 5, "1", "b"), (5, 6, "padding", "")]]
    figure = style.rank_rows(rows, marks={3: "b"})
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["rank 0", "rank 1"]
    assert "b" in texts(figure) and not figure.legends


def test_the_text_of_no_bar_runs_out_of_the_figure():
    figure = style.bars(ROWS, limit=12)
    figure.draw_without_rendering()
    width, height = figure.bbox.size
    for text in [*figure.axes[0].texts, *figure.legends[0].get_texts()]:
        box = text.get_window_extent()
        assert box.x0 >= 0 and box.x1 <= width and box.y0 >= 0 and box.y1 <= height


def test_no_figure_stays_open():
    style.bars(ROWS)
    assert not plt.get_fignums()


@pytest.mark.parametrize("given", [(1, 8, 1, 3), (0.0, 1.0, 0.1, 0.3), ["3", "x"]])
def test_the_picture_comes_first_and_the_slider_draws_again(given, monkeypatch):
    drawn, shown = [], []
    monkeypatch.setattr("IPython.display.display", lambda what, **_: shown.append(what))

    def draw(n):
        drawn.append(n)
        return style.bars(ROWS)

    style.static_and_widget(draw, n=given)
    assert len(drawn) == 1 and str(drawn[0]).endswith("3")
    assert isinstance(shown[0], plt.Figure)
    assert list(shown[1]) == ["application/vnd.jupyter.widget-view+json"]
    slider = style._slider("n", given)
    assert slider.value == drawn[0]
