-- eight inputs, of which six change
select o.name, count(*) as connections, max(f6.day) as last
from flights f1
join flights f2 on f1.carrier = f2.carrier and f1.day = f2.day
join flights f3 on f2.origin = f3.origin
join flights f4 on f3.seats = f4.seats and f4.delay > f1.delay
join flights f5 on f4.carrier = f5.carrier
join flights f6 on f5.day < f6.day and f5.origin = f6.origin
join airlines o on o.carrier = f1.carrier
join airlines p on p.carrier = f6.carrier
where not f1.cancelled
group by o.name
