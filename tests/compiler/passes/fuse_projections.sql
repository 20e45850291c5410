-- case: choosing columns of a computation
select distinct number, lk as order_key from lines where price > 10

-- case: a projection that changes nothing
select distinct ok, status, placed from orders

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
