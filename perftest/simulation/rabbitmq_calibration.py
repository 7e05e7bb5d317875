"""The calibration of the model of RabbitMQ, as a file: costs, and the machine on which they were measured."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from perftest.exits import CliError, Exit
from perftest.rabbitmq_model.costs import RabbitCosts
from perftest.simulation.calibration import CalibrationFile, parsed

SHIPPED: Final = Path(__file__).with_name("rabbitmq-3.10.json")
"""The calibration that is used unless another one is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RabbitCalibration(CalibrationFile):
    """CPU costs of RabbitMQ's processes. ``measured_on`` says which machine, when, and with which versions; ``fit`` how
    well the figures describe it."""

    costs: RabbitCosts
    measured_on: dict[str, Any] = field(default_factory=dict)
    fit: dict[str, Any] = field(default_factory=dict)


def read(path: Path) -> RabbitCalibration:
    """The calibration in a file. Raises CliError."""
    fix = "name a file that `perftest simulate --broker rabbitmq-3.10 --calibrate FILE` wrote"
    plain = parsed(path, fix)
    costs = plain.get("costs") if isinstance(plain, dict) else None
    names = {each.name for each in fields(RabbitCosts)}
    if not isinstance(costs, dict) or set(costs) != names or any(type(value) is not int for value in costs.values()):
        what = f"not a calibration of RabbitMQ: costs must have whole numbers for {', '.join(sorted(names))}"
        raise CliError(what, str(path), fix, Exit.USAGE)
    return RabbitCalibration(
        costs=RabbitCosts(**costs), measured_on=plain.get("measured_on", {}), fit=plain.get("fit", {})
    )
