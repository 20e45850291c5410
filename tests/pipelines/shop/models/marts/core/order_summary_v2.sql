select o.order_id, c.customer_name, c.region, o.total, o.paid, o.total - o.paid as open_amount
from {{ ref('fct_orders') }} o
join {{ ref('dim_customers') }} c using (customer_id)
