CREATE TEMPORARY VIEW flights_of_airlines AS
SELECT a.name AS airline, f.*
FROM flights f
JOIN nyc.airlines a ON f.carrier = a.carrier;

CREATE MATERIALIZED VIEW airline_months COMMENT 'Delays per airline, origin and month'
TBLPROPERTIES ('deltafold.refresh_policy' = 'incremental') AS
SELECT airline,
       origin,
       trunc(day, 'MM') AS month,
       count(*) AS flights,
       count_if(dep_time IS NULL) AS cancelled,
       avg(dep_delay) AS mean_delay,
       max(dep_delay) AS worst_delay,
       count(DISTINCT dest) AS destinations
FROM flights_of_airlines
GROUP BY airline, origin, trunc(day, 'MM');

CREATE MATERIALIZED VIEW airline_ranks COMMENT 'Airlines by their mean delay, in each month and origin'
TBLPROPERTIES ('deltafold.refresh_policy' = 'incremental') AS
SELECT month, origin, airline, mean_delay, rank() OVER (PARTITION BY month, origin ORDER BY mean_delay) AS place
FROM airline_months
WHERE mean_delay IS NOT NULL;
