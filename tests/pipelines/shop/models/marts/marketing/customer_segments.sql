select s.segment, count(*) as customers, sum(c.spent) as spent
from {{ ref('dim_customers') }} c
join {{ ref('segments') }} s on c.orders between s.from_orders and s.to_orders
group by s.segment
