-- the busiest carriers
select carrier, count(*) as n from flights group by carrier order by n desc limit 3
