"""The product that the broker tells its clients to be: ``product``, ``version`` and ``platform`` of the server
properties.

Some clients look at these and behave differently. kombu, and so Celery, trusts a prefetch of the whole channel only if
the product is RabbitMQ; a worker with tasks for later stands still otherwise. Others refuse a version below 3. So a
node can call itself RabbitMQ, of the version whose behaviour it copies. ``platform`` tells its real product.
"""

from __future__ import annotations

import sys
from typing import Final, NamedTuple

import reference_broker

_PYTHON: Final = f"CPython {sys.version.split()[0]}"


class Product(NamedTuple):
    """Three of the server properties."""

    product: str
    version: str
    platform: str


REFERENCE: Final = Product("reference_broker", reference_broker.__version__, _PYTHON)
_COPY: Final = Product("RabbitMQ", "3.10.8", f"reference_broker {reference_broker.__version__} on {_PYTHON}")
PRODUCTS: Final = {each.product: each for each in (REFERENCE, _COPY)}
PRODUCT_NAMES: Final = " or ".join(PRODUCTS)
