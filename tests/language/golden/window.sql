-- the two largest of each carrier, and a running total
select carrier, day, seats, sum(seats) over (partition by carrier order by day) as so_far
from flights qualify row_number() over (partition by carrier order by seats desc) <= 2
