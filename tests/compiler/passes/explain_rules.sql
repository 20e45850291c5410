-- case: a join with a dimension that never changes
select a.name, sum(seats) s from flights f join airlines a on f.carrier = a.carrier group by a.name
-- before:
--   group by name: sum(seats)
--     project seats, name
--       join of 2
--         on (carrier = carrier_2)
--         source flights (carrier, seats)
--         source airlines (carrier AS carrier_2, name)
-- after:
--   group by name: sum(seats) | sum(seats): sum, deletions subtract
--     project seats, name | linear
--       join of 2 | linear: airlines does not change
--         on (carrier = carrier_2) | condition
--         source flights (carrier, seats) | files added or removed between two versions
--         source airlines (carrier AS carrier_2, name) | declared invariant: no term

-- case: a foreign key empties a term
select status, sum(price) p from lines join orders on lk = ok group by status
-- before:
--   group by status: sum(price)
--     project price, status
--       join of 2
--         on (lk = ok)
--         source lines (lk, price)
--         source orders (ok, status)
-- after:
--   group by status: sum(price) | sum(price): sum, deletions subtract
--     project price, status | linear
--       join of 2 | 2 terms: one term for each input that changed: the inputs before it as they are now, those after it as they were; no term for orders if its rows were only added or only removed: no existing row of lines refers to a new row of it (foreign key lk)
--         on (lk = ok) | condition
--         source lines (lk, price) | files added between two versions
--         source orders (ok, status) | files added or removed between two versions

-- case: an outer join by its foreign key
select lk, status from lines left join orders on lk = ok
-- before:
--   project lk, status
--     left join on (lk = ok)
--       source lines (lk)
--       source orders (ok, status)
-- after:
--   project lk, status | linear
--     left join on (lk = ok) | Δl, then the rows that a changed row of r can match, before and after; no term for orders if its rows were only added or only removed: no existing row of lines refers to a new row of it (foreign key lk)
--       source lines (lk) | files added between two versions
--       source orders (ok, status) | files added or removed between two versions

-- case: windows, limits and aggregates that do not merge
select carrier, p, rank() over (partition by carrier order by p) r
from (select carrier, origin, percentile(delay, 0.5) p, max(delay) w, avg(delay) a from flights group by all)
order by r limit 10
-- before:
--   limit 10, order by r ASC NULLS FIRST, carrier ASC NULLS FIRST, p ASC NULLS FIRST
--     window RANK() OVER (PARTITION BY carrier ORDER BY p ASC NULLS FIRST ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
--       project carrier, p
--         group by carrier, origin: percentile(delay, CAST(0.5BD AS DOUBLE), 1L)
--           project carrier, origin, delay, CAST(0.5BD AS DOUBLE) AS percentile_of, 1L AS percentile_of_2
--             source flights (carrier, origin, delay)
-- after:
--   limit 10, order by r ASC NULLS FIRST, carrier ASC NULLS FIRST, p ASC NULLS FIRST | all rows, before and after; ties broken by all columns
--     window RANK() OVER (PARTITION BY carrier ORDER BY p ASC NULLS FIRST ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) | touched partitions, before and after; ties broken by all columns
--       project carrier, p | linear
--         group by carrier, origin: percentile(delay, CAST(0.5BD AS DOUBLE), 1L) | percentile(delay, CAST(0.5BD AS DOUBLE), 1L): no merge, every change recomputes the group
--           project carrier, origin, delay, CAST(0.5BD AS DOUBLE) AS percentile_of, 1L AS percentile_of_2 | linear
--             source flights (carrier, origin, delay) | files added or removed between two versions
