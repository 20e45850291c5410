"""Create a new pipeline with its own sample data, ready to run."""

from __future__ import annotations

from pathlib import Path

from deltafold.pipelines.declaration.parsing import DeclarationError
from deltafold.pipelines.declaration.values import NAME_RULE, PIPELINE_NAME

_DECLARATION = """\
description: Sales per shop and product
sources:
  sales:
    files:
      path: data/sales # one folder per day: data/sales/day=2024-05-01/*.csv
      format: csv
      schema: id BIGINT, day DATE, shop STRING, product STRING, amount DECIMAL(10,2)
      partition_by: day
  shops:
    files:
      path: data/shops
      format: csv
      schema: shop STRING, city STRING
    invariant: true # it never changes, so a join with it keeps no state
partitions: {kind: daily, start: 2024-05-01}
policy: incremental # auto: recompute if the query cannot be maintained
"""

_QUERY = """\
SELECT c.city,
       s.product,
       count(*) AS sales,
       sum(s.amount) AS revenue,
       max(s.amount) AS largest,
       count(DISTINCT s.day) AS days
FROM sales s
JOIN shops c ON s.shop = c.shop
GROUP BY c.city, s.product
"""

_PROGRAM = """\
// Revenue per city and product, in MRQL; docs/mrql.md has the language.
select < city: city, product: product, sales: count(s), revenue: sum(s.amount), largest: max(s.amount) >
from s in sales, c in shops
where s.shop = c.shop
group by (city, product): (c.city, s.product);
"""

_SHOPS = "shop,city\nn1,Oslo\nn2,Oslo\ns1,Rome\n"
_SALES = {
    "2024-05-01": "id,shop,product,amount\n1,n1,tea,3.20\n2,n2,tea,4.10\n3,s1,coffee,2.50\n4,s1,coffee,2.70\n",
    "2024-05-02": "id,shop,product,amount\n5,n1,coffee,3.90\n6,n1,tea,3.20\n7,s1,tea,1.80\n",
    "2024-05-03": "id,shop,product,amount\n8,n2,coffee,4.40\n9,s1,coffee,2.50\n",
}


def make(name: str, folder: Path, mrql: bool = False) -> Path:
    """Create the pipeline folder/name with sample data, and return its folder. Raises DeclarationError.

    mrql: the query is a program of MRQL, else SQL. Existing files are not changed: a name that is taken is refused.
    """
    if not PIPELINE_NAME.match(name):
        raise DeclarationError(f"pipeline `{name}`: invalid name. {NAME_RULE}.")
    home = folder / name
    if home.exists() or (folder / f"{name}.py").exists():
        raise DeclarationError(f"{home}: it exists already. Choose another name.")
    query = {"query.mrql": _PROGRAM} if mrql else {"query.sql": _QUERY}
    files = {"pipeline.yaml": _DECLARATION, **query, "data/shops/shops.csv": _SHOPS}
    files |= {f"data/sales/day={day}/sales.csv": rows for day, rows in _SALES.items()}
    try:
        for place, text in files.items():
            path = home / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise DeclarationError(f"{home}: it cannot be created ({error.strerror}). Choose another folder.") from error
    return home
