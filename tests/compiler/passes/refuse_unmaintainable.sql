-- case: a limit without an order
select carrier from flights limit 3
-- before:
--   limit 3
--     source flights (carrier)
-- after:
--   refused: limit 3 cannot be maintained incrementally: which rows it keeps is undefined without an order. Instead: add ORDER BY before LIMIT; ties are broken by all columns.

-- case: every reason at once
select carrier, rand() r, map(carrier, seats) m from flights limit 3
-- before:
--   limit 3
--     project carrier, rand() AS r, map(carrier, seats) AS m
--       source flights (carrier, seats)
-- after:
--   refused: rand() cannot be maintained incrementally: its value differs each time it is evaluated. Instead: use a deterministic expression, such as a hash of a key.
--   refused: limit 3 cannot be maintained incrementally: which rows it keeps is undefined without an order. Instead: add ORDER BY before LIMIT; ties are broken by all columns.

-- case: a recursion whose rows are grouped in each round
with recursive r(n) as (select 1 union all select seats from flights join r on n < seats where not exists (select 1 from r s where s.n = seats)) select n from r
-- before:
--   project c1 AS n_3
--     loop_1 (sum of its levels)
--       project 1 AS c1_2
--         values ()
--       anti join on (n_2 = seats)
--         project seats
--           join of 2
--             on (n < seats)
--             source flights (seats)
--             project c1_3 AS n
--               rows of loop_1
--         project c1_4 AS n_2
--           rows of loop_1
-- after:
--   refused: anti join on (n_2 = seats) cannot be maintained incrementally: only joins, filters and projections of the rows of loop_1 are maintained by level. Instead: compute it above or below the loop, or use iterate, or set policy: auto to recompute it at each refresh.

-- case: a type that Delta does not store
select carrier, max(day) - min(day) as span from flights group by carrier
-- before:
--   project carrier, (max - min) AS span
--     group by carrier: max(day), min(day)
--       source flights (carrier, day)
-- after:
--   refused: column span cannot be maintained incrementally: Delta does not store values of type interval day, so no table can store the answer, even if it is recomputed. Instead: convert it to a number with timestampdiff, datediff or extract, or cast it to STRING.

-- case: an ordered limit is maintained
select carrier, day from flights order by day limit 3
-- before:
--   limit 3, order by day ASC NULLS FIRST, carrier ASC NULLS FIRST
--     source flights (carrier, day)
-- after:
--   limit 3, order by day ASC NULLS FIRST, carrier ASC NULLS FIRST
--     source flights (carrier, day)
