"""A Celery application: 1,000 tasks, some of which are tried again, and a worker that is killed in the middle."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TASKS = 1_000
PATIENCE_S = 120


def worker():
    command = [sys.executable, "-m", "celery", "-A", "celery_tasks", "worker"]
    options = ["--concurrency=2", "--loglevel=WARNING", "--without-gossip", "--without-mingle"]
    return subprocess.Popen([*command, *options], start_new_session=True, stdout=subprocess.DEVNULL)


def wait_for(results, count, process):
    deadline = time.monotonic() + PATIENCE_S
    while (ran := len(list(Path(results).iterdir()))) < count:
        assert process.poll() is None, "the worker ended"
        assert time.monotonic() < deadline, f"only {ran} of {count} tasks ran"
        time.sleep(0.05)


def kill(process):
    """The worker and the processes of its pool, without a chance to say good-bye."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, 9)
    process.wait()


def tasks_run_although_a_worker_is_killed(results):
    from celery_tasks import work

    for number in range(TASKS):
        work.delay(number)
    first = worker()
    try:
        wait_for(results, TASKS // 4, first)
    finally:
        kill(first)
    second = worker()
    try:
        wait_for(results, TASKS, second)
    finally:
        kill(second)


with tempfile.TemporaryDirectory() as folder:
    os.environ |= {"CELERY_BROKER_URL": sys.argv[1], "TASK_RESULTS": folder}
    tasks_run_although_a_worker_is_killed(folder)
    print("ok", tasks_run_although_a_worker_is_killed.__name__)
