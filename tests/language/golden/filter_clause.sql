-- FILTER is a NULL argument.
select carrier, count(*) filter (where delay > 15) as late, sum(seats) filter (where not cancelled) as seats
from flights group by carrier
