-- case: an existence test of a join
select ok from orders where exists (select 1 from lines join flights on origin = cast(number as string) where lk = ok)
-- before:
--   semi join on (lk = ok)
--     source orders (ok)
--     project lk
--       join of 2
--         on (origin = CAST(number AS STRING))
--         source lines (lk, number)
--         source flights (origin)
-- after:
--   semi join on (lk = ok)
--     source orders (ok)
--     distinct lk
--       project lk
--         join of 2
--           on (origin = CAST(number AS STRING))
--           source lines (lk, number)
--           source flights (origin)
--   note: distinct lk: a state, as an existence test looks for it in a join

-- case: IN, beside what else the subquery shows
select origin, seats from flights where carrier in (select status from orders join lines on lk = ok)
-- before:
--   project origin, seats
--     semi join on (carrier = status)
--       source flights (carrier, origin, seats)
--       project status
--         join of 2
--           on (lk = ok)
--           source orders (ok, status)
--           source lines (lk)
-- after:
--   project origin, seats
--     semi join on (carrier = status)
--       source flights (carrier, origin, seats)
--       distinct status
--         project status
--           join of 2
--             on (lk = ok)
--             source orders (ok, status)
--             source lines (lk)
--   note: distinct status: a state, as an existence test looks for it in a join

-- case: a condition that is no equality could have as many keys as rows
select ok from orders where exists (
    select 1 from lines join flights on origin = cast(number as string) where lk = ok and seats > ok
)
-- before:
--   semi join on ((lk = ok) AND (CAST(seats AS BIGINT) > ok))
--     source orders (ok)
--     project lk, seats
--       join of 2
--         on (origin = CAST(number AS STRING))
--         source lines (lk, number)
--         source flights (origin, seats)
-- after:
--   semi join on ((lk = ok) AND (CAST(seats AS BIGINT) > ok))
--     source orders (ok)
--     project lk, seats
--       join of 2
--         on (origin = CAST(number AS STRING))
--         source lines (lk, number)
--         source flights (origin, seats)

-- case: NOT EXISTS
select ok from orders where not exists (select 1 from lines join flights on origin = cast(number as string) where lk = ok)
-- before:
--   anti join on (lk = ok)
--     source orders (ok)
--     project lk
--       join of 2
--         on (origin = CAST(number AS STRING))
--         source lines (lk, number)
--         source flights (origin)
-- after:
--   anti join on (lk = ok)
--     source orders (ok)
--     distinct lk
--       project lk
--         join of 2
--           on (origin = CAST(number AS STRING))
--           source lines (lk, number)
--           source flights (origin)
--   note: distinct lk: a state, as an existence test looks for it in a join

-- case: a test of one source reads that again
select ok from orders where ok in (select lk from lines where price > 10)
-- before:
--   semi join on (ok = lk)
--     source orders (ok)
--     project lk
--       filter (price > CAST(CAST(10 AS DECIMAL(2,0)) AS DECIMAL(12,2)))
--         source lines (lk, price)
-- after:
--   semi join on (ok = lk)
--     source orders (ok)
--     project lk
--       filter (price > CAST(CAST(10 AS DECIMAL(2,0)) AS DECIMAL(12,2)))
--         source lines (lk, price)

-- case: a test of groups has a state already
select ok from orders where ok in (select lk from lines join flights on origin = cast(number as string) group by lk having count(*) > 2)
-- before:
--   semi join on (ok = lk)
--     source orders (ok)
--     project lk
--       filter (count_1 > CAST(2 AS BIGINT))
--         group by lk: count(1)
--           project lk, 1 AS count_of
--             project lk
--               join of 2
--                 on (origin = CAST(number AS STRING))
--                 source lines (lk, number)
--                 source flights (origin)
-- after:
--   semi join on (ok = lk)
--     source orders (ok)
--     project lk
--       filter (count_1 > CAST(2 AS BIGINT))
--         group by lk: count(1)
--           project lk, 1 AS count_of
--             project lk
--               join of 2
--                 on (origin = CAST(number AS STRING))
--                 source lines (lk, number)
--                 source flights (origin)
