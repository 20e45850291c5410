-- case: one set of arguments is one more group-by
select origin, count(distinct day) n from flights group by origin
-- before:
--   group by origin: count(DISTINCT day)
--     source flights (origin, day)
-- after:
--   group by origin: count(DISTINCT day)
--     distinct origin, day
--       project origin, day
--         source flights (origin, day)

-- case: two sets and a plain aggregate are branches of a union
select origin, count(distinct day) days, sum(distinct seats) s, max(delay) worst from flights group by origin
-- before:
--   group by origin: count(DISTINCT day), sum(DISTINCT seats), max(delay)
--     source flights (origin, day, seats, delay)
-- after:
--   group by origin: count(DISTINCT day), sum(DISTINCT seats), max(delay)
--     union all of 3
--       project origin, delay AS delay_of_0, NULL AS day_of_1, NULL AS seats_of_2
--         source flights (origin, day, seats, delay)
--       project origin, NULL AS delay_of_0, day AS day_of_1, NULL AS seats_of_2
--         distinct origin, day
--           project origin, day
--             source flights (origin, day, seats, delay)
--       project origin, NULL AS delay_of_0, NULL AS day_of_1, seats AS seats_of_2
--         distinct origin, seats
--           project origin, seats
--             source flights (origin, day, seats, delay)

-- case: distinct in a total
select count(distinct carrier, origin) routes from flights
-- before:
--   group by (): count(DISTINCT carrier, origin)
--     source flights (carrier, origin)
-- after:
--   group by (): count(DISTINCT carrier, origin)
--     distinct carrier, origin
--       project carrier, origin
--         source flights (carrier, origin)

-- case: a distinct beside an aggregate that does not merge stays
select origin, count(distinct day) n, percentile(delay, 0.9) p from flights group by origin
-- before:
--   group by origin: count(DISTINCT day), percentile(delay, CAST(0.9BD AS DOUBLE), 1L)
--     project origin, day, delay, CAST(0.9BD AS DOUBLE) AS percentile_of, 1L AS percentile_of_2
--       source flights (origin, day, delay)
-- after:
--   group by origin: count(DISTINCT day), percentile(delay, CAST(0.9BD AS DOUBLE), 1L)
--     project origin, day, delay, CAST(0.9BD AS DOUBLE) AS percentile_of, 1L AS percentile_of_2
--       source flights (origin, day, delay)
