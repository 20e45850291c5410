-- case: a join with a dimension that never changes
select a.name, sum(seats) s from flights f join airlines a on f.carrier = a.carrier group by a.name

-- case: a foreign key empties a term
select status, sum(price) p from lines join orders on lk = ok group by status

-- case: an outer join by its foreign key
select lk, status from lines left join orders on lk = ok

-- case: windows, limits and aggregates that do not merge
select carrier, p, rank() over (partition by carrier order by p) r
from (select carrier, origin, percentile(delay, 0.5) p, max(delay) w, avg(delay) a from flights group by all)
order by r limit 10
