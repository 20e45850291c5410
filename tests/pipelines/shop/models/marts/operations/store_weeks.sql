select store_id, {{ dbt.date_trunc('week', 'ordered_on') }} as week, sum(orders) as orders, sum(revenue) as revenue
from {{ ref('int_store_days') }}
group by 1, 2
