-- case: a ratio is a function of one row of the state
select origin, sum(delay) / count(*) as mean_delay from flights group by origin
-- before:
--   state_1 by (origin):
--     project origin, delay, 1 AS count_of
--       source flights (origin, delay)
--   project origin, (sum / CAST(count AS DOUBLE)) AS mean_delay
--     state state_1
-- after:
--   state_1 by (origin):
--     project origin, delay, 1 AS count_of
--       source flights (origin, delay)
--   publish columns of state_1, one MERGE and one commit (the answer is a function of one row of the state)
--   project origin, (sum / CAST(count AS DOUBLE)) AS mean_delay
--     state state_1

-- case: having hides groups
select origin, sum(seats) s from flights group by origin having sum(seats) > 100
-- before:
--   state_1 by (origin):
--     source flights (origin, seats)
--   filter (s > CAST(100 AS BIGINT))
--     state state_1
-- after:
--   state_1 by (origin):
--     source flights (origin, seats)
--   publish a table of its own, updated and never rewritten (a condition on the answer hides groups that the state must keep)
--   filter (s > CAST(100 AS BIGINT))
--     state state_1

-- case: rows without a group-by
select carrier, day from flights where cancelled
-- before:
--   project carrier, day
--     filter cancelled
--       source flights (carrier, day, cancelled)
-- after:
--   publish a table of its own, updated and never rewritten (a condition on the answer hides groups that the state must keep)
--   project carrier, day
--     filter cancelled
--       source flights (carrier, day, cancelled)
