-- case: distinct rows of a source that shows its primary key
select distinct ok, status from orders
-- before:
--   distinct ok, status
--     source orders (ok, status)
-- after:
--   project ok, status
--     source orders (ok, status)
--   note: distinct ok, status needs no state: its rows differ (orders: primary key (ok))

-- case: through a filter and renaming
select distinct number, lk as order_key from lines where price > 10
-- before:
--   distinct number, order_key
--     project number, lk AS order_key
--       filter (price > CAST(CAST(10 AS DECIMAL(2,0)) AS DECIMAL(12,2)))
--         source lines (lk, number, price)
-- after:
--   project number, order_key
--     project number, lk AS order_key
--       filter (price > CAST(CAST(10 AS DECIMAL(2,0)) AS DECIMAL(12,2)))
--         source lines (lk, number, price)
--   note: distinct number, order_key needs no state: its rows differ (lines: primary key (lk, number))

-- case: part of a composite key does not distinguish rows
select distinct lk from lines
-- before:
--   distinct lk
--     source lines (lk)
-- after:
--   distinct lk
--     source lines (lk)

-- case: a source without a declared key
select distinct carrier from flights
-- before:
--   distinct carrier
--     source flights (carrier)
-- after:
--   distinct carrier
--     source flights (carrier)
