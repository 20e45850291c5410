-- case: choosing columns of a computation
select s + 1 as t, origin from (select origin, sum(seats) s from flights group by origin)

-- case: an answer in another order than its group-by
select n, upper(carrier) as c from (select carrier, count(*) n from flights group by carrier) where n > 1

-- case: a computation over a computation stays
select count(*) n from (select distinct carrier, seats * 2 as twice from flights)
