"""`python -m tests.benchmarks [--quick] [--json FILE]`: a table, and JSON lines."""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.benchmarks import work
from wflab import Lab


async def measure(folder: Path, quick: bool) -> list[dict[str, Any]]:
    figures: list[dict[str, Any]] = []

    def note(figure: dict[str, Any], synchronous: str, raw: float) -> None:
        per_s = figure.get("per_s")
        share = {} if per_s is None or "steps" not in figure["work"] else {"of_raw": per_s / raw}
        figures.append({**figure, "synchronous": synchronous, **share})

    for synchronous in ("NORMAL", "FULL"):
        raw = work.raw_commits_per_s(folder, synchronous)
        note({"work": "raw limit: one row a commit", "n": 5_000, "per_s": raw}, synchronous, raw)
        url = f"sqlite:///{folder / f'{synchronous}.db'}"
        async with Lab(url, synchronous=synchronous, max_events=work.UNLIMITED) as lab:
            await work.steps_in_a_row(lab, 200)  # warm
            sizes = (100, 1_000) if quick or synchronous == "FULL" else (100, 1_000, 20_000)
            for size in sizes:
                note(await work.steps_in_a_row(lab, size), synchronous, raw)
            note(await work.steps_at_once(lab, 1_000), synchronous, raw)
            note(await work.one_step_runs(lab, 200 if quick else 1_000), synchronous, raw)
            note(await work.starts_on_one_key(lab, 25 if quick else 125), synchronous, raw)
            note(await work.resume_to_result(lab, 50 if quick else 200), synchronous, raw)
    note(await work.cold_replay(folder, 3_000 if quick else 10_000), "NORMAL", raw)
    note(await work.cost_of_a_step(folder, 2_000 if quick else 10_000), "NORMAL", raw)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller sizes: to see that it runs")
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(measure(Path(folder), arguments.quick))
    columns = ["work", "n", "per_s", "of_raw", "us_each", "commits_per_step", "p50_ms", "p99_ms", "ms"]
    columns += ["bytes_on_disk", "bytes_in_memory", "synchronous"]
    table = Table(title="wflab on SQLite")
    for column in columns:
        table.add_column(column, justify="left" if column in ("work", "synchronous") else "right")
    for figure in figures:
        table.add_row(*(_told(column, figure.get(column)) for column in columns))
    Console(width=180).print(table)
    lines = "\n".join(json.dumps(figure) for figure in figures)
    print(lines)
    if arguments.json is not None:
        arguments.json.write_text(lines + "\n")


def _told(column: str, value: Any) -> str:
    if value is None:
        return ""
    if column == "of_raw":
        return f"1/{1 / value:.1f}"
    if isinstance(value, str):
        return value
    return f"{value:,.3g}" if value < 100 else f"{value:,.0f}"


main()
