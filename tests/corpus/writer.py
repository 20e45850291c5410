"""Another writer of a source, with the few verbs of random histories."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

from tests.sandbox import DeltaSandbox, Sandbox


@dataclass(frozen=True)
class Writer:
    """Writes one table of a sandbox."""

    sandbox: Sandbox
    name: str

    def write(self, rows: DataFrame, mode: str) -> None:
        self.sandbox.write(self.name, rows, mode)

    def update(self, values: dict[str, str], where: str) -> None:
        self._sql(f"update {{t}} set {assignments(values)} where {where}")

    def delete(self, where: str) -> None:
        self._sql(f"delete from {{t}} where {where}")

    def copy(self, where: str) -> None:
        self._sql(f"insert into {{t}} select * from {{t}} where {where} limit 9")

    def optimize(self) -> None:
        self._sql("optimize {t}")

    def merge(self, values: dict[str, str], where: str) -> None:
        """A MERGE that deletes, updates and inserts; in memory what comes of its matched clauses."""
        if not isinstance(self.sandbox, DeltaSandbox):
            self.delete(f"({where}) and k = 1")
            return self.update(values, where)
        source = f"select distinct u, u + 1000000 * (u % 2) as other from {{t}} where {where}"
        return self._sql(
            f"merge into {{t}} e using ({source}) n on e.u = n.other "
            f"when matched and k = 1 then delete when matched then update set {assignments(values)} "
            "when not matched then insert (k, u, v) values (1, n.other, 0.5)"
        )

    def restore(self, back: int) -> None:
        """What the table was some versions ago, or at first."""
        latest = self.sandbox.table(self.name).version() or 0
        self._sql(f"restore table {{t}} to version as of {max(0, latest - back)}")

    def rows(self) -> DataFrame:
        return self.sandbox.read("select * from {t}".replace("{t}", f"{{{self.name}}}"))

    def _sql(self, text: str) -> None:
        self.sandbox.sql(text.replace("{t}", f"{{{self.name}}}"))


def assignments(values: dict[str, str]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())
