"""The benchmarks run, and what does not depend on the machine's speed holds."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks import work
from wflab import Lab


async def test_a_sequential_step_costs_one_commit(url: str) -> None:  # decision 3
    async with Lab(url) as lab:
        figure = await work.steps_in_a_row(lab, 200)
    # Starting the run and ending it come on top.
    assert 1.0 <= figure["commits_per_step"] <= 1.02


async def test_every_workload_runs(url: str, tmp_path: Path) -> None:
    async with Lab(url) as lab:
        assert (await work.steps_at_once(lab, 50))["per_s"] > 0
        assert (await work.one_step_runs(lab, 10))["per_s"] > 0
        assert (await work.starts_on_one_key(lab, 3))["per_s"] > 0
        assert (await work.resume_to_result(lab, 3))["p50_ms"] > 0
    assert (await work.cold_replay(tmp_path, 90))["n"] >= 90
    assert (await work.cost_of_a_step(tmp_path, 100))["bytes_on_disk"] > 0
    assert work.raw_commits_per_s(tmp_path, "NORMAL", 50) > 0
