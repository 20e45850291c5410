select
    c.customer_id, c.customer_name, c.country, r.region, c.created_on,
    coalesce(o.orders, 0) as orders, o.first_ordered_on, o.last_ordered_on, coalesce(o.spent, 0) as spent
from {{ ref('stg_customers') }} c
left join {{ ref('regions') }} r on c.country = r.country
left join {{ ref('int_customer_orders') }} o on c.customer_id = o.customer_id
