-- IN and NOT EXISTS become semi and anti joins.
select carrier, day, seats from flights f
where carrier in (select carrier from airlines where name like 'A%')
  and not exists (select 1 from airlines a where a.carrier = f.origin)
