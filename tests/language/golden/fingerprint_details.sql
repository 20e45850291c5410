-- what Spark's SQL of these leaves out is told
select
  carrier,
  sum(from_csv(origin, 'x int, y int').y) as a,
  sum(from_csv(origin, 'y int, x int').y) as b,
  count(*) filter (where try_variant_get(parse_json(origin), '$.v', 'int') is not null) as c,
  max(from_json(lower(origin), 'map<string,string>')['x']) as d,
  count(*) filter (where origin like any ('a%', 'b%')) as e,
  sum(get(stops, 1)::int) as f
from flights
group by carrier
