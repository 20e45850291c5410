-- scalar and quantified subqueries that refer to the outer row
select f.carrier, f.day, (select max(g.delay) from flights g where g.origin = f.origin) as worst
from flights f
where f.seats > (select avg(h.seats) from flights h where h.carrier = f.carrier)
  and f.origin not in (select i.origin from flights i where i.cancelled)
