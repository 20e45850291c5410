select customer, count(*) as orders, sum(amount) as spent, max(day) as last_day
from {{ ref('stg_orders') }}
group by customer
