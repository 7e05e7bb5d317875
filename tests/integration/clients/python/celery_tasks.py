"""The tasks of an application on Celery; the broker's address comes from CELERY_BROKER_URL."""

import os
from pathlib import Path

from celery import Celery
from kombu import Exchange, Queue

RESULTS = Path(os.environ["TASK_RESULTS"])
"""A directory: each task that has run leaves a file, with a letter for each time."""

app = Celery("tasks", broker=os.environ["CELERY_BROKER_URL"])
app.conf.update(
    task_queues=[
        Queue("celery", Exchange("celery", type="topic"), "celery", queue_arguments={"x-queue-type": "quorum"})
    ],
    task_default_exchange_type="topic",
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_detect_quorum_queues=True,
    worker_prefetch_multiplier=4,
    broker_transport_options={"confirm_publish": True},
    broker_connection_retry_on_startup=True,
    worker_enable_remote_control=False,
)


@app.task(bind=True, max_retries=3)
def work(self, number):
    """Every seventh task fails once, and is tried again."""
    if number % 7 == 0 and self.request.retries == 0:
        raise self.retry(countdown=0)
    with (RESULTS / str(number)).open("a", encoding="utf-8") as file:
        file.write("x")
