-- The common form: one state, one MERGE, answers in place.
select carrier, origin, count(*) as flights, sum(seats) as seats, avg(delay) as `mean delay`
from flights
where not cancelled
group by carrier, origin
