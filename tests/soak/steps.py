"""Draw one operation of a soak: the same for the same seed and number in the same sandbox."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tests.soak import work, writes
from tests.soak.soak_sandbox import SoakSandbox, chain

KILLED, OWN_SPARK, AT_ONCE, MERGED = 0.3, 0.06, 0.12, 0.5  # how often
POINTS = (4, 8, 16, 30)  # a kill is drawn below one of these: early points are in every run, late ones in chains alone
WRITES = {**writes.ON_TABLES, **writes.ON_FILES}
WEIGHTS = {name: weight for deeds in (WRITES, work.WORK) for name, (weight, _) in deeds.items()}


@dataclass(frozen=True)
class Step:
    """One operation: its name, the view or table it is about, its draw, and how it ends, if it is not let end.

    how: `not`, `kill` at the point `stop`, or `during` the write that begins there; own: in a Spark of its own;
    beside: the view that another process refreshes at the same time.
    """

    number: int
    name: str
    on: str = "sales"
    seed: str = ""
    merged: bool = False
    how: str = "not"
    stop: int | None = None
    own: bool = False
    beside: str = ""

    def __str__(self) -> str:
        end = "" if self.how == "not" else f", {self.how} at point {self.stop}{' of a Spark of its own' * self.own}"
        beside = f", beside a refresh of {self.beside}" if self.beside else ""
        return f"{self.number} {self.name} {self.on}{', merged' * self.merged}{end}{beside}"

    @property
    def views(self) -> tuple[str, ...]:
        """The views whose readers may see something else afterwards."""
        of_views = self.name in work.WORK and self.name not in work.OF_FILES
        found = [*(chain(self.on) if of_views else ()), *(chain(self.beside) if self.beside else ())]
        return tuple(dict.fromkeys(found))


def drawn(seed: int, number: int, world: SoakSandbox, processes: bool) -> Step:
    """The operation of a number; processes: whether others than this one may work too."""
    draw = Random(f"{seed} {number}")
    (name,) = draw.choices(list(WEIGHTS), list(WEIGHTS.values()))
    own = str(draw.random())
    if name in WRITES:
        return Step(number, name, draw.choice(world.tables) if name in writes.ON_TABLES else "sales", own)
    view = "sales" if name in work.OF_FILES else draw.choice(world.views)
    merged, chance = draw.random() < MERGED, draw.random()
    if chance < KILLED:
        how = draw.choice(("kill", "kill", "during")) if processes else "kill"
        stop = draw.randrange(draw.choice(POINTS))
        return Step(number, name, view, own, merged, how, stop, processes and draw.random() < OWN_SPARK)
    if processes and name in work.REFRESHES and chance < KILLED + AT_ONCE:
        return Step(number, name, view, own, merged, beside=draw.choice(chain(view)))
    return Step(number, name, view, own, merged)
