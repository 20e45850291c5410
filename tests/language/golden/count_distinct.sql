-- DISTINCT aggregates beside plain ones: a union of branches.
select origin, count(distinct carrier) as carriers, sum(seats) as seats, count(seats) as known from flights group by origin
