-- A left join with a source that never changes carries the change of the other side.
select a.name, count(*) as flights, max(delay) as worst
from flights f left join airlines a on f.carrier = a.carrier
group by a.name
order by flights desc
