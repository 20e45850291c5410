-- case: distinct rows of a source that shows its primary key
select distinct ok, status from orders

-- case: through a filter and renaming
select distinct number, lk as order_key from lines where price > 10

-- case: part of a composite key does not distinguish rows
select distinct lk from lines

-- case: a source without a declared key
select distinct carrier from flights
