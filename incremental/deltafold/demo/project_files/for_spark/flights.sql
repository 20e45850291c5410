-- For spark-pipelines, which refuses Delta tables as targets of AUTO CDC flows: the same rows by a query.
CREATE MATERIALIZED VIEW flights AS
WITH latest AS (
  SELECT max_by(struct(*), sequence) AS event
  FROM nyc.flight_events
  GROUP BY day, carrier, flight, origin, sched_dep_time
)
SELECT event.* EXCEPT (operation, sequence)
FROM latest
WHERE event.operation <> 'delete';
