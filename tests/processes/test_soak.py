"""Under load, with processes that are killed again and again: nothing is lost, nothing is doubled. Run by `--soak`."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.processes.test_processes import Program
from wflab import HookNotFoundError, Lab, WorldUnavailableError

SECONDS = 40
RUNS = 60


@pytest.mark.soak
async def test_workers_are_killed_while_payloads_come_in(url: str, tmp_path: Path) -> None:
    file = tmp_path / "done.txt"
    chance = random.Random(7)
    workers = [Program("work", url, file) for _ in range(3)]
    sent: dict[str, list[int]] = {}
    try:
        async with Lab(url) as lab:
            starter = Program("start_collectors", url, file, RUNS)
            tokens = starter.line().split()
            starter.process.wait(30)
            ends_at = time.monotonic() + SECONDS
            number = 0
            while time.monotonic() < ends_at:
                if chance.random() < 0.02:
                    victim = chance.randrange(len(workers))
                    workers[victim].kill()
                    workers[victim] = Program("work", url, file)
                token = chance.choice(tokens)
                number += 1
                try:
                    await lab.resume_hook(token, number)
                    sent.setdefault(token, []).append(number)
                except (HookNotFoundError, WorldUnavailableError):
                    continue
                await asyncio.sleep(0.005)
            for token in tokens:
                while True:
                    try:
                        await lab.resume_hook(token, -1)
                        break
                    except HookNotFoundError:
                        await asyncio.sleep(0.02)
            for run in lab.runs(limit=RUNS * 2):
                result = await run.return_value(timeout=120)
                assert result["got"] == sent.get(result["token"], [])
    finally:
        for worker in workers:
            worker.kill()
    attempts = Counter(tuple(line.split()) for line in file.read_text().splitlines())
    assert set(attempts.values()) == {1}, "an attempt ran twice"
    with sqlite3.connect(url.removeprefix("sqlite:///")) as database:
        query = "select run_id, max(position), count(*) from events group by run_id"
        assert all(last == count for _, last, count in database.execute(query))
        query = "select count(*) from runs where status <> 'completed'"
        assert database.execute(query).fetchone() == (0,)
        assert database.execute("select count(*) from messages").fetchone() == (0,)
    database.close()
