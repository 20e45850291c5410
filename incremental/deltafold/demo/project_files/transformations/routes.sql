CREATE MATERIALIZED VIEW routes COMMENT 'What is flown between two airports'
TBLPROPERTIES ('deltafold.refresh_policy' = 'incremental') AS
SELECT origin,
       dest,
       max(distance) AS miles,
       count(*) AS flights,
       count(DISTINCT airline) AS airlines,
       avg(dep_delay) AS mean_delay
FROM flights_of_airlines
GROUP BY origin, dest;
