-- HAVING hides groups that the state must keep.
select carrier, stddev(delay) as spread from flights group by carrier having count(*) > 10
