-- Expressions over aggregates belong to the answer, and an aggregate used twice is kept once.
select carrier, sum(seats) / count(*) as per_flight, cast(sum(seats) as decimal(20, 2)) as seats,
       case when count(*) > 1 then max(delay) - min(delay) end as span
from flights group by carrier
