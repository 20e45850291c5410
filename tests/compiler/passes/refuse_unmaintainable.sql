-- case: a limit without an order
select carrier from flights limit 3

-- case: every reason at once
select carrier, rand() r, map(carrier, seats) m from flights limit 3

-- case: recursion
with recursive r(n) as (select 1 union all select n + 1 from r where n < 5) select n from r

-- case: a type that Delta does not store
select carrier, max(day) - min(day) as span from flights group by carrier

-- case: an ordered limit is maintained
select carrier, day from flights order by day limit 3
