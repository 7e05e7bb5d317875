"""``python -m reference_broker.node --config node.json``: run one node until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from pathlib import Path

from reference_broker.log.errors import LogError
from reference_broker.node.config import ConfigError, NodeConfig, load
from reference_broker.node.links.tls import clients_context, server_context
from reference_broker.node.server import RunningNode
from reference_broker.node.start_problems import StartError, files_problem


def main() -> int:
    """0 after an orderly stop, 1 when the log failed or a port cannot be had, 2 when the configuration is no good."""
    parser = argparse.ArgumentParser(prog="python -m reference_broker.node", description="Run one node of the broker.")
    parser.add_argument("--config", type=Path, required=True, help="node.json of this node")
    parser.add_argument("--log-level", default="INFO", help="Python log level of standard error (default INFO)")
    arguments = parser.parse_args()
    logging.basicConfig(level=arguments.log_level, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        config = load(arguments.config)
        if config.tls is not None:
            server_context(config.tls)  # files that are no good are found before the node touches its directories
        if config.client_tls is not None:
            clients_context(config.client_tls)
        return _run(config)
    except ConfigError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    except LogError as error:
        print(_three_lines(error), file=sys.stderr)  # noqa: T201
        return 1
    except StartError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    except OSError as error:
        print(files_problem(error, config), file=sys.stderr)  # noqa: T201
        return 1


def _three_lines(error: LogError | str) -> str:
    """What, where, what to do: the log's errors have these as lines, a rule that was broken may be one line alone."""
    if str(error).startswith("error: "):
        return str(error)
    what, *rest = (line.strip() for line in str(error).splitlines())
    heads = ("at  ", "fix ")
    return "\n".join([f"error: {what}", *(f"  {head} {line}" for head, line in zip(heads, rest, strict=False))])


def _run(config: NodeConfig) -> int:
    async def run() -> str | None:
        node = RunningNode(config)
        await node.run()
        return node.failure

    try:
        import uvloop
    except ImportError:
        failure = asyncio.run(run())
    else:
        failure = uvloop.run(run())
    if failure:
        # What stopped it is the last thing in its log: the process that started the node reads it there.
        print(_three_lines(failure), file=sys.stderr)  # noqa: T201
    return 1 if failure else 0


if __name__ == "__main__":
    sys.exit(main())
