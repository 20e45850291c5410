-- case: a limit without an order
select carrier from flights limit 3
-- before:
--   limit limit 3
--     source flights (carrier)
-- after:
--   refused: limit 3 cannot be maintained incrementally: which rows it keeps is undefined without an order. Instead: add ORDER BY before LIMIT; ties are broken by all columns.

-- case: every reason at once
select carrier, rand() r, map(carrier, seats) m from flights limit 3
-- before:
--   limit limit 3
--     project carrier, rand() AS r, map(carrier, seats) AS m
--       source flights (carrier, seats)
-- after:
--   refused: rand() cannot be maintained incrementally: its value differs each time it is evaluated. Instead: use a deterministic expression, such as a hash of a key.
--   refused: limit 3 cannot be maintained incrementally: which rows it keeps is undefined without an order. Instead: add ORDER BY before LIMIT; ties are broken by all columns.

-- case: recursion
with recursive r(n) as (select 1 union all select n + 1 from r where n < 5) select n from r
-- before:
--   project c1 AS n
--     WITH RECURSIVE
--       project 1 AS c1_2
--         values ()
--       project (c1_3 + 1) AS n_1
--         filter (c1_3 < 5)
--           what the last round gave
-- after:
--   refused: WITH RECURSIVE cannot be maintained incrementally: a recursive query is a fixpoint, which has no incremental rule. Instead: rewrite it without recursion, or set policy: auto to recompute it at each refresh.

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
--   limit limit 3, order by day ASC NULLS FIRST, carrier ASC NULLS FIRST
--     source flights (carrier, day)
-- after:
--   limit limit 3, order by day ASC NULLS FIRST, carrier ASC NULLS FIRST
--     source flights (carrier, day)
