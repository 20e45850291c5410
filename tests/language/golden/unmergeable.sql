-- an aggregate that has no merge makes the whole group be computed anew
select carrier, percentile(delay, 0.9) as p90, collect_set(origin) as origins, sum(seats) as seats
from flights group by carrier
