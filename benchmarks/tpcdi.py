"""A warehouse in twelve datasets after TPC-DI: dimensions with histories, facts over them, three batches.

The schema and the transformations are a part of TPC-DI's, and the data are made here, like those of its generator: the
first batch has the history of 1,000 days, the second and the third have a day each, with new versions of customers,
accounts, companies and prospects. Sources only grow, as files of events do there, but for the prospects, which each
batch merges. After each batch all datasets are refreshed by one run, and then recomputed. Published for the whole of
TPC-DI, over all batches: 0.65 for Databricks' Enzyme, 1.84 to 2.21 for openivm-spark.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.contest import Contest
from benchmarks.projects import Datasets
from deltafold.pipelines.project import RefreshPolicy
from deltafold.spark.cache import cache_folder
from deltafold.spark.session import start

SCALES = [3]
BATCHES = 3
DAYS = 1_000  # of history
ZERO = "DATE'2015-01-01'"
FAR = "DATE'9999-12-31'"
# by scale factor, in the first batch
COMPANIES, SECURITIES, CUSTOMERS, TRADES = 50, 80, 500, 130_000
BROKERS, INDUSTRIES = 100, 20
STATUSES = ("SBMT", "PNDG", "CMPT", "CNCL", "ACTV", "INAC")
TYPES = ("TMB", "TMS", "TSL", "TLS", "TLB")

DATASETS = {
    "dim_broker": "SELECT employee_id AS broker_id, manager_id, name, office FROM hr WHERE job_code = 314",
    "dim_company": f"""SELECT c.cik AS company_id, c.name, i.name AS industry, c.rating, c.country,
        c.posted AS effective,
        coalesce(lead(c.posted) OVER (PARTITION BY c.cik ORDER BY c.posted), {FAR}) AS ended
        FROM companies c JOIN industries i ON c.industry = i.industry""",
    "dim_security": f"""WITH versions AS (
          SELECT *, coalesce(lead(posted) OVER (PARTITION BY symbol ORDER BY posted), {FAR}) AS ended FROM securities)
        SELECT s.symbol, s.issue, s.name, s.shares, c.company_id, greatest(s.posted, c.effective) AS effective,
          least(s.ended, c.ended) AS ended
        FROM versions s JOIN dim_company c ON s.cik = c.company_id AND s.posted < c.ended AND s.ended > c.effective""",
    "financial": """SELECT c.company_id, f.year, f.quarter, f.revenue, f.earnings, f.shares
        FROM financials f
        JOIN dim_company c ON f.cik = c.company_id AND f.posted >= c.effective AND f.posted < c.ended""",
    "dim_customer": f"""SELECT c.customer_id, c.status, c.name, c.tier, c.city, r.rate AS tax_rate, c.day AS effective,
        coalesce(lead(c.day) OVER (PARTITION BY c.customer_id ORDER BY c.day), {FAR}) AS ended
        FROM customer_events c LEFT JOIN tax_rates r ON c.tax = r.tax""",
    "dim_account": f"""WITH versions AS (
          SELECT *, coalesce(lead(day) OVER (PARTITION BY account_id ORDER BY day), {FAR}) AS ended FROM account_events)
        SELECT a.account_id, a.status, a.description, b.broker_id, c.customer_id, c.tier,
          greatest(a.day, c.effective) AS effective, least(a.ended, c.ended) AS ended
        FROM versions a
        JOIN dim_customer c ON a.customer_id = c.customer_id AND a.day < c.ended AND a.ended > c.effective
        LEFT JOIN dim_broker b ON a.broker_id = b.broker_id""",
    "dim_trade": """WITH trades AS (
          SELECT trade_id, min(day) AS created, max(CASE WHEN status IN ('CMPT', 'CNCL') THEN day END) AS closed,
            max_by(struct(status, type, cash, symbol, quantity, bid, account_id, price, fee, commission), step) AS last
          FROM trade_events GROUP BY trade_id)
        SELECT t.trade_id, t.created, t.closed, s.name AS status, y.name AS type, t.last.cash, t.last.quantity,
          t.last.bid, t.last.price, t.last.fee, t.last.commission, e.symbol, e.company_id, a.account_id, a.customer_id,
          a.broker_id
        FROM trades t JOIN statuses s ON t.last.status = s.status JOIN types y ON t.last.type = y.type
        JOIN dim_security e ON t.last.symbol = e.symbol AND t.created >= e.effective AND t.created < e.ended
        JOIN dim_account a ON t.last.account_id = a.account_id AND t.created >= a.effective AND t.created < a.ended""",
    "fact_holdings": """SELECT h.holding_id, h.trade_id, t.customer_id, t.account_id, t.symbol, t.company_id, t.closed,
        t.price, h.after AS quantity
        FROM holdings h JOIN dim_trade t ON h.trade_id = t.trade_id""",
    "fact_cash_balances": """WITH days AS (
          SELECT account_id, day, sum(amount) AS amount FROM cash GROUP BY account_id, day)
        SELECT d.account_id, a.customer_id, d.day,
          sum(d.amount) OVER (PARTITION BY d.account_id ORDER BY d.day ROWS UNBOUNDED PRECEDING) AS balance
        FROM days d JOIN dim_account a ON d.account_id = a.account_id AND d.day >= a.effective AND d.day < a.ended""",
    "fact_watches": """WITH watches AS (
          SELECT customer_id, symbol, min(CASE WHEN action = 'ACTV' THEN day END) AS placed,
            max(CASE WHEN action = 'CNCL' THEN day END) AS removed
          FROM watch_events GROUP BY customer_id, symbol)
        SELECT w.*, c.tier, s.company_id FROM watches w
        JOIN dim_customer c ON w.customer_id = c.customer_id AND w.placed >= c.effective AND w.placed < c.ended
        JOIN dim_security s ON w.symbol = s.symbol AND w.placed >= s.effective AND w.placed < s.ended""",
    "fact_market_history": """SELECT m.symbol, m.day, m.close, m.high, m.low, m.volume, s.company_id,
          max(m.high) OVER trailing AS high_year, min(m.low) OVER trailing AS low_year
        FROM daily_market m
        JOIN dim_security s ON m.symbol = s.symbol AND m.day >= s.effective AND m.day < s.ended
        WINDOW trailing AS (PARTITION BY m.symbol ORDER BY m.day ROWS BETWEEN 251 PRECEDING AND CURRENT ROW)""",
    "dim_prospect": f"""SELECT p.agency_id, p.name, p.city, p.income, p.cars, p.income > 150000 AS is_wealthy,
        c.customer_id IS NOT NULL AS is_customer
        FROM prospects p LEFT JOIN dim_customer c ON p.name = c.name AND c.ended = {FAR} AND c.status = 'ACTV'""",
}  # fmt: skip
EVENTS = (
    "companies", "securities", "financials", "customer_events", "account_events", "trade_events", "holdings", "cash",
    "watch_events", "daily_market",
)  # fmt: skip
FIXED = ("hr", "industries", "tax_rates", "statuses", "types")
TABLES = (*EVENTS, *FIXED, "prospects")


def spread(salt: int, below: object) -> str:
    """Return a pseudorandom number of a row, from 0."""
    return f"CAST(pmod(xxhash64(id, {salt}), {below}) AS INT)"


def on_day(number: object) -> str:
    """Return the date of a day, from 0."""
    return f"date_add({ZERO}, CAST({number} AS INT))"


def amount(salt: int, most: int) -> str:
    """Return a pseudorandom amount of a row."""
    return f"CAST({spread(salt, most * 100)} / 100 AS DECIMAL(12, 2))"


def fixed_tables(spark: SparkSession) -> dict[str, DataFrame]:
    """Return the tables that no batch changes."""
    return {
        "hr": spark.range(BROKERS * 3).selectExpr(
            "id AS employee_id", "id % 10 AS manager_id", "concat('employee ', id) AS name",
            "concat('office ', id % 7) AS office", "if(id % 3 = 0, 314, 100) AS job_code"),
        "industries": spark.range(INDUSTRIES).selectExpr(
            "CAST(id AS INT) AS industry", "concat('industry ', id) AS name"),
        "tax_rates": spark.range(50).selectExpr("CAST(id AS INT) AS tax", "CAST(id / 100 AS DECIMAL(6, 4)) AS rate"),
        "statuses": spark.createDataFrame([(name, name.lower()) for name in STATUSES], "status STRING, name STRING"),
        "types": spark.createDataFrame([(name, name.lower()) for name in TYPES], "type STRING, name STRING"),
    }  # fmt: skip


def event_tables(spark: SparkSession, scale: float, batch: int) -> dict[str, DataFrame]:
    """Return the rows that a batch appends to each table of events; batch 0 has the history, others a day each."""
    day = on_day(f"id % {DAYS}" if batch == 0 else f"{DAYS + batch - 1}")
    trades, customers = int(TRADES * scale), int(CUSTOMERS * scale)
    companies, securities = int(COMPANIES * scale), int(SECURITIES * scale)
    symbol = f"concat('S', {spread(7, securities)})"

    def rows(history: int, daily: int) -> DataFrame:
        """Return numbers: those of the history, or of a day after it."""
        first = 0 if batch == 0 else history + (batch - 1) * daily
        return spark.range(first, first + (history if batch == 0 else daily), 1, 2)

    def versions(entities: int, changed: int) -> DataFrame:
        """Return a row for each entity (`e`) from day 0 and some again at a later day, or those that a day changes."""
        if batch:
            return rows(entities, changed).selectExpr(
                "*", f"CAST(id * 7919 % {entities} AS INT) AS e", f"{day} AS posted"
            )
        first = spark.range(entities).selectExpr("*", "CAST(id AS INT) AS e", f"{ZERO} AS posted")
        more = spark.range(entities, entities * 3 // 2).selectExpr(
            "*", f"CAST(id - {entities} AS INT) AS e", f"{on_day(f'100 + id % ({DAYS} - 100)')} AS posted"
        )
        return first.unionByName(more)

    trade = rows(trades, max(1, trades // DAYS)).selectExpr(
        "id AS trade_id",
        f"element_at(array({', '.join(map(repr, TYPES))}), {spread(2, len(TYPES))} + 1) AS type",
        "id % 2 = 0 AS cash",
        f"{symbol} AS symbol",
        f"{spread(3, 900)} + 10 AS quantity",
        f"{amount(4, 100)} AS bid",
        f"CAST({spread(5, customers * 2)} AS BIGINT) AS account_id",
        f"{amount(6, 100)} AS price",
        f"{amount(8, 10)} AS fee",
        f"{amount(9, 20)} AS commission",
        f"{day} AS day",
    )
    return {
        "companies": versions(companies, max(1, companies // 100)).selectExpr(
            "CAST(e AS BIGINT) AS cik", "concat('company ', e) AS name", f"{spread(2, INDUSTRIES)} AS industry",
            f"concat('A', {spread(3, 5)}) AS rating", "concat('country ', e % 9) AS country", "posted"),
        "securities": versions(securities, max(1, securities // 100)).selectExpr(
            "concat('S', e) AS symbol", "if(e % 3 = 0, 'PREF', 'COMMON') AS issue", "concat('security ', e) AS name",
            f"{spread(2, 10**6)} AS shares", f"CAST(e % {companies} AS BIGINT) AS cik", "posted"),
        "financials": rows(companies * 12, max(1, companies // 60)).selectExpr(
            f"CAST(id % {companies} AS BIGINT) AS cik", f"CAST(2015 + id DIV {companies * 4} AS INT) AS year",
            f"CAST(id DIV {companies} % 4 + 1 AS INT) AS quarter", f"{amount(2, 10**6)} AS revenue",
            f"{amount(3, 10)} AS earnings", f"{spread(4, 10**6)} AS shares", f"{day} AS posted"),
        "customer_events": versions(customers, max(1, customers // 100)).selectExpr(
            "CAST(e AS BIGINT) AS customer_id", f"if({spread(2, 20)} = 0, 'INAC', 'ACTV') AS status",
            "concat('person ', e) AS name", f"{spread(3, 3)} + 1 AS tier", f"concat('city ', {spread(4, 90)}) AS city",
            f"{spread(5, 50)} AS tax", "posted AS day"),
        "account_events": versions(customers * 2, max(1, customers // 50)).selectExpr(
            "CAST(e AS BIGINT) AS account_id", f"CAST(e % {customers} AS BIGINT) AS customer_id",
            f"CAST({spread(2, BROKERS)} * 3 AS BIGINT) AS broker_id", "'ACTV' AS status",
            f"concat('account ', {spread(3, 100)}) AS description", "posted AS day"),
        # a trade is submitted, and mostly completed or cancelled a day later, of which the last day has not heard yet
        "trade_events": trade.selectExpr(
            f"explode(filter(array(struct(1 AS step, 'SBMT' AS status, day), struct(2 AS step, "
            f"if(trade_id % 20 = 0, 'CNCL', 'CMPT') AS status, date_add(day, 1) AS day)), "
            f"s -> s.day < {on_day(DAYS + batch)})) AS s", "* EXCEPT (day)",
        ).selectExpr("s.*", "* EXCEPT (s)"),
        "holdings": rows(trades * 9 // 10, max(1, trades // DAYS)).selectExpr(
            "id AS holding_id", "id AS trade_id", f"{spread(2, 900)} AS after"),
        "cash": rows(trades * 9 // 10, max(1, trades // DAYS)).selectExpr(
            f"CAST({spread(2, customers * 2)} AS BIGINT) AS account_id", f"{day} AS day",
            f"{amount(3, 1000)} - 500 AS amount"),
        "watch_events": rows(trades, max(1, trades // DAYS)).selectExpr(
            f"CAST({spread(2, customers)} AS BIGINT) AS customer_id", f"{symbol} AS symbol",
            f"if({spread(3, 4)} = 0, 'CNCL', 'ACTV') AS action", f"{day} AS day"),
        "daily_market": rows(securities * DAYS, securities).selectExpr(
            f"concat('S', id % {securities}) AS symbol", f"{on_day(f'id DIV {securities}')} AS day",
            f"{amount(2, 100)} AS close", f"{amount(3, 100)} + 100 AS high", f"{amount(4, 100)} AS low",
            f"{spread(5, 10**6)} AS volume"),
    }  # fmt: skip


def late_trades(spark: SparkSession, folder: Path, batch: int) -> DataFrame:
    """Return the events that complete the trades which the days before a batch only submitted."""
    path = folder / "trade_events"
    spark.read.format("delta").load(str(path)).createOrReplaceTempView("earlier_trades")
    return spark.sql(f"""
        WITH trades AS (SELECT max_by(struct(*), step) AS last FROM earlier_trades GROUP BY trade_id)
        SELECT 2 AS step, 'CMPT' AS status, {on_day(DAYS + batch - 1)} AS day,
          last.* EXCEPT (step, status, day)
        FROM trades WHERE last.status = 'SBMT'""")


def prospects(spark: SparkSession, first: int, rows: int, seed: int) -> DataFrame:
    """Return prospects from a number on."""
    return spark.range(first, first + rows, 1, 2).selectExpr(
        "id AS agency_id", "concat('person ', id) AS name", f"concat('city ', {spread(seed, 90)}) AS city",
        f"{spread(seed + 1, 200_000)} AS income", f"{spread(seed + 2, 4)} AS cars",
    )  # fmt: skip


def generate(spark: SparkSession, folder: Path, scale: float) -> None:
    """Write all tables as the first batch has them."""
    shutil.rmtree(folder, ignore_errors=True)
    people = {"prospects": prospects(spark, 0, int(CUSTOMERS * scale * 2), 20)}
    for name, rows in (fixed_tables(spark) | event_tables(spark, scale, 0) | people).items():
        rows.write.format("delta").save(str(folder / name))


def arrive(spark: SparkSession, folder: Path, scale: float, batch: int) -> None:
    """Append the events of a batch after the first one, and merge its prospects."""
    arrived = event_tables(spark, scale, batch)
    late = late_trades(spark, folder, batch)
    arrived["trade_events"] = arrived["trade_events"].unionByName(late)
    for name, rows in arrived.items():
        rows.write.format("delta").mode("append").save(str(folder / name))
    number = int(CUSTOMERS * scale * 2)
    prospects(spark, batch * number // 50, number // 50, 20 + batch).createOrReplaceTempView("changed_prospects")
    spark.sql(f"""MERGE INTO delta.`{folder / "prospects"}` t USING changed_prospects u ON t.agency_id = u.agency_id
        WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *""")


def run(scales: list[float], policy: RefreshPolicy, *, verify: bool) -> None:
    """Each scale factor: three batches, each with one run over all datasets and a recompute of all."""
    spark = start("tpcdi")
    contest = Contest(spark, cache_folder("benchmarks", "tpcdi"))
    for scale in scales:
        one(contest, spark, cache_folder("benchmarks", "tpcdi"), scale, policy, verify=verify)
    ratios = list[tuple[str, float, str]]()
    for scale in scales:
        for name, steps in (("all batches", "batch"), ("the second and third", "batch-later")):
            ours, theirs = (
                sum(lap.seconds for lap in contest.of(f"scale {scale:g}", who, steps))
                for who in ("one run", "recompute")
            )
            ratios.append((f"scale {scale:g}, {name}, one run / recompute", ours / theirs, "at most 0.35"))
    contest.show("TPC-DI's warehouse in three batches", ratios, cache_folder("benchmarks") / "tpcdi.json")


def one(
    contest: Contest, spark: SparkSession, folder: Path, scale: float, policy: RefreshPolicy, *, verify: bool
) -> None:
    """One scale factor, with tables in a folder."""
    setting = f"scale {scale:g}"
    generate(spark, folder, scale)
    datasets = Datasets(spark, folder, DATASETS, TABLES, policy)
    for batch in range(BATCHES):
        step = "batch-first" if batch == 0 else f"batch-later-{batch + 1}"
        if batch:
            arrive(spark, folder, scale, batch)
        datasets.register()
        contest.lap(setting, step, "one run", datasets.refresh)
        contest.lap(setting, step, "recompute", datasets.recompute)
    if verify:
        datasets.verify()
