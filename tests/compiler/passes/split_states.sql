-- case: having belongs to the answer
select origin, sum(seats) s from flights where delay > 0 group by origin having sum(seats) > 100

-- case: nested group-bys share the outer key
select carrier, max(n) m from (select origin, carrier, count(*) n from flights group by origin, carrier) group by carrier

-- case: a union of group-bys
select carrier, count(*) n from flights group by carrier union all select origin, sum(seats) from flights group by origin

-- case: a query without group-by is nothing but an answer
select carrier from flights where cancelled
