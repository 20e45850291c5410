-- transitive closure over edges that are themselves grouped, read twice above
with recursive edges as (select carrier, max(origin) as origin from flights group by carrier),
closure(a, b) as (
  select carrier, origin from edges
  union
  select c.a, e.origin from closure c join edges e on c.b = e.carrier
)
select x.a, y.b from closure x join closure y on x.b = y.a where not exists (select 1 from airlines where carrier = x.a)
