"""One look for all figures of the course.

Five colours for the five things that fill memory or the wire, from the Okabe-Ito palette, which
stays readable with colour-blind eyes and in grey print; each has a hatch too. Two drawings cover
most of what the lessons show: stacked bars of memory, and a row a rank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

COLORS = {
    "parameters": "#0072B2",  # blue
    "gradients": "#E69F00",  # orange
    "optimizer": "#009E73",  # green
    "activations": "#CC79A7",  # pink
    "communication": "#56B4E9",  # light blue
    "padding": "#F0F0F0",
    "other": "#999999",
}
HATCHES = {"gradients": "//", "optimizer": "..", "activations": "xx", "communication": "--"}
LABELS = {"optimizer": "optimizer states"}
WIDTH = 7.2  # inches: the width of a notebook's text
RANK_COLORS = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#D55E00",
    "#F0E442",
    "#999999",
)


def use() -> None:
    """Set matplotlib's defaults; :func:`figure` does it."""
    mpl.rcParams.update(
        {
            "figure.dpi": 100,
            "savefig.dpi": 100,
            "figure.constrained_layout.use": True,
            "font.size": 10,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": 11,
            "axes.titlelocation": "left",
            "legend.frameon": False,
            "hatch.linewidth": 0.5,
            "axes.prop_cycle": mpl.cycler(color=RANK_COLORS),
        }
    )


def figure(height: float = 2.8, columns: int = 1, **options) -> tuple[Figure, Axes]:
    """A figure as wide as the text, ``height`` in inches; with ``columns`` > 1 an array of axes.

    A notebook shows it where it is the value of a cell, its last line, and only there.
    """
    use()
    made, axes = plt.subplots(1, columns, figsize=(WIDTH, height), **options)
    plt.close(made)  # pyplot would show it a second time
    return made, axes


