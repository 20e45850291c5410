SELECT a.name AS airline,
       f.origin,
       trunc(f.day, 'MM') AS month,
       count(*) AS flights,
       count_if(f.dep_time IS NULL) AS cancelled,
       avg(f.dep_delay) AS mean_delay,
       stddev(f.dep_delay) AS delay_deviation,
       max(f.dep_delay) AS worst_delay,
       count(DISTINCT f.dest) AS destinations
FROM flights f
JOIN airlines a ON f.carrier = a.carrier
GROUP BY a.name, f.origin, trunc(f.day, 'MM')
