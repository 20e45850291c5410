-- case: having belongs to the answer
select origin, sum(seats) s from flights where delay > 0 group by origin having sum(seats) > 100
-- before:
--   filter (s > CAST(100 AS BIGINT))
--     group by origin: sum(seats)
--       project origin, seats
--         filter (delay > CAST(0 AS DOUBLE))
--           source flights (origin, seats, delay)
-- after:
--   state_1 by (origin):
--     project origin, seats
--       filter (delay > CAST(0 AS DOUBLE))
--         source flights (origin, seats, delay)
--   filter (s > CAST(100 AS BIGINT))
--     state state_1

-- case: nested group-bys share the outer key
select carrier, max(n) m from (select origin, carrier, count(*) n from flights group by origin, carrier) group by carrier
-- before:
--   group by carrier: max(n)
--     project carrier, n
--       group by origin, carrier: count(1)
--         project origin, carrier, 1 AS count_of
--           source flights (carrier, origin)
-- after:
--   state_1 by (carrier, origin):
--     project origin, carrier, 1 AS count_of
--       source flights (carrier, origin)
--   state_2 by (carrier):
--     project carrier, n
--       state state_1
--   state state_2

-- case: a union of group-bys
select carrier, count(*) n from flights group by carrier union all select origin, sum(seats) from flights group by origin
-- before:
--   union all of 2
--     group by carrier: count(1)
--       project carrier, 1 AS count_of
--         source flights (carrier)
--     group by origin: sum(seats)
--       source flights (origin, seats)
-- after:
--   state_1 by (carrier):
--     project carrier, 1 AS count_of
--       source flights (carrier)
--   state_2 by (origin):
--     source flights (origin, seats)
--   union all of 2
--     state state_1
--     state state_2

-- case: a query without group-by is nothing but an answer
select carrier from flights where cancelled
-- before:
--   project carrier
--     filter cancelled
--       source flights (carrier, cancelled)
-- after:
--   project carrier
--     filter cancelled
--       source flights (carrier, cancelled)
