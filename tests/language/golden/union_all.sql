-- Linear in each input.
select carrier, 'late' as kind from flights where delay > 15
union all
select carrier, 'cancelled' from flights where cancelled
