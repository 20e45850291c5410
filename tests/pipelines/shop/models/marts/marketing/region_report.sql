select coalesce(region, 'all') as region, country, count(*) as customers, sum(spent) as spent
from {{ ref('dim_customers') }}
where region is not null
group by grouping sets ((region, country), (region), ())
