-- levels of a hierarchy, with the number of paths above an aggregate of each
with recursive reached(place, hops) as (
  select origin, 0 from flights where carrier = 'AA'
  union all
  select f.carrier, r.hops + 1 from reached r join flights f on r.place = f.origin where r.hops < 5
)
select place, min(hops) as nearest, count(*) as paths from reached where place <> 'JFK' group by place
