-- case: choosing columns of a computation
select distinct number, lk as order_key from lines where price > 10
-- before:
--   project number, order_key
--     project number, lk AS order_key
--       filter (price > CAST(CAST(10 AS DECIMAL(2,0)) AS DECIMAL(12,2)))
--         source lines (lk, number, price)
--   note: distinct number, order_key needs no state: its rows differ (lines: primary key (lk, number))
-- after:
--   project number, lk AS order_key
--     filter (price > CAST(CAST(10 AS DECIMAL(2,0)) AS DECIMAL(12,2)))
--       source lines (lk, number, price)
--   note: distinct number, order_key needs no state: its rows differ (lines: primary key (lk, number))

-- case: a projection that changes nothing
select distinct ok, status, placed from orders
-- before:
--   project ok, status, placed
--     source orders (ok, status, placed)
--   note: distinct ok, status, placed needs no state: its rows differ (orders: primary key (ok))
-- after:
--   source orders (ok, status, placed)
--   note: distinct ok, status, placed needs no state: its rows differ (orders: primary key (ok))

-- case: a computation over a computation stays
select count(*) n from (select distinct carrier, seats * 2 as twice from flights)
-- before:
--   group by (): count(1)
--     project 1 AS count_of
--       project 
--         distinct carrier, twice
--           project carrier, (seats * 2) AS twice
--             source flights (carrier, seats)
-- after:
--   group by (): count(1)
--     project 1 AS count_of
--       project 
--         distinct carrier, twice
--           project carrier, (seats * 2) AS twice
--             source flights (carrier, seats)
