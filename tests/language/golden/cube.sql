-- Each row once per grouping set.
select carrier, origin, grouping_id() as level, sum(seats) as seats from flights group by cube (carrier, origin)
