"""Write pipelines into folders, as users do."""

from __future__ import annotations

from pathlib import Path

MINIMAL = """\
sources:
  sales:
    files:
      path: data
      format: csv
      schema: id INT, day DATE
"""
PARTITIONED = MINIMAL + "      partition_by: day\n"
SQL = "SELECT count(*) AS n FROM sales"


def write(folder: Path, name: str = "shop", declaration: str = MINIMAL, **queries: str) -> Path:
    """Writes folder/name with its pipeline.yaml and its queries (sql="...", py="...", by default one of SQL)."""
    home = folder / name
    home.mkdir(parents=True)
    (home / "pipeline.yaml").write_text(declaration, encoding="utf-8")
    for kind, text in (queries or {"sql": SQL}).items():
        (home / f"query.{kind}").write_text(text, encoding="utf-8")
    return home
