-- An uncorrelated scalar subquery over a dimension is a join with its one row.
select carrier, count(*) as flights from flights
where seats > (select avg(length(name)) from airlines)
group by carrier
