import pytest

from bench.__main__ import main
from bench.scenarios import SCENARIOS


def test_list_names_every_scenario_and_its_question(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    printed = capsys.readouterr().out
    assert {"redis-degraded", "redis-frozen", "redis-loading"} <= SCENARIOS.keys()
    for scenario in SCENARIOS.values():
        assert scenario.name in printed
        assert scenario.question.endswith("?")


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-scenario"],
        ["redis-degraded", "--seconds", "0"],
        ["redis-degraded", "--arrivals", "nan"],
        ["redis-degraded", "--rounds", "0"],
        ["redis-degraded", "--degraded", "3"],
        ["redis-degraded", "--mode", "both"],
    ],
)
def test_bad_arguments_end_with_a_message(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "error:" in capsys.readouterr().err
