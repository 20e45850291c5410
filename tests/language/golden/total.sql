-- One row whatever the input.
select count(*) as flights, min(day) as first_day, max_by(carrier, delay) as worst from flights
