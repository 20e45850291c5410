-- case: a ratio is a function of one row of the state
select origin, sum(delay) / count(*) as mean_delay from flights group by origin

-- case: having hides groups
select origin, sum(seats) s from flights group by origin having sum(seats) > 100

-- case: rows without a group-by
select carrier, day from flights where cancelled
