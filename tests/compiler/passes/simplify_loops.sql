-- case: DISTINCT in the recursive part is of each level
with recursive r(c) as (select carrier from airlines union all select distinct f.origin from r join flights f on c = f.carrier) select c from r

-- case: UNION, whose DISTINCT and semi join only count duplicates
with recursive r(c) as (select carrier from airlines union (select distinct origin from flights where carrier in (select c from r) union select name from airlines)) select c from r

-- case: a step over joins, which stays
with recursive r(c) as (select carrier from airlines union select f.origin from r join flights f on c = f.carrier) select c from r
