-- case: one set of arguments is one more group-by
select origin, count(distinct day) n from flights group by origin

-- case: two sets and a plain aggregate are branches of a union
select origin, count(distinct day) days, sum(distinct seats) s, max(delay) worst from flights group by origin

-- case: distinct in a total
select count(distinct carrier, origin) routes from flights

-- case: a distinct beside an aggregate that does not merge stays
select origin, count(distinct day) n, percentile(delay, 0.9) p from flights group by origin
