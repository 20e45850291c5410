-- DISTINCT is a group-by without aggregates.
select distinct carrier, month(day) as month from flights
