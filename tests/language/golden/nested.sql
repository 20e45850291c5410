-- A group-by over a group-by over a group-by: lineage keys share their prefix.
select origin, max(busiest) as busiest, count(*) as carriers
from (select carrier, origin, max(flights) as busiest
      from (select carrier, day, origin, count(*) as flights from flights group by carrier, day, origin)
      group by carrier, origin)
group by origin
