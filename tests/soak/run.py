"""Run the soak: draw an operation, run it, perhaps kill it or run two at once, check the readers' answers, count.

After every operation, whether it succeeded, was killed or was refused, readers must see the batch answer at the
versions of their view's last epoch.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable
from random import Random

from delta.exceptions import DeltaConcurrentModificationException

from deltafold.algebra.errors import DeltafoldError
from tests.crash.points import Killed, watched
from tests.soak import child, work
from tests.soak.soak_sandbox import BRANCH, SoakSandbox, chain
from tests.soak.steps import WRITES, Step, drawn
from tests.soak.tally import Tally, gone
from tests.spark.machine import PROJECT

KILLED, REFUSED = "killed", "refused"
SETTLED = 3.0  # seconds after which the Spark of a killed process has ended what it was told
GONE = 30.0  # seconds after which it has, also on a busy machine
IMPATIENT = 0.3  # seconds


class FaultError(Exception):
    """A fault of the product."""


class Soak:
    """Random operations on one world; host: the file of the Spark that other processes use, None: there are none."""

    def __init__(
        self, world: SoakSandbox, seed: int, host: str | None = None, say: Callable[[str], None] = print
    ) -> None:
        self.world, self.seed, self.tally = world, seed, Tally()
        self._host, self._say, self._killed = host, say, 0.0
        self._last: deque[str] = deque(maxlen=25)
        self._back = set[str]()  # the views that went back, or were to

    def run(self, operations: int = sys.maxsize, until: float = float("inf")) -> Tally:
        """So many operations, or until a time; then everything is refreshed and compared once more."""
        number = 0
        try:
            while number < operations and time.monotonic() < until:
                number += 1
                self.step(drawn(self.seed, number, self.world, self._host is not None))
            self.end()
        except Exception as error:
            self.tally.faults.append(str(error) if isinstance(error, FaultError) else traceback.format_exc())
            self._say(f"seed {self.seed}; the last operations:")
            for line in self._last:
                self._say(f"  {line}")
        return self.tally

    def step(self, step: Step) -> bool:
        """One operation, and what must hold after it; whether it came to its end."""
        began = time.monotonic()
        self._last.append(str(step))
        self.tally.operations[step.name] += 1
        self._back |= {step.on.partition(BRANCH)[0]} if step.name in work.BACKWARDS else set()
        outcome = self._done(step)
        self._last[-1] += f": {outcome} ({time.monotonic() - began:.1f} s)"
        self._say(self._last[-1])
        ended = outcome != KILLED and not outcome.startswith(REFUSED)
        self.tally.refreshes += ended and step.name in work.REFRESHES
        if ended and step.name in work.WHOLE and (found := self.world.unlanded()):
            raise FaultError(found)
        for view in step.views:
            if view in self.world.views:  # a branch may just have gone
                self._compare(view)
        return ended

    def end(self) -> None:
        """Everything is landed, refreshed and compared: nothing is lost, and nothing is left to do."""
        self.step(Step(0, "land"))
        for view in self.world.views:
            # one refusal may be, for versions that are gone or a write of the dead
            if not self.step(Step(0, "refresh", view)) and not self.step(Step(0, "refresh", view)):
                raise FaultError(f"{view} cannot be refreshed")
            if not self.world.view(view).current:
                raise FaultError(f"{view} has something left to do")
            if not (found := self.world.view(view).verify()).ok:
                raise FaultError(found.sentence)

    def _done(self, step: Step) -> str:
        """Do it; what came of it in words."""
        if step.name in WRITES:
            return self._written(step)
        if step.name == "maintain":  # nobody vacuums what is being written
            time.sleep(max(0.0, self._killed + SETTLED - time.monotonic()))
        if step.beside:
            return self._two(step)
        if step.how != "not" and self._host is not None:
            return self._ended(self._started(step, step.name, step.on), step)
        return self._here(step)

    def _written(self, step: Step) -> str:
        """A user's write; again if the Spark of a killed process was still writing the same table."""
        write = WRITES[step.name][1]
        while True:
            try:
                return write(self.world, step.on, Random(step.seed))
            except DeltaConcurrentModificationException:
                if time.monotonic() > self._killed + GONE:
                    raise
                time.sleep(SETTLED)

    def _here(self, step: Step, patience: float | None = None) -> str:
        """In this process, where an exception stands in for a kill."""
        try:
            with watched(step.stop):
                return work.do(self.world, step.name, step.on, step.seed, step.merged, patience)
        except Killed:
            return self._dead()
        except DeltafoldError as error:
            return self._refused(step, str(error))

    def _two(self, step: Step) -> str:
        """Another process refreshes while this one works: one waits for the other, or yields."""
        other = self._started(step, "refresh", step.beside)
        mine = self._here(step, IMPATIENT if Random(step.seed).random() < 0.5 else None)
        return f"{mine} | {self._ended(other, step)}"

    def _started(self, step: Step, name: str, view: str) -> subprocess.Popen[str]:
        told = {"name": name, "view": view, "seed": step.seed, "merged": step.merged}
        told |= {"how": step.how, "stop": step.stop}
        host = "own" if step.own else str(self._host)
        command = [sys.executable, "-m", "tests.soak.child", host, str(self.world.folder), json.dumps(told)]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=PROJECT, stdout=pipe, stderr=pipe, text=True)

    def _ended(self, process: subprocess.Popen[str], step: Step) -> str:
        said, complaint = process.communicate()
        if process.returncode == -signal.SIGKILL and step.how != "not":
            return self._dead()
        if process.returncode == child.REFUSED:
            return self._refused(step, said.strip())
        if process.returncode:
            raise FaultError(f"{step} ended with {process.returncode}: {complaint[-3000:]}")
        return said.strip()

    def _dead(self) -> str:
        self.tally.kills += 1
        self._killed = time.monotonic()
        return KILLED

    def _refused(self, step: Step, sentence: str) -> str:
        """Count a refusal; where versions are gone, the views are rebuilt, the lowest of the chain first."""
        back = any(view.partition(BRANCH)[0] in self._back for view in step.views)
        if not self.tally.refused(sentence, self._killed > 0, back):
            raise FaultError(f"{step} was refused: {sentence}")
        if gone(sentence):
            for view in chain(step.on):
                self._say(f"  {self.world.view(view).rebuild().sentence}")
        return f"{REFUSED}: {sentence}"

    def _compare(self, view: str) -> None:
        """What readers see is the batch answer."""
        found = self.world.wrong(view)
        if found:
            raise FaultError(found)
        self.tally.comparisons += found is not None
        self.tally.incomparable += found is None
