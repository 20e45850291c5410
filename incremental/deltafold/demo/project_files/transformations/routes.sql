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

-- In SQL: a dataset in Python over `origin_days` is empty after the second run of spark-pipelines 4.2.
CREATE MATERIALIZED VIEW worst_days COMMENT 'The five days of each origin on which most flights were cancelled or late'
TBLPROPERTIES ('deltafold.refresh_policy' = 'incremental') AS
SELECT *
FROM (
  SELECT origin,
         day,
         flights,
         cancelled + late AS trouble,
         row_number() OVER (PARTITION BY origin ORDER BY cancelled + late DESC, day) AS place
  FROM origin_days
)
WHERE place <= 5;
