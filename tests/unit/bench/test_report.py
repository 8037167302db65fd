import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from bench.record import RunResult, bar
from bench.report import markdown, page, print_tables, table_of, write_json, write_page


@pytest.fixture
def result() -> RunResult:
    read = {"count": 12000, "p50_ms": 0.3, "p90_ms": 8.1, "p99_ms": 11.0, "p999_ms": 14.2}
    return {
        "scenario": "redis-degraded",
        "question": "Is <slow> seen?",
        "mode": "sync",
        "seed": 1,
        "environment": {"python": "3.x", "versions": {"redis": "8.x"}},
        "parameters": {"delay_ms": 8.0, "degraded_endpoint": "127.0.0.1:2"},
        "contenders": [
            {
                "name": "round_robin",
                "operations": 12000,
                "errors": 3,
                "errors_by_type": {"TimeoutError": 3},
                "throughput_per_s": 800.1,
                "read": {**read, "max_ms": 20.0},  # type: ignore[typeddict-item]  # a literal's type is lost in the unpacking
                "write": {"count": 0},
                "by_method": {},
                "share": {"127.0.0.1:1": 0.75, "127.0.0.1:2": 0.25},
                "degraded_share": 0.25,
                "round_p99_ms": [11.0],
                "late_p99_ms": 0.05,
                "curve": [(0.3, 0.5), (11.0, 0.99), (20.0, 1.0)],
                "timeline": [{"at_s": 0.25, "share": {"127.0.0.1:1": 0.75, "127.0.0.1:2": 0.25}}],
                "notes": {"ejections": 2.0},
            },
            {
                "name": "idle",
                "operations": 0,
                "errors": 0,
                "errors_by_type": {},
                "throughput_per_s": 0.0,
                "read": {"count": 0},
                "write": {"count": 0},
                "by_method": {},
                "share": {},
                "round_p99_ms": [],
                "late_p99_ms": 0.0,
                "curve": [],
                "timeline": [],
                "notes": {},
            },
        ],
        "bars": [bar("ratio", 25.0, ">=", 19.0), bar("share", 0.25, "<=", 0.005)],
    }


def test_the_table_has_a_row_per_contender_and_dashes_for_what_is_missing(
    result: RunResult,
) -> None:
    header, stock, idle = table_of(result)
    assert dict(zip(header, stock, strict=True)) == {
        "contender": "round_robin",
        "reads": "12,000",
        "errors": "3",
        "p50 ms": "0.3",
        "p90 ms": "8.10",
        "p99 ms": "11",
        "p99.9 ms": "14.2",
        "max ms": "20",
        "slow share": "25.00%",
        "per second": "800",
        "late ms": "0.05",
    }  # and no column for the ejections, which only one of them counted
    assert dict(zip(header, idle, strict=True))["p99 ms"] == "-"


def test_markdown_has_both_tables(result: RunResult) -> None:
    text = markdown(result)
    assert text.startswith("| contender | reads |")
    assert "| share | 0.25 | <= 0.005 | NO |" in text
    assert "| ratio | 25 | >= 19 | yes |" in text


def test_both_tables_are_printed(result: RunResult) -> None:
    output = io.StringIO()
    print_tables(result, Console(file=output, width=200))
    assert "round_robin" in output.getvalue()
    assert "bars" in output.getvalue()


def test_the_page_is_escaped_and_needs_no_network(result: RunResult, tmp_path: Path) -> None:
    write_page(result, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "Is &lt;slow&gt; seen?" in text
    assert "<script src=" not in text
    assert "<link" not in text
    assert "Plotly.newPlot" in text
    assert text.count("chart-1") >= 1


def test_a_page_without_samples_has_no_charts(result: RunResult) -> None:
    result["contenders"] = result["contenders"][1:]
    result["bars"] = []
    assert "plotly" not in page(result).lower()


def test_the_json_file_holds_the_whole_result(result: RunResult, tmp_path: Path) -> None:
    write_json(result, tmp_path / "out.json")
    read = json.loads((tmp_path / "out.json").read_text())
    assert read["contenders"][0]["degraded_share"] == 0.25
    assert [b["holds"] for b in read["bars"]] == [True, False]
