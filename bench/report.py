"""One run as a terminal table, as the README's table, and as a page that needs no network."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from pathlib import Path
from string import Template

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from bench.charts import charts
from bench.record import Bar, ContenderResult, RunResult, TextTable

WIDTH = 120  # characters, of the tables in a terminal

COLUMNS = ("contender", "reads", "errors", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "max ms")

PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$scenario</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2328; max-width: 70rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; }
h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .8rem; border-bottom: 1px solid #d8dee4; text-align: right; }
th:first-child, td:first-child { text-align: left; }
.ok { color: #116329; } .bad { color: #a40e26; font-weight: 600; }
.note { color: #59636e; }
</style>
</head>
<body>
<h1>$scenario</h1>
<p>$question</p>
$results
<p class="note">Latency of reads from their intended start, so a stall counts for everyone it would
have met; failed operations included. Shares are the servers' own word: their counters, or the
member that each reply of etcd's names. Late: 99th percentile
of how late the load generator itself was.</p>
$bars
$charts
<h2>Environment and parameters</h2>
$facts
</body>
</html>
""")


def table_of(result: RunResult) -> list[list[str]]:
    """Return the contenders' table as text: a header, then one row per contender."""
    extras = _extra_columns(result)
    rows = [[*COLUMNS, *(title for title, _ in extras)]]
    for contender in result["contenders"]:
        read = contender["read"]
        row = [contender["name"], f"{read['count']:,}", f"{contender['errors']:,}"]
        row += [
            _number(read[key]) if key in read else "-"
            for key in ("p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms")
        ]
        rows.append([*row, *(values.get(contender["name"], "-") for _, values in extras)])
    return rows


def table_of_bars(bars: Sequence[Bar]) -> list[list[str]]:
    """Return the bars' table as text: a header, then one row per bar."""
    rows = [["bar", "measured", "must be", "holds"]]
    for bar in bars:
        limit = f"{bar['relation']} {_number(bar['bar'])}"
        rows.append([bar["name"], _number(bar["measured"]), limit, "yes" if bar["holds"] else "NO"])
    return rows


def print_tables(result: RunResult, console: Console) -> None:
    """Print both tables, wide enough for their numbers even where the terminal is not."""
    console = Console(file=console.file, width=max(console.width, WIDTH))
    title = f"{result['scenario']} ({result['mode']}, seed {result['seed']})"
    console.print(_rich_table(table_of(result), title=title))
    for table in result.get("tables", []):
        console.print(_rich_table(table["rows"], title=table["title"]))
    if result["bars"]:
        console.print(_rich_table(table_of_bars(result["bars"]), title="bars"))


def markdown(result: RunResult) -> str:
    """Return both tables as Markdown, for the README."""
    tables = [_markdown_table(table_of(result))]
    tables += [_markdown_table(table["rows"]) for table in result.get("tables", [])]
    if result["bars"]:
        tables.append(_markdown_table(table_of_bars(result["bars"])))
    return "\n\n".join(tables) + "\n"


def page(result: RunResult) -> str:
    """Return one HTML page that holds everything it needs."""
    facts = {"mode": result["mode"], "seed": result["seed"]}
    facts |= result["parameters"] | result["environment"]
    bars = table_of_bars(result["bars"])
    tables = result.get("tables", [])
    return PAGE.substitute(
        scenario=html.escape(result["scenario"]),
        question=html.escape(result["question"]),
        results=_html_table(table_of(result)) + "".join(map(_html_section, tables)),
        bars="<h2>Bars</h2>" + _html_table(bars) if result["bars"] else "",
        charts=charts(result),
        facts=_html_table([["name", "value"], *([k, _fact(v)] for k, v in facts.items())]),
    )


def write_page(result: RunResult, path: Path) -> None:
    """Write ``page`` to ``path``."""
    path.write_text(page(result), encoding="utf-8")


def write_json(result: RunResult, path: Path) -> None:
    """Write the whole result to ``path``."""
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _extra_columns(result: RunResult) -> list[tuple[str, dict[str, str]]]:
    """Return the columns that only some scenarios have, each with its text by contender."""
    contenders = result["contenders"]
    columns = [
        (
            "slow share",
            {c["name"]: f"{c['degraded_share']:.2%}" for c in contenders if "degraded_share" in c},
        ),
        ("per second", {c["name"]: f"{c['throughput_per_s']:,.0f}" for c in contenders}),
        ("late ms", {c["name"]: _number(c["late_p99_ms"]) for c in contenders if c["late_p99_ms"]}),
    ]
    names = dict.fromkeys(note for c in contenders for note in c["notes"])
    notes = [(name.replace("_", " "), _notes(contenders, name)) for name in names]
    # What only one contender has is no comparison; it stands in the table of bars.
    columns += [(title, values) for title, values in notes if len(values) > 1]
    return [(title, values) for title, values in columns if values]


def _notes(contenders: Sequence[ContenderResult], name: str) -> dict[str, str]:
    return {c["name"]: _number(c["notes"][name]) for c in contenders if name in c["notes"]}


def _number(value: float) -> str:
    if value == round(value):
        return f"{value:,.0f}"
    if abs(value) < 10:
        return f"{value:.3g}" if abs(value) < 1 else f"{value:.2f}"
    return f"{value:,.1f}"


def _fact(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_fact(part)}" for name, part in value.items())
    return str(value)


def _rich_table(rows: Sequence[Sequence[str]], *, title: str) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for i, name in enumerate(rows[0]):
        table.add_column(name, justify="left" if i == 0 else "right", no_wrap=i == 0)
    for row in rows[1:]:
        is_broken = row[-1] == "NO"
        table.add_row(*row, style="bold red" if is_broken else None)
    return table


def _markdown_table(rows: Sequence[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(rows[0]) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in [rows[0], rule, *rows[1:]])


def _html_section(table: TextTable) -> str:
    return f"<h2>{html.escape(table['title'])}</h2>{_html_table(table['rows'])}"


def _html_table(rows: Sequence[Sequence[str]]) -> str:
    def cells(row: Sequence[str], tag: str) -> str:
        marks = {"yes": ' class="ok"', "NO": ' class="bad"'}
        return "".join(f"<{tag}{marks.get(c, '')}>{html.escape(c)}</{tag}>" for c in row)

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows[1:])
    return f"<table><tr>{cells(rows[0], 'th')}</tr>{body}</table>"
