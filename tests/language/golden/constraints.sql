-- New orders that arrive with their lines have no term of their own, and lines that differ by their key keep no state.
select o.status, count(*) as placed, sum(l.price) as price
from (select distinct lk, number, price from lines) l join orders o on o.ok = l.lk
where o.placed > date '2024-01-01'
group by o.status
