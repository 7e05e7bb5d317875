"""The list of cases: chance, seeded by the case's own number, says what befalls which files of which nodes."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.damage.files import DAMAGES, FOR_FOLDERS, SHARED, Target, following, targets
from tests.damage.templates import KINDS, LAGGING, NODES, Kind, Template

NOTHING: Final = "nothing"
_NOTHING_SHARE: Final = 0.04
_SHARED_SHARE: Final = 0.04
_FOLDER_SHARE: Final = 0.05
_WAL_WEIGHT: Final = 2.0
_TRIES: Final = 200


@dataclass(frozen=True, slots=True)
class Case:
    """A case before it meets files. ``nodes`` are damaged; empty: what all nodes share, or nothing at all.
    ``order`` is the order of the starts; empty: all at once. ``only`` are words of the classes of files and folders
    that may be damaged."""

    seed: int
    number: int
    kind: Kind
    nodes: tuple[str, ...]
    order: tuple[str, ...]
    does_nothing: bool
    only: str = ""

    def chance(self, *what: object) -> random.Random:
        """Chance for one thing in this case: the same at each call."""
        return random.Random("/".join(map(str, (self.seed, self.number, *what))))


@dataclass(slots=True)
class Damage:
    """What befell the files. ``changed`` has each changed path and its words; paths are relative to the cluster's
    directory."""

    target: str = NOTHING
    change: str = ""
    changed: dict[str, str] = field(default_factory=dict)


def case(seed: int, number: int, nodes: int = 0, only: str = "") -> Case:
    """A case of the list; ``nodes``: as many nodes are damaged, 0: mostly one, sometimes two or three."""
    chance = random.Random(f"{seed}/{number}")
    kind = KINDS[number % len(KINDS)]
    count = nodes if nodes else chance.choices((1, 2, 3), (80, 15, 5))[0]
    damaged = tuple(sorted(chance.sample(NODES, count)))
    share = chance.random()
    does_nothing = share < _NOTHING_SHARE
    is_shared = only in SHARED or (not nodes and not only and share > 1 - _SHARED_SHARE)
    if does_nothing or is_shared:
        damaged = ()
    first = tuple(dict.fromkeys((*damaged, LAGGING, *NODES)))
    return Case(seed, number, kind, damaged, first if chance.random() < 0.5 else (), does_nothing, only)


def inflict(it: Case, template: Template) -> Damage:
    """Damage the directory of the template as the case says: the same to the same class of file on each node."""
    if it.does_nothing:
        return Damage()
    for turn in range(_TRIES):
        pools = [_pool(it, template.directory, node) for node in it.nodes or ("",)]
        kind, change = _drawn(it, turn, pools[0])
        chance, done = it.chance(turn, "files"), Damage(kind, change)
        for target in [chance.choice(same) for pool in pools if (same := [each for each in pool if each.kind == kind])]:
            _change(target, change, template, done, chance)
        if len(done.changed) >= len(pools):
            return done
        template.lay_out()
    raise AssertionError(f"nothing in {template.directory} can be damaged")


def _pool(it: Case, directory: Path, node: str) -> list[Target]:
    found = [each for each in targets(directory, node) if it.only in each.kind]
    assert found, f"nothing of {node or 'all nodes'} is a {it.only!r}"
    return found


def _drawn(it: Case, turn: int, pool: Sequence[Target]) -> tuple[str, str]:
    """A class and a damage. However many files a class has, it is as likely as others; the WAL is likelier.

    Each class draws a number, and the highest one wins. So a class that another template does not have changes nothing
    in the cases of the other classes.
    """
    wants_folder = it.chance(turn, "folder").random() < _FOLDER_SHARE
    kinds = {each.kind for each in pool if each.is_folder == wants_folder} or {each.kind for each in pool}
    kind = max(kinds, key=lambda kind: it.chance(turn, kind).random() ** (1 / _weight(kind)))
    is_folder = any(each.kind == kind and each.is_folder for each in pool)
    return kind, it.chance(turn, "damage").choice(FOR_FOLDERS if is_folder else tuple(DAMAGES))


def _weight(kind: str) -> float:
    return _WAL_WEIGHT if kind.startswith("wal ") else 1.0


def _change(target: Target, change: str, template: Template, done: Damage, chance: random.Random) -> None:
    path = template.directory / target.path
    if words := DAMAGES[change](path, template.stale / target.path, chance):
        beside = following(path) if change == "duplicate" else None
        changed = str(beside.relative_to(template.directory)) if beside else target.path
        done.changed[changed] = words if beside is None else f"a copy of {path.name}"


def undo(damage: Damage, template: Template) -> None:
    """Give the damaged files back what they held, and leave all others as the starts have left them."""
    for name in damage.changed:
        path, whole = template.directory / name, template.saved / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        if whole.is_dir():
            shutil.copytree(whole, path)
        elif whole.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(whole, path)


def described(it: Case, damage: Damage) -> list[str]:
    """The case in words."""
    order = ", ".join(it.order) if it.order else "all at once"
    lines = [f"{it.kind}; starts: {order}"]
    return lines + [f"{name}: {words}" for name, words in damage.changed.items()]
