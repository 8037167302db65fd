"""The charts of the report: latency per contender, and share over time per endpoint."""

from __future__ import annotations

import math
from typing import Any, Literal

import plotly.graph_objects as go
import plotly.io
from plotly.colors import qualitative
from plotly.subplots import make_subplots

from bench.record import ContenderResult, Plot, RunResult

COLUMNS = 3
ROW_HEIGHT = 190
SPREAD = "#8c959f"
DEGRADED = "#cf222e"
LIMITS = ("ideal", "limit")
# Tick marks of the latency chart: the fraction of reads that were slower.
TAILS = {0.5: "p50", 0.1: "p90", 0.01: "p99", 0.001: "p99.9", 0.0001: "p99.99"}


def charts(result: RunResult) -> str:
    """Return the charts as HTML with plotly's code inlined; empty when there is no data."""
    figures: list[tuple[str, Any]] = []
    if any(contender["curve"] for contender in result["contenders"]):
        figures.append(("Latency of reads", latency_chart(result, "curve")))
    if any(contender.get("write_curve") for contender in result["contenders"]):
        figures.append(("Latency of writes", latency_chart(result, "write_curve")))
    if any(contender["timeline"] for contender in result["contenders"]):
        figures.append(("Share of reads per endpoint over time", share_chart(result)))
    figures += [(plot["title"], plot_chart(plot)) for plot in result.get("plots", [])]
    parts = [
        f"<h2>{title}</h2>"
        + plotly.io.to_html(
            figure,
            include_plotlyjs=i == 0,
            full_html=False,
            config={"displaylogo": False, "responsive": True},
            div_id=f"chart-{i}",
        )
        for i, (title, figure) in enumerate(figures)
    ]
    return "\n".join(parts)


def latency_chart(result: RunResult, curve: Literal["curve", "write_curve"] = "curve") -> Any:
    """Return the distribution per contender, both axes logarithmic toward the slow end."""
    figure = go.Figure()
    for i, contender in enumerate(result["contenders"]):
        points = [(ms, 1 - fraction) for ms, fraction in contender.get(curve, []) if fraction < 1]
        figure.add_scatter(
            x=[slower for _, slower in points],
            y=[ms for ms, _ in points],
            mode="lines",
            name=contender["name"],
            line={
                "color": qualitative.Dark24[i % len(qualitative.Dark24)],
                "dash": "dot" if contender["name"] in LIMITS else "solid",
                "width": 2,
            },
            hovertemplate="%{y:.3f} ms<extra>%{fullData.name}</extra>",
        )
    figure.update_xaxes(
        type="log",
        autorange="reversed",
        tickvals=list(TAILS),
        ticktext=list(TAILS.values()),
        title="percentile",
    )
    figure.update_yaxes(type="log", title="latency, ms")
    figure.update_layout(template="plotly_white", height=480, hovermode="x unified")
    return figure


def plot_chart(plot: Plot) -> Any:
    """Return one of a scenario's own plots."""
    figure = go.Figure()
    for i, line in enumerate(plot["lines"]):
        figure.add_scatter(
            x=[x for x, _ in line["points"]],
            y=[y for _, y in line["points"]],
            mode="lines+markers",
            name=line["name"],
            line={"color": qualitative.Dark24[i % len(qualitative.Dark24)], "width": 2},
        )
    ticks = sorted({x for line in plot["lines"] for x, _ in line["points"]})
    figure.update_xaxes(type="log", tickvals=ticks, ticktext=[f"{x:g}" for x in ticks])
    figure.update_xaxes(title=plot["x"])
    figure.update_yaxes(title=plot["y"], rangemode="tozero")
    figure.update_layout(template="plotly_white", height=360)
    return figure


def share_chart(result: RunResult) -> Any:
    """Return one small chart per contender; the degraded endpoints are red, onset is at 0."""
    shown = [contender for contender in result["contenders"] if contender["timeline"]]
    rows = math.ceil(len(shown) / COLUMNS)
    figure = make_subplots(
        rows=rows,
        cols=COLUMNS,
        shared_xaxes=True,
        shared_yaxes=True,
        subplot_titles=[contender["name"] for contender in shown],
        horizontal_spacing=0.04,
        vertical_spacing=0.35 / rows,
    )
    degraded = str(result["parameters"].get("degraded_endpoint", ""))
    for i, contender in enumerate(shown):
        _add_shares(figure, contender, degraded, row=i // COLUMNS + 1, column=i % COLUMNS + 1)
    figure.add_vline(x=0, line={"color": "#59636e", "width": 1, "dash": "dash"})
    figure.update_yaxes(tickformat=".0%", range=[0, 1])
    figure.update_xaxes(title="seconds from onset", row=rows)
    figure.update_layout(template="plotly_white", height=ROW_HEIGHT * rows + 120, showlegend=False)
    return figure


def _add_shares(
    figure: Any, contender: ContenderResult, degraded: str, *, row: int, column: int
) -> None:
    timeline = contender["timeline"]
    for endpoint in timeline[0]["share"]:
        is_degraded = endpoint in degraded
        figure.add_scatter(
            x=[point["at_s"] for point in timeline],
            y=[point["share"].get(endpoint, 0.0) for point in timeline],
            mode="lines",
            name=f"{endpoint} (degraded)" if is_degraded else endpoint,
            line={
                "color": DEGRADED if is_degraded else SPREAD,
                "width": 2.5 if is_degraded else 1.2,
            },
            row=row,
            col=column,
        )