def bars(
    table: Mapping[str, Mapping[str, float]],
    *,
    unit: str = "bytes",
    title: str = "",
    limit: float | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Stacked horizontal bars, one a row of ``table``: {"ZeRO-1": {"parameters": 4, ...}, ...}.

    Rows are ranks or stages, kinds are those of COLORS, values are in ``unit``; the total stands at
    the end of each bar. ``limit`` draws a line: the memory that a device has.
    """
    if ax is None:
        _, ax = figure(0.9 + 0.42 * len(table) + (0.2 if limit is not None else 0.0))
    kinds = list(dict.fromkeys(kind for row in table.values() for kind in row))
    ends = [0.0] * len(table)
    for kind in kinds:
        widths = [row.get(kind, 0.0) for row in table.values()]
        look = {"color": COLORS.get(kind, COLORS["other"]), "hatch": HATCHES.get(kind, "")}
        ax.barh(list(table), widths, left=ends, height=0.7, edgecolor="white", **look)
        ends = [end + width for end, width in zip(ends, widths)]
    widest = max([*ends, limit or 0.0]) or 1.0
    plate = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}  # over the line of the limit
    for row, end in enumerate(ends):
        ax.text(end + 0.01 * widest, row, _number(end), va="center", bbox=plate)
    if limit is not None:
        ax.axvline(limit, color="black", linestyle="--", linewidth=1, zorder=1.5)
        ax.text(limit, -0.45, f" limit {_number(limit)}", va="bottom", fontsize=9)
    ax.set_xlim(0, widest * 1.15)
    ax.set_ylim(len(table) - 0.5, -0.5 if limit is None else -0.95)
    ax.set_xlabel(unit)
    ax.tick_params(axis="y", length=0)
    ax.set_title(title)
    _legend(ax, kinds)
    return ax.figure


def rank_rows(
    rows: Sequence[Sequence[tuple[float, float, str, str]]],
    *,
    title: str = "",
    xlabel: str = "",
    marks: Mapping[float, str] | None = None,
    names: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Figure:
    """A row a rank: who owns what of a flat buffer, or what each rank does when.

    ``rows[rank]`` is a list of (start, end, kind, text): a box of the colour of ``kind`` (one of
    COLORS, or a rank's number as a string) with ``text`` in it. ``marks`` are lines through all
    rows, {place: text above it}; ``names`` stand left of the rows, otherwise "rank 0", ...
    """
    if ax is None:
        _, ax = figure(0.9 + 0.42 * len(rows) + (0.3 if marks else 0.0))
    kinds: list[str] = []
    for row, boxes in enumerate(rows):
        for start, end, kind, text in boxes:
            color = RANK_COLORS[int(kind) % len(RANK_COLORS)] if kind.isdigit() else None
            color = color or COLORS.get(kind, COLORS["other"])
            look = {"color": color, "hatch": HATCHES.get(kind, "")}
            ax.barh(row, end - start, left=start, height=0.7, edgecolor="white", **look)
            ax.text((start + end) / 2, row, text, va="center", ha="center", **_ink(color))
            if not kind.isdigit() and kind not in (*kinds, "padding"):
                kinds.append(kind)
    for place, text in (marks or {}).items():
        ax.axvline(place, color="black", linewidth=0.8, linestyle=":")
        ax.text(place, -0.5, f" {text}", ha="left", va="bottom", fontsize=9)
    ax.set_yticks(range(len(rows)), names or [f"rank {rank}" for rank in range(len(rows))])
    ax.set_ylim(len(rows) - 0.5, -0.9 if marks else -0.5)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(xlabel)
    ax.set_title(title)
    _legend(ax, kinds)
    return ax.figure


def static_and_widget(draw: Callable[..., Figure], **sliders) -> None:
    """A picture for every reader, and sliders for those with a running kernel.

    ``draw(**values)`` returns a figure. Each slider is (least, most, step, value), or a list of
    choices, the first of which is the value. The picture drawn at those values is the cell's
    output; the sliders stand below it and draw again.
    """
    import ipywidgets
    from IPython.display import display

    values = {name: _start(given) for name, given in sliders.items()}
    picture = draw(**values)
    display(picture)
    controls = {name: _slider(name, given) for name, given in sliders.items()}
    output = ipywidgets.Output()

    def redraw(_change) -> None:
        with output:
            output.clear_output(wait=True)
            display(draw(**{name: control.value for name, control in controls.items()}))

    for control in controls.values():
        control.observe(redraw, names="value")
    shown = ipywidgets.VBox([*controls.values(), output])._repr_mimebundle_()
    # No text: readers without a kernel have the picture, and the notebooks stay the same.
    display({form: data for form, data in shown.items() if form != "text/plain"}, raw=True)


def _slider(name: str, given):
    import ipywidgets

    look = {"description": name, "continuous_update": False, "style": {"description_width": "8em"}}
    if isinstance(given, list):
        return ipywidgets.SelectionSlider(options=given, value=given[0], **look)
    least, most, step, value = given
    whole = all(isinstance(number, int) for number in given)
    kind = ipywidgets.IntSlider if whole else ipywidgets.FloatSlider
    return kind(min=least, max=most, step=step, value=value, **look)


def _start(given):
    return given[0] if isinstance(given, list) else given[3]


def _legend(ax: Axes, kinds: Sequence[str]) -> None:
    handles = [
        Patch(
            facecolor=COLORS.get(kind, COLORS["other"]),
            hatch=HATCHES.get(kind, ""),
            edgecolor="white",
            label=LABELS.get(kind, kind),
        )
        for kind in kinds
    ]
    for earlier in list(ax.figure.legends):  # of other axes in this figure: one for all
        handles = [*earlier.legend_handles, *handles]
        earlier.remove()
    handles = list({handle.get_label(): handle for handle in handles}.values())
    if handles:
        tight = {"fontsize": 9, "columnspacing": 1.2, "handlelength": 1.6, "handletextpad": 0.5}
        place = {"loc": "outside lower center", "ncols": len(handles)}
        ax.figure.legend(handles=handles, **place, **tight)


def _ink(color: str) -> dict:
    """Black or white text, whichever can be read on this colour, on a plate over any hatch."""
    red, green, blue = mpl.colors.to_rgb(color)
    light = 0.3 * red + 0.59 * green + 0.11 * blue > 0.45
    plate = {"facecolor": color, "edgecolor": "none", "pad": 1.0}
    return {"color": "black" if light else "white", "fontsize": 9, "bbox": plate}


def _number(value: float) -> str:
    """Three digits are enough to compare bars."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
